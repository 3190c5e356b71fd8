from __future__ import annotations

from pathlib import Path

import pytest

from tests.hooks.contexts import Container


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)
