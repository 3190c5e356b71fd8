"""Sizes, file systems, and what a full one is called."""

from __future__ import annotations

import errno
import math
import os
import subprocess
from pathlib import Path

import pytest

from enroot_py.errors import KernelError, SpaceError
from enroot_py.store.file_system import (
    explaining,
    find_file_system,
    format_size,
    space_error,
)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"),
        (2**63, "8192.0 PiB"),
    ],
)  # fmt: skip
def test_sizes_for_people(size: int, text: str) -> None:
    assert format_size(size) == text


def test_the_file_system_of_a_path_that_is_not_there_is_its_parents(tmp_path: Path) -> None:
    here = find_file_system(str(tmp_path))
    there = find_file_system(str(tmp_path / "a" / "b"))
    assert (there.mount_point, there.kind) == (here.mount_point, here.kind)
    assert here.size >= here.free > 0
    assert math.isclose(here.size, os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize)


def test_pseudo_file_systems_are_told_apart() -> None:
    proc = find_file_system("/proc/self/status")
    assert (proc.mount_point, proc.kind) == ("/proc", "proc")


@pytest.mark.root
def test_the_uppermost_mount_counts_and_odd_names_are_read(tmp_path: Path) -> None:
    target = tmp_path / "a b\tc\\d"
    target.mkdir()
    for options in ("size=4m", "size=8m,noexec"):
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "x", str(target)], check=True)
    try:
        system = find_file_system(str(target / "new"))
    finally:
        for _ in range(2):
            subprocess.run(["umount", str(target)], check=True)
    assert (system.mount_point, system.kind, system.size) == (str(target), "tmpfs", 8 << 20)
    assert "noexec" in system.options


def test_a_full_file_system_is_described_in_one_line(tmp_path: Path) -> None:
    path = str(tmp_path / "blob")
    error = space_error(
        path, stage="storing a layer", setting="ENROOT_CACHE_PATH", cause="No space left",
        needed=3 << 30,
    )  # fmt: skip
    system = find_file_system(path)
    assert str(error).startswith(f"No space left while storing a layer: {path} on ")
    assert f"{system.mount_point} ({system.kind}, " in str(error)
    assert str(error).endswith("3.0 GiB needed")
    assert "ENROOT_CACHE_PATH" in error.hint


def test_other_errors_pass_through() -> None:
    for raised in (OSError(errno.ENOENT, "x"), KernelError("mount", errno.ENOSPC), SpaceError("x")):
        with pytest.raises(type(raised)) as caught, explaining("/x", stage="s", setting="S"):
            raise raised
        assert caught.value is raised
