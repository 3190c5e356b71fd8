from __future__ import annotations

import os
from pathlib import Path

import pytest

from enroot_py.enter import image
from enroot_py.enter.image import ImageServer, find_server
from tests.hooks.contexts import write_file


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = write_file(tmp_path / "fuse", "")
    monkeypatch.setattr(image, "_FUSE", str(path))
    return path


def test_the_first_program_on_the_path_is_used(tmp_path: Path, device: Path) -> None:
    for name, mode in (("a", 0o644), ("b", 0o755), ("c", 0o755)):
        write_file(tmp_path / name / "squashfuse", "", mode=mode)
    path = ":".join(str(tmp_path / name) for name in ("none", "a", "b", "c"))
    assert find_server({"PATH": path}) == f"{tmp_path}/b/squashfuse"


@pytest.mark.parametrize("path", ["", "/nonexistent", ":"])
def test_without_the_program_there_is_no_server(
    device: Path, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_server({"PATH": path}) == ""


def test_without_the_device_there_is_no_server(tmp_path: Path, device: Path) -> None:
    write_file(tmp_path / "b/squashfuse", "", mode=0o755)
    device.unlink()
    assert find_server({"PATH": f"{tmp_path}/b"}) == ""


def test_a_server_that_is_never_attached_ends_with_its_start(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    server = ImageServer("/bin/true", "image", {}, uid=1, gid=1)
    server.reap()
    os.close(write_end)
    server._socket.close()
    assert os.read(read_end, 1) == b""  # the child's copy of the pipe is gone, hence the child
    os.close(read_end)
