"""Folders for tests of the store."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """An empty folder that other users can get at, which tmp_path is not."""
    path = Path(tempfile.mkdtemp(prefix="enroot-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
