"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import Command


@pytest.fixture
def enroot(tmp_path: Path) -> Command:
    """`enroot` in an empty world."""
    return Command(tmp_path)
