"""Root filesystems read for an export."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from enroot_py.errors import StoreError
from enroot_py.layers.directory import DirectorySink
from enroot_py.layers.entry import ByteSource, Node, walk
from enroot_py.layers.scan import scan_directory
from tests.layers.archives import MemorySink, contents

as_user = pytest.mark.kernel
"""Only a process that is not root meets the modes of files; so these run with the kernel tests."""


def scan(root: Path, sink: MemorySink | None = None) -> dict[bytes, Node]:
    top = scan_directory(str(root), sink or MemorySink())
    return {b"": top, **dict(walk(top))}


def test_a_tree_of_every_type(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0o750)
    (tmp_path / "d/file").write_bytes(b"content")
    (tmp_path / "d/file").chmod(0o4751)
    (tmp_path / "d/empty").touch()
    (tmp_path / "link").symlink_to("d/file")
    os.link(tmp_path / "d/file", tmp_path / "hard")
    os.mkfifo(tmp_path / "fifo", 0o600)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    os.setxattr(tmp_path / "d/file", "user.note", b"\0x")
    os.utime(tmp_path / "d/file", ns=(0, 5_999_999_999))
    os.utime(tmp_path / "d", ns=(0, -1_500_000_000))
    found = scan(tmp_path)
    assert sorted(found) == [
        b"", b"d", b"d/empty", b"d/file", b"fifo", b"hard", b"link", b"socket",
    ]  # fmt: skip
    file = found[b"d/file"]
    assert found[b"hard"] is file
    assert (file.mode, file.size, file.mtime, file.content) == (0o4751, 7, 5, b"content")
    assert (file.uid, file.gid) == (os.geteuid(), file.gid)
    assert file.xattrs == {b"user.note": b"\0x"}
    assert (found[b"d"].mode, found[b"d"].mtime) == (0o750, -2)
    assert found[b"link"].target == b"d/file"
    assert stat.S_ISFIFO(found[b"fifo"].kind)
    assert stat.S_ISSOCK(found[b"socket"].kind)
    assert found[b"d/empty"].content is None


def test_what_belongs_to_the_container_is_left_out(tmp_path: Path) -> None:
    for name in ("dev", "dev/shm", ".enroot/bin", "usr/dev", "usr/.enroot"):
        (tmp_path / name).mkdir(parents=True)
    for name in (".lock", "dev/null", ".enroot/bin/x", "usr/.lock", "usr/dev/x", ".locked"):
        (tmp_path / name).write_text("x")
    assert sorted(scan(tmp_path)) == [
        b"", b".locked", b"dev", b"usr", b"usr/.enroot", b"usr/.lock", b"usr/dev", b"usr/dev/x",
    ]  # fmt: skip


@pytest.mark.parametrize("top", ["", "deep/er/"])
def test_what_mounts_leave_behind_is_left_out(top: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / top).mkdir(parents=True)
    for name, mode in (("mount", 0), ("kept", 0o700)):
        (root / top / name).mkdir()
        (root / top / name).chmod(mode)
    for name, mode, text in (("f", 0, ""), ("g", 0, "x"), ("h", 0o600, "")):
        (root / top / name).write_text(text)
        (root / top / name).chmod(mode)
    found = scan(root)
    prefix = top.encode()
    assert [name for name in (b"f", b"g", b"h", b"kept", b"mount") if prefix + name in found] == [
        b"g", b"h", b"kept",
    ]  # fmt: skip
    assert found[prefix + b"g"].content == b"x"
    assert stat.S_IMODE((root / top / "mount").stat().st_mode) == 0
    (root / top / "mount").chmod(0o700)


MODES = {"none": 0, "list": 0o444, "search": 0o111, "both": 0o555, "write": 0o200}


@as_user
def test_modes_keep_no_file_of_this_user_from_being_read(tmp_path: Path) -> None:
    """Case C02. The modes are as before afterwards, and in the tree as they are."""
    root = tmp_path / "root"
    root.mkdir()
    for name, mode in MODES.items():
        (root / name / "sub").mkdir(parents=True)
        (root / name / "sub/file").write_text(name)
        for path in (root / name / "sub/file", root / name / "sub", root / name):
            path.chmod(mode)
    found = scan(root)
    for name, mode in MODES.items():
        for path in (name, name + "/sub", name + "/sub/file"):
            assert found[path.encode()].mode == mode
        assert found[f"{name}/sub/file".encode()].content == name.encode()
    for name, mode in MODES.items():
        path = root / name
        for _ in range(3):
            assert stat.S_IMODE(path.lstat().st_mode) == mode
            path.chmod(0o700)
            path = path / ("sub" if path == root / name else "file")


@as_user
def test_modes_are_restored_after_an_error(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").write_text("x")
    (root / "a/b").chmod(0)
    (root / "a").chmod(0)

    class Failing(MemorySink):
        def add(
            self, source: ByteSource, size: int, extents: Sequence[tuple[int, int]] | None = None
        ) -> object:
            raise StoreError("full")

    with pytest.raises(StoreError, match="full"):
        scan(root, Failing())
    assert stat.S_IMODE((root / "a").stat().st_mode) == 0
    (root / "a").chmod(0o700)
    assert stat.S_IMODE((root / "a/b").stat().st_mode) == 0
    (root / "a/b").chmod(0o700)


@as_user
def test_other_users_files_are_an_error_that_names_them() -> None:
    with pytest.raises(StoreError, match="Cannot read /etc/.*: it belongs to user 0") as caught:
        scan(Path("/etc"))
    assert "namespace" in caught.value.hint


def test_holes_stay_holes(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as stream:
        stream.write(b"head")
        stream.seek(64 << 20)
        stream.write(b"tail")
        stream.truncate(65 << 20)
    with open(tmp_path / "hole", "wb") as stream:
        stream.truncate(1 << 20)
    sink = MemorySink()
    found = scan(tmp_path, sink)
    content = found[b"sparse"].content
    assert isinstance(content, bytes)
    assert content[:4] == b"head"
    assert content[64 << 20 : (64 << 20) + 4] == b"tail"
    assert content.count(0) == len(content) - 8
    hole, sparse = sink.extents
    assert hole == []
    assert sum(length for _, length in sparse) < 1 << 20


def test_markers_of_overlays_and_of_the_storage_are_no_attributes(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    for name in ("user.overlay.opaque", "user.fuseoverlayfs.x", "user.kept"):
        os.setxattr(tmp_path / "f", name, b"y")
    assert scan(tmp_path)[b"f"].xattrs == {b"user.kept": b"y"}


def test_trees_deeper_than_any_path(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d" * 80, dir_fd=fd)
        below = os.open("d" * 80, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    found = scan(tmp_path)
    assert len(found) == 1 + 200 + 1
    assert b"/".join([b"d" * 80] * 200) + b"/file" in found


def test_a_fifo_in_place_of_a_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_text("x")
    real = os.stat

    def swap(path: object, **options: object) -> os.stat_result:
        status = real(path, **options)  # type: ignore[arg-type]
        if path == b"f":
            os.unlink(tmp_path / "f")
            os.mkfifo(tmp_path / "f")
        return status

    monkeypatch.setattr(os, "stat", swap)
    with pytest.raises(StoreError, match="changed while it is read"):
        scan(tmp_path)


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 1000)

    class Shrinking(MemorySink):
        def add(
            self, source: ByteSource, size: int, extents: Sequence[tuple[int, int]] | None = None
        ) -> object:
            os.truncate(tmp_path / "f", 10)
            return super().add(source, size, extents)

    with pytest.raises(StoreError, match="changed while it is read"):
        scan(tmp_path, Shrinking())


def test_a_directory_that_is_moved_away_is_an_error(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/f").write_bytes(b"x")
    (root / "z").write_bytes(b"x")

    class Moving(MemorySink):
        def add(
            self, source: ByteSource, size: int, extents: Sequence[tuple[int, int]] | None = None
        ) -> object:
            os.rename(root / "a/b", tmp_path / "b")
            return super().add(source, size, extents)

    with pytest.raises(StoreError, match="changed while it is read"):
        scan(root, Moving())


def test_links_are_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    (root / "etc").symlink_to(tmp_path)
    (root / "passwd").symlink_to(tmp_path / "secret")
    assert contents(scan(root)[b""]) == {
        b"etc": b"-> " + os.fsencode(tmp_path),
        b"passwd": b"-> " + os.fsencode(tmp_path / "secret"),
    }
    with pytest.raises(StoreError):
        scan(root / "etc")


def test_a_directory_written_and_read_again_is_the_same(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "d/e").mkdir(parents=True)
    for number in range(50):
        (source / f"d/{number}").write_bytes(b"x" * number)
        (source / f"d/{number}").chmod(0o700 + number % 8)
    os.link(source / "d/7", source / "d/e/hard")
    (source / "l").symlink_to("nowhere")
    copy = tmp_path / "copy"
    copy.mkdir()
    with DirectorySink(str(copy)) as sink:
        sink.finish(scan_directory(str(source), sink))

    def facts(root: Path) -> dict[bytes, tuple[object, ...]]:
        found = scan(root)
        return {
            path: (node.kind, node.mode, node.mtime, node.content or node.target or b"")
            for path, node in found.items()
        }

    assert facts(copy) == facts(source)
    assert (copy / "d/7").stat().st_ino == (copy / "d/e/hard").stat().st_ino


def test_contents_come_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("b", "a", "c/b", "c/a", "d"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    seen: list[object] = []

    class Recording(MemorySink):
        def add(
            self, source: ByteSource, size: int, extents: Sequence[tuple[int, int]] | None = None
        ) -> object:
            seen.append(super().add(source, size, extents))
            return seen[-1]

    scan(tmp_path, Recording())
    assert seen == [b"a", b"b", b"c/a", b"c/b", b"d"]
