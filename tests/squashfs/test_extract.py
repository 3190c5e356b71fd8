"""Unpacking: the same tree whatever the number of processes, and as an ordinary user gets it."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from enroot_py import log
from enroot_py.errors import SquashfsError
from enroot_py.squashfs.reader import SquashfsImage
from tests.squashfs.trees import Facts, Item, facts_of_folder, facts_of_items, write_image
from tests.this_process import open_files

MEBIBYTE = 1 << 20


def extract(image: Path, folder: Path, *, processors: int = 1) -> None:
    folder.mkdir(exist_ok=True)
    with SquashfsImage(str(image)) as reader:
        reader.extract(str(folder), processors=processors)


def widened(facts: Facts) -> Facts:
    """What an ordinary user gets of a tree without devices and foreign attributes."""
    changed: Facts = {}
    for path, (kind, mode, *rest) in facts.items():
        bits = int(str(mode), 8)
        if kind == "directory":
            bits |= 0o700
        elif kind != "link":
            bits &= 0o7777 if os.geteuid() == 0 else 0o1777
            bits |= 0o500 if bits & 0o111 else 0o400
        changed[path] = (kind, oct(bits), *rest)
    return changed


def ordinary_items() -> list[Item]:
    items = [
        Item(b"empty"),
        Item(b"small", content=b"small"),
        Item(b"secret", content=b"mode 0", mode=0),
        Item(b"program", content=b"#!" * 4000, mode=0o111),
        Item(b"setuid", content=b"s" * 300_000, mode=0o4755),
        Item(b"setgid", content=b"s", mode=0o2710),
        Item(b"read-only", content=b"r", mode=0o444, xattrs=((b"user.note", b"kept"),)),
        Item(b"blocks", content=bytes(range(256)) * 3000 + b"tail"),
        Item(b"hole", content=bytes(500_000) + b"x" + bytes(500_000)),
        Item(b"zeros", content=bytes(3 * 131072)),
        Item(b"link", stat.S_IFLNK, target=b"nowhere", mtime=5),
        Item(b"fifo", stat.S_IFIFO, mode=0o600, mtime=6),
        Item(b"socket", stat.S_IFSOCK, mode=0o640),
        Item(b"\xff\xfe\n", content=b"a name in no encoding"),
        Item(b"locked", stat.S_IFDIR, mode=0o555, xattrs=((b"user.of", b"a directory"),)),
        Item(b"locked/in", stat.S_IFDIR, mode=0, mtime=7),
        Item(b"locked/in/file", content=b"deep", mode=0o400),
        Item(b"locked/second", link=b"small"),
        Item(b"third", link=b"small"),
        Item(b"fifo2", link=b"fifo"),
        Item(b"link2", link=b"link"),
        Item(b"sticky", stat.S_IFDIR, mode=0o1777),
    ]
    items += [Item(b"sticky/%d" % number, content=b"%d" % number * 3000) for number in range(700)]
    return items


@pytest.mark.parametrize("processors", [1, 2, 5])
@pytest.mark.parametrize("options", ["", "-comp lzo -noD -tailends"])
def test_tree_is_what_a_user_gets(tmp_path: Path, processors: int, options: str) -> None:
    items = ordinary_items()
    image = write_image(tmp_path / "image", items, options)
    os.umask(0o077)  # of no consequence
    extract(image, tmp_path / "out", processors=processors)
    assert facts_of_folder(tmp_path / "out") == widened(facts_of_items(items))
    assert os.umask(0o022) == 0o077
    for name in ("hole", "zeros"):
        status = os.stat(tmp_path / "out" / name)
        assert status.st_blocks * 512 < status.st_size


@pytest.mark.parametrize("processors", [1, 3])
def test_large_files_are_shared_out(tmp_path: Path, processors: int) -> None:
    text = b"".join(b"%07d\n" % number for number in range(131072))
    large = text * 70 + bytes(40 * MEBIBYTE) + text + b"the end"
    items = [
        Item(b"large", content=large, mode=0o4750, xattrs=((b"user.a", b"b"),)),
        Item(b"holes", content=bytes(80 * MEBIBYTE), mode=0o400),
        Item(b"again", link=b"large"),
    ]
    image = write_image(tmp_path / "image", items, "-comp lz4 -tailends")
    extract(image, tmp_path / "out", processors=processors)
    assert facts_of_folder(tmp_path / "out") == widened(facts_of_items(items))
    assert os.stat(tmp_path / "out/holes").st_blocks == 0


def test_device_nodes_and_privileged_attributes_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(log, "_warned", set())
    monkeypatch.setattr(log, "_sink", lambda level, text: said.append(text))
    xattrs = (
        (b"security.capability", b"\1\0\0\2" + bytes(16)),
        (b"trusted.overlay.opaque", b"y"),
        (b"user.overlay.opaque", b"y"),
        (b"user.kept", b"yes"),
    )
    items = [
        Item(b"keep%d" % number, content=b"k" * 40_000, xattrs=xattrs) for number in range(300)
    ]
    devices = [
        Item(b"null", stat.S_IFCHR, device=(1, 3)),
        Item(b"disk", stat.S_IFBLK, device=(8, 0)),
        Item(b"null2", link=b"null"),
        Item(b"d", stat.S_IFDIR),
        Item(b"d/whiteout", stat.S_IFCHR, device=(0, 0)),
    ]
    image = write_image(tmp_path / "image", [*items, *devices])
    extract(image, tmp_path / "out", processors=3)
    found = facts_of_folder(tmp_path / "out")
    assert sorted(found) == sorted([item.path for item in items] + [b"d"])
    assert found[b"keep7"][-2] == [(b"user.kept", b"yes")]
    assert len(said) == 1
    assert "device nodes" in said[0].lower()


def test_paths_may_be_longer_than_the_system_allows(tmp_path: Path) -> None:
    items, path = [], b""
    for number in range(40):
        path = (path + b"/" if path else b"") + b"%02d" % number + b"d" * 200
        items.append(Item(path, stat.S_IFDIR, mode=0o755, mtime=number))
        items.append(Item(path + b"/file", content=b"%d" % number))
    items.append(Item(path + b"/second", link=items[1].path))
    image = write_image(tmp_path / "image", items)
    extract(image, tmp_path / "out", processors=2)
    fd = os.open(tmp_path / "out", os.O_RDONLY)
    try:
        for item in items[:-1:2]:
            below = os.open(item.path.rpartition(b"/")[2], os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = below
            assert os.fstat(fd).st_mtime == item.mtime
        assert sorted(os.listdir(fd)) == ["file", "second"]
        assert os.stat("second", dir_fd=fd).st_nlink == 2
    finally:
        os.close(fd)


@pytest.mark.parametrize("processors", [1, 4])
def test_what_the_system_says_comes_back(tmp_path: Path, processors: int) -> None:
    items = [Item(b"f%d" % number, content=b"x" * 50_000) for number in range(400)]
    image = write_image(tmp_path / "image", items)
    out = tmp_path / "out"
    out.mkdir()
    (out / "f390").write_bytes(b"in the way")
    with pytest.raises(OSError) as caught:
        extract(image, out, processors=processors)
    assert caught.value.errno == errno.EEXIST
    assert (out / "f390").read_bytes() == b"in the way"


@pytest.mark.parametrize("processors", [1, 4])
def test_damage_found_on_the_way_comes_back(tmp_path: Path, processors: int) -> None:
    items = [Item(b"f%03d" % number, content=os.urandom(60_000)) for number in range(300)]
    image = write_image(tmp_path / "image", items, "-comp zstd -b 64K")
    data = bytearray(image.read_bytes())
    with SquashfsImage(str(image)) as reader:
        # The header of a fragment somewhere in the middle, which says that it is compressed.
        middle = reader.superblock.inode_table // 2
    data[middle : middle + 200_000] = bytes(200_000)
    image.write_bytes(data)
    compressed = write_image(
        tmp_path / "text", [Item(b"t%03d" % n, content=b"%d " % n * 20_000) for n in range(300)]
    )
    damaged = bytearray(compressed.read_bytes())
    damaged[200:1000] = bytes(800)
    compressed.write_bytes(damaged)
    with pytest.raises(SquashfsError, match=f"Damaged image: .*: {compressed}$"):
        extract(compressed, tmp_path / "out", processors=processors)


def test_other_threads_keep_the_work_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = write_image(tmp_path / "image", ordinary_items())
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    monkeypatch.delattr("os.fork")
    try:
        extract(image, tmp_path / "out", processors=4)
    finally:
        stop.set()
        thread.join()
    assert (tmp_path / "out/small").read_bytes() == b"small"


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    image = write_image(tmp_path / "image", ordinary_items())
    before = open_files()
    extract(image, tmp_path / "out", processors=3)
    assert open_files() == before
