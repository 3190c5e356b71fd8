"""A registry on loopback and a user's folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operations.importing import Workplace, add_cases
from tests.registry.fake_registry import FakeRegistry
from tests.registry.images import ImageStore


@pytest.fixture(scope="session")
def case_images() -> ImageStore:
    """The images `t/NAME:1` of `importing.CASES`."""
    store = ImageStore()
    add_cases(store)
    return store


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """An empty registry."""
    with FakeRegistry() as server:
        yield server


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    """Folders of a user who has imported nothing yet."""
    workplace = Workplace(tmp_path)
    yield workplace
    workplace.close()


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A cgroup that may use 256 MiB, of either version."""
    parent = Path("/sys/fs/cgroup")
    limit = "memory.max"
    if (parent / "memory").is_dir():
        parent, limit = parent / "memory", "memory.limit_in_bytes"
    else:
        (parent / "cgroup.subtree_control").write_text("+memory")
    group = parent / f"pyxis-enroot-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / limit).write_text(str(256 << 20))
        yield group
    finally:
        group.rmdir()
