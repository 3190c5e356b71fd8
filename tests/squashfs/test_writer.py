"""Images that we write hold what went in, in the same bytes whatever the number of threads."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from enroot_py.errors import LimitError, SquashfsError
from enroot_py.layers.entry import Node, new_directory
from enroot_py.squashfs import format as layout
from enroot_py.squashfs.options import SquashfsOptions
from enroot_py.squashfs.reader import SquashfsImage
from enroot_py.squashfs.superblock import read_superblock
from enroot_py.squashfs.writer import SquashfsWriter
from tests.squashfs.trees import (
    Item,
    Source,
    build,
    facts_of_image,
    facts_of_items,
    random_items,
    read_all,
    write_image,
)

BLOCK = 131072
HEAD = 4096

OPTIONS = [
    "-comp zstd -Xcompression-level 1",
    "-comp zstd -b 4K",
    "-comp gzip -Xcompression-level 1",
    "-comp gzip -Xstrategy filtered,huffman_only -Xwindow-size 12 -Xcompression-level 1 -b 64K",
    "-comp lz4",
    "-comp lz4 -Xhc -b 1M",
    "-comp xz -b 32K",
    "-comp xz -Xbcj x86,arm -Xdict-size 75% -b 16K",
    "-comp lzo -noD",
    "-comp zstd -noI -noD -noF -noX",
    "-comp zstd -no-fragments -no-duplicates -no-exports -nopad",
    "-comp zstd -always-use-fragments -no-sparse",
]


@pytest.mark.parametrize("options", OPTIONS)
def test_image_holds_what_went_in(tmp_path: Path, options: str) -> None:
    items = random_items(7, count=60)
    image = write_image(tmp_path / "image", items, options)
    assert facts_of_image(image) == facts_of_items(items)


def test_what_has_settled_does_not_change_any_more(tmp_path: Path) -> None:
    # A duplicate is overwritten by what comes next, so its bytes have not settled.
    rng = random.Random(5)
    first, second = rng.randbytes(40 * BLOCK), rng.randbytes(30 * BLOCK + 7)
    root, seen = new_directory(), []
    with (
        open(tmp_path / "image", "w+b", buffering=0) as file,
        SquashfsWriter(file, SquashfsOptions(), processors=2, mkfs_time=0) as writer,
    ):
        for number, data in enumerate([first, second, first, first, rng.randbytes(9000), second]):
            token = writer.add(Source(data), len(data))
            node = Node(stat.S_IFREG, 0o644)
            node.size, node.content = len(data), token
            root.children[b"%d" % number] = node
            settled = writer.settled
            seen.append(os.pread(file.fileno(), settled, 0)[HEAD:])
        writer.finish(root)
    image = (tmp_path / "image").read_bytes()[HEAD:]
    assert [image[: len(part)] for part in seen] == seen
    assert [len(part) for part in seen] == sorted(len(part) for part in seen)
    assert len(seen[-1]) > len(first)


@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32), options=st.sampled_from(OPTIONS[:2] + OPTIONS[-3:]))
def test_random_trees_come_back(tmp_path: Path, seed: int, options: str) -> None:
    items = random_items(seed, count=40, block_size=4096)
    image = write_image(tmp_path / "image", items, options)
    assert facts_of_image(image) == facts_of_items(items)


@pytest.mark.parametrize("options", ["", "-comp xz -b 16K", "-comp lz4 -always-use-fragments"])
def test_bytes_do_not_depend_on_threads(tmp_path: Path, options: str) -> None:
    items = random_items(11, count=150)
    one = write_image(tmp_path / "one", items, options, processors=1)
    four = write_image(tmp_path / "four", items, options, processors=4)
    assert one.read_bytes() == four.read_bytes()


@pytest.mark.parametrize("compressor", ["lz4", "lz4 -Xhc", "lzo", "gzip", "zstd", "xz"])
def test_small_stacks_of_threads_are_enough(tmp_path: Path, compressor: str) -> None:
    """As musl has them, 128 KiB; a compressor that overruns one ends the process."""
    script = (
        "import sys, threading\n"
        "from pathlib import Path\n"
        "from tests.squashfs.trees import random_items, write_image\n"
        "threading.stack_size(128 << 10)\n"
        "items = random_items(5, count=60)\n"
        "write_image(Path(sys.argv[1]), items, sys.argv[2], processors=3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "image", f"-comp {compressor}"],
        cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_equal_files_are_stored_once(tmp_path: Path) -> None:
    large = bytes(range(256)) * 3000 + b"the end"
    small = b"small but the same, again and again" * 20
    once = [Item(b"large", content=large), Item(b"small", content=small)]
    thrice = [*once, Item(b"more", stat.S_IFDIR)]
    for number in range(100):
        thrice.append(Item(b"more/large%d" % number, content=large))
        thrice.append(Item(b"more/small%d" % number, content=small))
    options = "-comp zstd -noD -noF"
    first = write_image(tmp_path / "once", once, options)
    second = write_image(tmp_path / "thrice", thrice, options)
    assert second.stat().st_size - first.stat().st_size <= 8192
    assert facts_of_image(second) == facts_of_items(thrice)
    third = write_image(tmp_path / "each", thrice, options + " -no-duplicates")
    assert third.stat().st_size > 100 * len(large)


def test_nothing_is_left_of_a_duplicate_at_the_end(tmp_path: Path) -> None:
    content = b"".join(number.to_bytes(4, "big") for number in range(BLOCK))
    items = [Item(b"a", content=content), Item(b"z", content=content)]
    first = write_image(tmp_path / "first", items[:1])
    second = write_image(tmp_path / "second", items)
    assert second.stat().st_size == first.stat().st_size
    padding = second.read_bytes()[read_superblock(str(second)).bytes_used :]
    assert not any(padding)


def test_files_of_equal_checksum_and_size_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enroot_py.squashfs.writing.content.crc32", lambda data, start=0: 0)
    items = [
        Item(b"a", content=b"one" * 50),
        Item(b"b", content=b"two" * 50),
        Item(b"c", content=b"one" * 50),
        Item(b"d", content=b"\1" * BLOCK + b"\2" * BLOCK),
        Item(b"e", content=b"\1" * BLOCK + b"\3" * BLOCK),
    ]
    image = write_image(tmp_path / "image", items, "-comp zstd -noD -noF")
    assert facts_of_image(image) == facts_of_items(items)


def test_duplicates_of_files_in_fragments_long_written_are_found(tmp_path: Path) -> None:
    # More fragments than are kept in memory lie between the two.
    first = b"the first file of all, met again at the end" * 30
    fillers = [
        Item(b"filler%04d" % number, content=number.to_bytes(4, "big") * 1000)
        for number in range(1500)
    ]
    items = [Item(b"a", content=first), *fillers, Item(b"z", content=first)]
    image = write_image(tmp_path / "image", items)
    with SquashfsImage(str(image)) as reader:
        assert reader.find("a").content == reader.find("z").content
        assert read_all(reader, reader.find("z")) == first


def test_zeros_and_holes_take_no_room(tmp_path: Path) -> None:
    size = 40 * BLOCK + 5
    data = b"".join([b"head" * 100, bytes(size - 800), b"tail" * 100])
    items = [
        Item(b"zeros", content=bytes(size)),
        Item(b"dense", content=data),
        Item(b"sparse", content=data, extents=((0, 400), (size - 400, 400))),
        Item(b"hole", content=bytes(size), extents=()),
        Item(b"small", content=bytes(90) + b"x" * 10, extents=((90, 10),)),
    ]
    image = write_image(tmp_path / "image", items)
    assert image.stat().st_size <= 8192
    assert facts_of_image(image) == facts_of_items(items)


def test_enormous_sparse_file_costs_little(tmp_path: Path) -> None:
    path = tmp_path / "image"
    size = 3 << 40
    with (
        open(path, "w+b", buffering=0) as file,
        SquashfsWriter(file, SquashfsOptions(), processors=1, mkfs_time=0) as writer,
    ):
        root = new_directory()
        node = Node(stat.S_IFREG, 0o644)
        node.size = size
        node.content = writer.add(Source(b"end"), size, [(size - 3, 3)])
        assert root.children is not None
        root.children[b"lastlog"] = node
        writer.finish(root)
        with pytest.raises(LimitError, match="too large"):
            writer.add(Source(b""), 1 << 60, [])
    assert path.stat().st_size < 1 << 20
    with SquashfsImage(str(path)) as image:
        found = image.find("lastlog")
        assert found.size == size
        pieces = list(image.read_content(found.content, size))
    assert pieces[-1] == bytes(BLOCK - 3) + b"end"
    assert sum(piece for piece in pieces if isinstance(piece, int)) == size - BLOCK


def test_large_directories_get_an_index(tmp_path: Path) -> None:
    count = 70_000
    items = [Item(b"%x%s" % (number, b"n" * (number % 50))) for number in range(count)]
    image = write_image(tmp_path / "image", items, "-comp lz4")
    with SquashfsImage(str(image)) as reader:
        children = reader.read_tree().children
        assert children is not None
        assert sorted(children) == sorted(item.path for item in items)
        assert reader.superblock.inode_count == count + 1


def test_headers_count_no_more_than_the_kernel_takes(tmp_path: Path) -> None:
    # The shortest inodes: more of them than one header may count are in one block.
    items = [Item(b"%04d" % number, stat.S_IFIFO) for number in range(1000)]
    image = write_image(tmp_path / "image", items, "-comp lz4")
    assert facts_of_image(image) == facts_of_items(items)


def test_names_of_one_file_in_many_directories(tmp_path: Path) -> None:
    # Far more inodes lie between the names than an entry's 16-bit difference can tell.
    items = [Item(b"a", stat.S_IFDIR), Item(b"a/first", content=b"linked", mode=0o755)]
    items += [Item(b"m", stat.S_IFDIR)]
    items += [Item(b"m/%05d" % number) for number in range(40_000)]
    items += [Item(b"z", stat.S_IFDIR)]
    items += [Item(b"z/%d" % number, link=b"a/first") for number in range(5)]
    items += [Item(b"z/%d-own" % number) for number in range(5)]
    image = write_image(tmp_path / "image", items, "-comp lz4")
    assert facts_of_image(image) == facts_of_items(items)


def test_every_inode_number_is_used_once(tmp_path: Path) -> None:
    items = random_items(3, count=200)
    image = write_image(tmp_path / "image", items)
    superblock = read_superblock(str(image))
    inodes = 1 + len({item.link or item.path for item in items})
    assert superblock.inode_count == inodes


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([Item(b"n" * 256)], "longer than 255 bytes"),
        ([Item(b"l", stat.S_IFLNK, target=b"t" * 4096)], "target is too long"),
        ([Item(b"l", stat.S_IFLNK)], "target is too long"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(
    tmp_path: Path, items: list[Item], message: str
) -> None:
    with pytest.raises(SquashfsError, match=message):
        write_image(tmp_path / "image", items)


def test_times_outside_the_format_are_moved_to_its_ends(tmp_path: Path) -> None:
    items = [Item(b"before", mtime=-5), Item(b"after", mtime=2**40)]
    image = write_image(tmp_path / "image", items, mkfs_time=2**40)
    with SquashfsImage(str(image)) as reader:
        assert reader.find("before").mtime == 0
        assert reader.find("after").mtime == 2**32 - 1
        assert reader.superblock.mkfs_time == 2**32 - 1


def test_times_can_be_set_for_everything(tmp_path: Path) -> None:
    items = [Item(b"old", mtime=5), Item(b"new", mtime=2_000_000_000)]
    image = write_image(tmp_path / "all", items, "-all-time 100 -mkfs-time 200")
    with SquashfsImage(str(image)) as reader:
        assert {node.mtime for _, node in reader.walk()} == {100}
        assert reader.superblock.mkfs_time == 200
    image = write_image(tmp_path / "latest", items, SquashfsOptions(latest_time=1000))
    with SquashfsImage(str(image)) as reader:
        assert [reader.find(name).mtime for name in ("old", "new")] == [5, 1000]


def test_attributes_of_other_namespaces_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("enroot_py.log._warned", set())
    monkeypatch.setattr("enroot_py.log._sink", lambda level, text: said.append(text))
    xattrs = ((b"system.posix_acl_access", b"acl"), (b"user.kept", b"yes"), (b"user.", b"no"))
    items = [Item(b"f", xattrs=xattrs), Item(b"g", xattrs=xattrs[:1])]
    image = write_image(tmp_path / "image", items)
    with SquashfsImage(str(image)) as reader:
        assert reader.find("f").xattrs == {b"user.kept": b"yes"}
        assert reader.find("g").xattrs is None
    assert said == [
        "Extended attribute system.posix_acl_access cannot be stored in an image",
        "Extended attribute user. cannot be stored in an image",
    ]


def test_attributes_can_be_left_out(tmp_path: Path) -> None:
    items = [Item(b"f", xattrs=((b"user.note", b"x"),))]
    image = write_image(tmp_path / "image", items, "-no-xattrs")
    with SquashfsImage(str(image)) as reader:
        assert reader.find("f").xattrs is None
        assert reader.superblock.flags & layout.FLAG_NO_XATTRS


def test_many_attributes_across_blocks(tmp_path: Path) -> None:
    items = [
        Item(
            b"f%d" % number,
            xattrs=((b"user.own", b"%d" % number * 50), (b"security.same", b"same value" * 10)),
        )
        for number in range(2000)
    ]
    image = write_image(tmp_path / "image", items)
    assert facts_of_image(image) == facts_of_items(items)


def test_an_image_replaces_what_was_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(b"x" * 1_000_000)
    with (
        open(path, "r+b", buffering=0) as file,
        SquashfsWriter(file, SquashfsOptions(), processors=1, mkfs_time=0) as writer,
    ):
        writer.finish(new_directory())
    assert path.stat().st_size == 4096
    with SquashfsImage(str(path)) as image:
        assert list(image.walk()) == []


def test_padding(tmp_path: Path) -> None:
    items = [Item(b"f", content=b"content")]
    assert write_image(tmp_path / "padded", items).stat().st_size == 4096
    unpadded = write_image(tmp_path / "unpadded", items, "-nopad")
    assert unpadded.stat().st_size == read_superblock(str(unpadded)).bytes_used < 4096


class _FailingSource:
    def take(self, size: int) -> bytes:
        raise SquashfsError("the source failed")


def test_no_thread_outlives_a_failure(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with (
        pytest.raises(SquashfsError, match="the source failed"),
        open(tmp_path / "image", "w+b", buffering=0) as file,
        SquashfsWriter(file, SquashfsOptions(), processors=3, mkfs_time=0) as writer,
    ):
        build([Item(b"a", content=b"abc" * BLOCK)], writer)
        assert len(set(threading.enumerate()) - before) == 3
        writer.add(_FailingSource(), 10)
    assert set(threading.enumerate()) <= before


def test_a_failing_compressor_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(data: bytes) -> bytes:
        raise MemoryError

    monkeypatch.setattr("enroot_py.squashfs.writing.pool.make_compressor", lambda options: fail)
    monkeypatch.setattr("threading.excepthook", lambda arguments: None)
    with pytest.raises(SquashfsError, match="zstd compressor failed"):
        write_image(tmp_path / "image", [Item(b"a", content=b"abc" * BLOCK)])
