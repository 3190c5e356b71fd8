"""What is read ahead of a container's start, and that no image can stop a start by it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from enroot_py.enter.read_ahead import read_ahead
from tests.this_process import open_files


@contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The files that are asked for, and how many bytes of them."""
    sizes: dict[str, int] = {}

    def advise(fd: int, offset: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_WILLNEED
        path = os.readlink(f"/proc/self/fd/{fd}")
        assert sizes.get(path, 0) == offset
        sizes[path] = offset + length

    monkeypatch.setattr(os, "posix_fadvise", advise)
    return sizes


def test_a_shell_comes_with_its_loader_and_the_c_library(asked: dict[str, int]) -> None:
    with opened(Path("/")) as root_fd:
        read_ahead(root_fd, "/bin/sh")
    shell, loader, library = asked
    assert shell == os.path.realpath("/bin/sh")
    assert os.path.basename(loader).startswith(("ld-linux", "ld-2", "ld64"))
    assert library == os.path.realpath(os.path.join(os.path.dirname(loader), "libc.so.6"))
    for path, size in asked.items():
        assert size >= min(os.path.getsize(path), 4 << 20)


def test_a_static_shell_comes_alone(asked: dict[str, int], tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy(shutil.which("busybox") or "", tmp_path / "bin/busybox")
    (tmp_path / "bin/sh").symlink_to("/bin/busybox")
    with opened(tmp_path) as root_fd:
        read_ahead(root_fd, "/bin/sh")
    assert list(asked) == [str(tmp_path / "bin/busybox")]


HOSTILE = b"\x7fELF\x02\x01" + bytes(26) + (64).to_bytes(8, "little") + bytes(14)
HOSTILE += (56).to_bytes(2, "little") + (65535).to_bytes(2, "little") + bytes(6)


LOADER = b"\3\0\0\0" + bytes(4)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x7fELF", b"\x7fELF\x02\x01", b"#!/bin/sh\n", HOSTILE,
        HOSTILE[:54] + b"\0\0" + HOSTILE[56:],
        HOSTILE + LOADER + b"\xff" * 48,
        HOSTILE + LOADER + (120).to_bytes(8, "little") + bytes(40) + b"/" * 99,
        HOSTILE + LOADER + (120).to_bytes(8, "little") + bytes(40) + b"/../p",
    ],
)  # fmt: skip
def test_what_is_no_program_is_left_alone(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "sh").write_bytes(data)
    with opened(tmp_path) as root_fd:
        read_ahead(root_fd, "/sh")


def test_nothing_outside_is_read_and_nothing_hangs(asked: dict[str, int], tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (root / "escape").symlink_to("../secret")
    (root / "loop").symlink_to("loop")
    (root / "folder").mkdir()
    (root / "closed").write_bytes(b"x")
    (root / "closed").chmod(0)
    os.mkfifo(root / "pipe")
    before = open_files()
    with opened(root) as root_fd:
        for name in ("escape", "loop", "folder", "pipe", "nosuch", "nosuch/sh"):
            read_ahead(root_fd, f"/{name}")
    assert asked == {}
    assert open_files() == before
