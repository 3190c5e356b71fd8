"""Trees written as directories, and what an ordinary user may keep of them."""

from __future__ import annotations

import errno
import os
import resource
import stat
from pathlib import Path

import pytest

from enroot_py import log
from enroot_py.errors import SpaceError, StoreError, UnsafePathError
from enroot_py.layers.directory import DirectorySink, set_xattrs
from enroot_py.layers.entry import Node, kept_mode, new_directory
from enroot_py.layers.merge import LayerMerger
from enroot_py.layers.scan import scan_directory
from tests.layers import archives
from tests.layers.archives import archive, directory, file, hard_link, header, pax, symlink
from tests.this_process import open_files

KEPT = 0o7777 if os.geteuid() == 0 else 0o1777
"""Bits of a file's mode that this user's extraction may keep."""


def extract(path: Path, *layers: bytes) -> Path:
    """Merge layers, base layer first, into a new directory `root`."""
    root = path / "root"
    root.mkdir()
    with DirectorySink(str(root)) as sink:
        merger = LayerMerger(sink)
        for number in reversed(range(len(layers))):
            merger.add_layer(archives.opener(layers[number]), f"layer {number}")
        sink.finish(merger.finish())
    return root


def listing(root: Path) -> list[str]:
    found = []
    for folder, folders, files in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, name), root) for name in folders + files]
    return sorted(found)


def test_a_tree_of_every_type(tmp_path: Path) -> None:
    root = extract(
        tmp_path,
        archive(
            directory(b"d", 0o750, mtime=11),
            file(b"d/file", b"content", mode=0o640, mtime=12),
            file(b"d/empty", mode=0o600, mtime=13),
            symlink(b"d/link", b"../anywhere", mtime=14),
            header(b"d/fifo", kind=b"6", mode=0o620, mtime=15),
            hard_link(b"other", b"d/file"),
            hard_link(b"link", b"d/link"),
            hard_link(b"nothing", b"d/empty"),
            file(b"replaced", b"old"),
        ),
        archive(file(b"replaced", b"new"), file(b"big", b"x" * (3 << 20))),
    )
    status = {name: (root / "d" / name).lstat() for name in ("file", "empty", "link", "fifo")}
    assert [entry.st_mtime for entry in status.values()] == [12, 13, 14, 15]
    assert [stat.S_IMODE(status[name].st_mode) for name in ("file", "empty", "fifo")] == [
        0o640, 0o600, 0o620,
    ]  # fmt: skip
    assert (root / "d").stat().st_mtime == 11
    assert stat.S_IMODE((root / "d").stat().st_mode) == 0o750
    assert (root / "d/file").read_bytes() == b"content"
    assert os.readlink(root / "d/link") == "../anywhere"
    assert stat.S_ISFIFO(status["fifo"].st_mode)
    for name, other in (("other", "file"), ("link", "link"), ("nothing", "empty")):
        assert (root / name).lstat().st_ino == status[other].st_ino
    assert (root / "replaced").read_bytes() == b"new"
    assert (root / "big").read_bytes() == b"x" * (3 << 20)
    assert len(listing(root)) == 10


def test_nothing_but_the_tree_is_left(tmp_path: Path) -> None:
    """Contents that nothing refers to in the end go, too."""
    members = [file(b"same", b"%d" % number) for number in range(2100)]
    root = extract(tmp_path, archive(directory(b"./", 0o700, mtime=5), *members))
    assert listing(root) == ["same"]
    assert (root / "same").read_bytes() == b"2099"
    assert root.stat().st_mtime == 5


@pytest.mark.parametrize(
    ("mode", "kept", "of_directory"),
    [
        (0o000, 0o400, 0o700),
        (0o111, 0o511, 0o711),
        (0o444, 0o444, 0o744),
        (0o500, 0o500, 0o700),
        (0o555, 0o555, 0o755),
        (0o644, 0o644, 0o744),
        (0o4755, 0o4755 & KEPT, 0o4755),
        (0o6711, 0o6711 & KEPT, 0o6711),
        (0o1777, 0o1777, 0o1777),
        (0o2070, 0o2570 & KEPT, 0o2770),
    ],
)
def test_owner_bits_are_widened_and_no_others(
    mode: int, kept: int, of_directory: int, tmp_path: Path
) -> None:
    """Case C02. Source: enroot 4.1.2 src/common.sh, common::fixperms."""
    members = (directory(b"d", mode), file(b"d/in", b"x"), file(b"f", b"x", mode=mode))
    root = extract(tmp_path, archive(*members), archive(file(b"d/later", b"x")))
    assert stat.S_IMODE((root / "f").stat().st_mode) == kept
    assert stat.S_IMODE((root / "d").stat().st_mode) == of_directory
    assert listing(root) == ["d", "d/in", "d/later", "f"]


@pytest.mark.parametrize(
    ("kind", "mode", "of_user", "of_root"),
    [
        (stat.S_IFREG, 0o4755, 0o755, 0o4755),
        (stat.S_IFREG, 0o2755, 0o755, 0o2755),
        (stat.S_IFREG, 0o7600, 0o1600, 0o7600),
        (stat.S_IFREG, 0o6011, 0o511, 0o6511),
        (stat.S_IFIFO, 0o6622, 0o622, 0o6622),
        (stat.S_IFDIR, 0o2775, 0o2775, 0o2775),
        (stat.S_IFDIR, 0o4000, 0o4700, 0o4700),
    ],
)
def test_only_root_keeps_files_that_lend_an_identity(
    kind: int, mode: int, of_user: int, of_root: int
) -> None:
    """Source: squashfs-tools 4.5 as an ordinary user; there directories lose the bits as well."""
    node = Node(kind, mode)
    assert kept_mode(node, as_root=False) == of_user
    assert kept_mode(node, as_root=True) == of_root


def test_only_user_attributes_are_set(tmp_path: Path) -> None:
    xattrs = pax(
        (b"SCHILY.xattr.user.note", b"\0hello"),
        (b"SCHILY.xattr.security.capability", b"\1\0\0\2\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        (b"SCHILY.xattr.trusted.x", b"1"),
        (b"SCHILY.xattr.user.overlay.opaque", b"y"),
    )
    root = extract(tmp_path, archive(xattrs + directory(b"d"), xattrs + file(b"d/f", b"x", mode=0)))
    assert os.listxattr(root / "d") == ["user.note"]
    assert os.listxattr(root / "d/f") == ["user.note"]
    assert os.getxattr(root / "d/f", "user.note") == b"\0hello"


def test_a_python_without_attributes_keeps_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some on musl are: CPython 3.11 has the calls with glibc alone."""
    said: list[str] = []
    monkeypatch.setattr(log, "_warned", set())
    monkeypatch.setattr(log, "_sink", lambda level, text: said.append(text))
    monkeypatch.delattr(os, "setxattr")
    monkeypatch.delattr(os, "listxattr")
    xattrs = pax((b"SCHILY.xattr.user.note", b"hello"))
    root = extract(tmp_path, archive(xattrs + directory(b"d"), xattrs + file(b"d/f", b"x")))
    assert listing(root) == ["d", "d/f"]
    found = scan_directory(str(root), archives.MemorySink())
    assert found.children is not None
    assert len(said) == 1
    assert "extended attributes" in said[0]


def test_no_other_attribute_is_even_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bytes] = []
    monkeypatch.setattr(os, "setxattr", lambda fd, name, value: tried.append(name))
    names = (b"user.a", b"security.capability", b"trusted.x", b"system.posix_acl_access")
    set_xattrs(0, dict.fromkeys((*names, b"user.overlay.whiteout", b"user.fuseoverlayfs.x"), b""))
    assert tried == [b"user.a"]


def test_times_are_those_that_an_image_can_hold(tmp_path: Path) -> None:
    late = pax((b"mtime", b"9000000000000000000"))
    members = (file(b"past", b"", mtime=b"\xff" * 12), late + directory(b"d"), late + file(b"f"))
    root = extract(tmp_path, archive(*members))
    assert (root / "past").stat().st_mtime == 0
    assert (root / "d").stat().st_mtime == (root / "f").stat().st_mtime == 2**32 - 1


def test_holes_stay_holes(tmp_path: Path) -> None:
    numbers = b"0,4,%d,4" % (64 << 20)
    size = b"%d" % (65 << 20)
    sparse = pax((b"GNU.sparse.map", numbers), (b"GNU.sparse.size", size)) + file(b"s", b"headtail")
    empty = pax((b"GNU.sparse.map", b"0,0"), (b"GNU.sparse.size", size)) + file(b"hole")
    root = extract(tmp_path, archive(sparse, empty))
    for name in ("s", "hole"):
        assert (root / name).stat().st_size == 65 << 20
        assert (root / name).stat().st_blocks * 512 < 1 << 20
    with open(root / "s", "rb") as stream:
        assert stream.read(5) == b"head\0"
        stream.seek(64 << 20)
        assert stream.read(5) == b"tail\0"


def test_trees_deeper_than_any_path_or_table_of_files(tmp_path: Path) -> None:
    """Case: 200 levels of 80 bytes are 16 kB; PATH_MAX is 4 kB, and 64 files may be open."""
    root = tmp_path / "root"
    root.mkdir()
    top = new_directory()
    at = top
    for _ in range(200):
        assert at.children is not None
        at.children[b"d" * 80] = at = new_directory(mode=0o500, mtime=3)
    assert at.children is not None
    at.children[b"file"] = Node(stat.S_IFREG, 0o644)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
    try:
        with DirectorySink(str(root)) as sink:
            sink.finish(top)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    fd = os.open(root, os.O_RDONLY)
    for _ in range(200):
        below = os.open("d" * 80, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
        assert os.fstat(fd).st_mtime == 3
        assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o700
    assert os.listdir(fd) == ["file"]
    os.close(fd)


def test_links_of_the_image_are_never_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    target = os.fsencode(outside)
    root = extract(
        tmp_path,
        archive(
            symlink(b"link", target, mtime=9),
            file(b"link/file", b"x"),
            symlink(b"etc", b"/../../outside"),
            file(b"etc/file", b"x"),
            symlink(b"file", target + b"/file"),
            hard_link(b"hard", b"file"),
        ),
    )
    assert os.listdir(outside) == []
    assert outside.stat().st_mtime != 9
    assert stat.S_IMODE(outside.stat().st_mode) == 0o700
    assert (root / "outside/file").read_bytes() == b"x"
    assert root.joinpath(str(outside)[1:], "file").read_bytes() == b"x"


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"a\0b", b"../../x"])
def test_names_that_are_paths_are_refused(name: bytes, tmp_path: Path) -> None:
    for child in (Node(stat.S_IFREG, 0o644), new_directory()):
        root = tmp_path / str(child.kind)
        root.mkdir()
        top = new_directory()
        top.children = {name: child}
        with DirectorySink(str(root)) as sink, pytest.raises(UnsafePathError):
            sink.finish(top)
    assert len(os.listdir(tmp_path)) == 2


def test_names_of_all_bytes(tmp_path: Path) -> None:
    names = [b"x" * 255, b"\n\x1b[31m", b"-rf", b"\xff\xfe", b" ", b"*"]
    root = extract(tmp_path, archive(*(pax((b"path", name)) + file(b"", b"x") for name in names)))
    assert sorted(os.listdir(os.fsencode(root))) == sorted(names)


def test_a_destination_that_is_a_link_or_missing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for name in ("link", "missing"):
        with pytest.raises(StoreError, match=name):
            DirectorySink(str(tmp_path / name))
    assert os.listdir(tmp_path / "real") == []


def test_nothing_stays_open(tmp_path: Path) -> None:
    before = open_files()
    extract(tmp_path, archive(file(b"a", b"x"), file(b"d/e/f", b"x")))
    (tmp_path / "other").mkdir()
    with pytest.raises(StoreError):
        DirectorySink(str(tmp_path / "missing"))
    with DirectorySink(str(tmp_path / "other")):
        pass
    assert open_files() == before


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(SpaceError) as caught:
        extract(tmp_path, archive(file(b"a", b"x" * 1000)))
    assert str(tmp_path) in str(caught.value)
    assert "1000 bytes" in str(caught.value)
    assert caught.value.hint
