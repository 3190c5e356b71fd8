"""Images of ours in other hands, and other hands' images in ours.

unsquashfs, squashfuse and the kernel must read what we write exactly as it went in; what mksquashfs
writes, in every way it can, must come out here as it comes out of unsquashfs.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from enroot_py.layers.scan import scan_directory
from enroot_py.squashfs.options import parse_squash_options
from enroot_py.squashfs.reader import SquashfsImage
from enroot_py.squashfs.writer import SquashfsWriter
from tests.squashfs.trees import (
    Facts,
    Item,
    facts_of_folder,
    facts_of_image,
    facts_of_items,
    random_items,
    write_image,
)

pytestmark = pytest.mark.root

WRITTEN = [
    "-comp zstd -Xcompression-level 1",
    "-comp gzip -Xcompression-level 2 -Xstrategy filtered,default",
    "-comp lz4 -b 64K",
    "-comp lz4 -Xhc -no-exports",
    "-comp xz -Xbcj x86 -b 256K",
    "-comp xz -Xdict-size 8K -b 16K",
    "-comp lzo -noD",
    "-comp zstd -noI -noD -noF -noX -no-fragments",
    "-comp zstd -b 1M -always-use-fragments -no-duplicates",
    "-comp zstd -b 4K",
]


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="surrogateescape")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    folder.mkdir()
    run("mount", "-t", "squashfs", "-o", "loop,ro", image, folder)
    try:
        yield folder
    finally:
        run("umount", folder)


@contextmanager
def mounted_by_fuse(image: Path, folder: Path) -> Iterator[Path]:
    folder.mkdir()
    run("squashfuse", image, folder)
    try:
        yield folder
    finally:
        run("umount", folder)


def without(facts: Facts, *, names: bool = False, xattrs: bool = False) -> Facts:
    """Leave out what a reader cannot show: groups of names, attributes."""
    changed: Facts = {}
    for path, fields in facts.items():
        kept = list(fields)
        if names:
            kept[-1] = []
        if xattrs:
            kept[-2] = []
        changed[path] = tuple(kept)
    return changed


def items_for(seed: int, options: str) -> list[Item]:
    block_size = parse_squash_options(options).block_size
    items = random_items(seed, count=150, block_size=block_size)
    items.append(Item(b"many", stat.S_IFDIR))
    items += [Item(b"many/%04d-%s" % (n, b"n" * (n % 90))) for n in range(3000)]
    return items


@pytest.mark.parametrize("options", WRITTEN)
def test_unsquashfs_and_the_kernel_find_what_went_in(tmp_path: Path, options: str) -> None:
    items = items_for(21, options)
    image = write_image(tmp_path / "image", items, options)
    expected = facts_of_items(items)
    # unsquashfs gives up on names in no encoding only where it prints them.
    run("unsquashfs", "-quiet", "-no-progress", "-dest", tmp_path / "out", image)
    assert facts_of_folder(tmp_path / "out") == expected
    with mounted(image, tmp_path / "mnt") as folder:
        assert facts_of_folder(folder) == expected
    listed = run("unsquashfs", "-stat", image)
    assert f"Block size {parse_squash_options(options).block_size}\n" in listed


def test_squashfuse_finds_what_went_in(tmp_path: Path) -> None:
    items = [
        # Names in no encoding and FUSE's device numbers are other tests' affair.
        item
        for item in items_for(22, "")
        if item.kind not in (stat.S_IFCHR, stat.S_IFBLK)
    ]
    image = write_image(tmp_path / "image", items)
    with mounted_by_fuse(image, tmp_path / "mnt") as folder:
        found = facts_of_folder(folder, xattrs=False)
    assert without(found, names=True) == without(facts_of_items(items), names=True, xattrs=True)


def test_compressor_options_are_understood_by_unsquashfs(tmp_path: Path) -> None:
    said = {
        "-comp zstd -Xcompression-level 3": "compression-level 3",
        "-comp gzip -Xcompression-level 4 -Xwindow-size 9": "window-size 9",
        "-comp xz -Xbcj arm": "arm",
        "-comp lz4 -Xhc": "High Compression",
    }
    for options, words in said.items():
        image = write_image(tmp_path / "image", [Item(b"f", content=b"f")], options)
        assert words in run("unsquashfs", "-stat", image)


def test_export_table_serves_the_kernel(tmp_path: Path) -> None:
    # A file handle is what NFS would use: the kernel finds the inode by number in the table.
    items = [Item(b"d", stat.S_IFDIR)]
    items += [Item(b"d/%d" % number, content=b"%d" % number) for number in range(3000)]
    image = write_image(tmp_path / "image", items)
    with mounted(image, tmp_path / "mnt") as folder:
        inodes = {os.stat(folder / "d" / str(number)).st_ino for number in range(3000)}
        assert len(inodes) == 3000
    assert "exportable via NFS" in run("unsquashfs", "-stat", image)


@pytest.mark.parametrize("seed", range(3))
def test_random_trees_through_unsquashfs(tmp_path: Path, seed: int) -> None:
    items = random_items(100 + seed, count=400, block_size=8192)
    image = write_image(tmp_path / "image", items, "-comp zstd -b 8K -tailends", processors=4)
    run("unsquashfs", "-quiet", "-no-progress", "-dest", tmp_path / "out", image)
    assert facts_of_folder(tmp_path / "out") == facts_of_items(items)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(60))
def test_many_random_trees_through_unsquashfs_and_the_kernel(tmp_path: Path, seed: int) -> None:
    options = WRITTEN[seed % len(WRITTEN)]
    items = items_for(1000 + seed, options)
    image = write_image(tmp_path / "image", items, options, processors=1 + seed % 4)
    expected = facts_of_items(items)
    run("unsquashfs", "-quiet", "-no-progress", "-dest", tmp_path / "out", image)
    assert facts_of_folder(tmp_path / "out") == expected
    with mounted(image, tmp_path / "mnt") as folder:
        assert facts_of_folder(folder) == expected
    assert facts_of_image(image) == expected


MADE = [
    "-comp lzo -noD",  # the default of the original
    "-comp lzo -Xalgorithm lzo1x_1",
    "-comp gzip",
    "-comp xz -Xbcj x86,arm",
    "-comp lz4",
    "-comp lz4 -Xhc -b 1M",
    "-comp zstd -always-use-fragments",
    "-comp zstd -noI -noD -noF -noX -noId",
    "-comp zstd -no-fragments -no-xattrs -no-exports -b 4K",
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything, as root unpacks it."""
    folder = tmp_path_factory.mktemp("tree")
    image = write_image(folder / "image", items_for(23, ""), "-comp lz4")
    run("unsquashfs", "-quiet", "-no-progress", "-dest", folder / "tree", image)
    return folder / "tree"


@pytest.mark.parametrize("options", MADE)
def test_what_mksquashfs_writes_is_read(tmp_path: Path, tree: Path, options: str) -> None:
    image = tmp_path / "image"
    run("mksquashfs", tree, image, "-quiet", "-no-progress", *options.split())
    expected = facts_of_folder(tree, xattrs="-no-xattrs" not in options)
    assert facts_of_image(image) == expected
    out = tmp_path / "out"
    out.mkdir()
    with SquashfsImage(str(image)) as reader:
        reader.extract(str(out), processors=3)
    found = without(facts_of_folder(out, xattrs=False), names=True)
    devices = {b for b, fields in expected.items() if "device" in str(fields[0])}
    assert set(found) == set(expected) - devices
    for path, fields in found.items():
        assert fields[2:7] == expected[path][2:7], path


def test_large_image_is_smaller_than_the_original_makes_it(tmp_path: Path) -> None:
    source = Path("/usr/lib/python3")
    run("mksquashfs", source, tmp_path / "theirs", "-quiet", "-comp", "lzo", "-noD", "-all-root")
    with (
        open(tmp_path / "ours", "w+b", buffering=0) as file,
        SquashfsWriter(
            file,
            parse_squash_options("-comp zstd -Xcompression-level 1"),
            processors=2,
            mkfs_time=0,
        ) as writer,
    ):
        writer.finish(scan_directory(str(source), writer))
    ours, theirs = (tmp_path / "ours").stat().st_size, (tmp_path / "theirs").stat().st_size
    assert ours <= theirs


@pytest.mark.parametrize("size", [(1 << 32) - 1, (1 << 32) + 5])
def test_files_beyond_32_bits(tmp_path: Path, size: int) -> None:
    # Sparse on disk, dense in the image's inode: holes, blocks and a size of more than 32 bits.
    source = tmp_path / "source"
    source.mkdir()
    with open(source / "large", "wb") as file:
        for offset in (0, size // 2, size - 4):
            file.seek(offset)
            file.write(b"mark")
    with (
        open(tmp_path / "image", "w+b", buffering=0) as image,
        SquashfsWriter(image, parse_squash_options("-comp lz4"), processors=2, mkfs_time=0) as w,
    ):
        w.finish(scan_directory(str(source), w))
    with mounted(tmp_path / "image", tmp_path / "mnt") as folder:
        assert os.stat(folder / "large").st_size == size
        assert _marks(folder / "large") == [b"mark"] * 3
    out = tmp_path / "out"
    out.mkdir()
    with SquashfsImage(str(tmp_path / "image")) as reader:
        reader.extract(str(out), processors=2)
    status = os.stat(out / "large")
    assert (status.st_size, status.st_blocks * 512 < 1 << 20) == (size, True)
    assert _marks(out / "large") == _marks(source / "large") == [b"mark"] * 3


def _marks(path: Path) -> list[bytes]:
    size = path.stat().st_size
    with open(path, "rb", buffering=0) as file:
        return [os.pread(file.fileno(), 4, at) for at in (0, size // 2, size - 4)]
