"""The superblock: what is accepted as an image, and what is refused at once."""

from __future__ import annotations

import os
from pathlib import Path
from struct import pack_into

import pytest

from enroot_py.errors import NotFoundError, SquashfsError
from enroot_py.squashfs.superblock import is_squashfs, parse_superblock, read_superblock
from tests.squashfs.trees import Item, write_image

NO_TABLE = 2**64 - 1


@pytest.fixture
def image(tmp_path: Path) -> Path:
    items = [Item(b"f", content=b"content", xattrs=((b"user.a", b"b"),))]
    return write_image(tmp_path / "image", items, mkfs_time=77)


def test_fields(image: Path) -> None:
    superblock = read_superblock(str(image))
    assert superblock.compressor == "zstd"
    assert superblock.block_size == 131072
    assert superblock.mkfs_time == 77
    assert superblock.inode_count == 2
    assert superblock.pack() == image.read_bytes()[:96]
    assert is_squashfs(str(image))


@pytest.mark.parametrize(
    ("offset", "layout", "value", "message"),
    [
        (0, "<4s", b"sqsh", "Not a squashfs image"),
        (4, "<I", 0, "root inode"),
        (12, "<I", 131073, "block size"),
        (12, "<I", 262144, "block size"),
        (20, "<H", 0, "compressor number 0"),
        (20, "<H", 7, "compressor number 7"),
        (22, "<H", 11, "block size"),
        (22, "<H", 70, "block size"),
        (26, "<H", 0, "id table"),
        (28, "<H", 3, "version 3.0"),
        (30, "<H", 1, "version 4.1"),
        (32, "<Q", 1 << 60, "root inode"),
        (32, "<Q", 9000, "root inode"),
        (40, "<Q", 1 << 40, "Truncated image"),
        (40, "<Q", 1 << 63, "size"),
        (40, "<Q", 20, "size"),
        (48, "<Q", NO_TABLE, "id table"),
        (48, "<Q", 10, "id table"),
        (56, "<Q", 1 << 50, "attribute table"),
        (64, "<Q", 3, "inode or directory table"),
        (64, "<Q", 1 << 50, "inode or directory table"),
        (72, "<Q", NO_TABLE, "inode or directory table"),
        (80, "<Q", NO_TABLE, "fragment table"),
        (80, "<Q", 8, "fragment table"),
    ],
)
def test_contradiction_is_named(
    image: Path, offset: int, layout: str, value: object, message: str
) -> None:
    data = bytearray(image.read_bytes())
    pack_into(layout, data, offset, value)
    image.write_bytes(data)
    with pytest.raises(SquashfsError, match=message):
        read_superblock(str(image))
    assert not is_squashfs(str(image))


@pytest.mark.parametrize("size", [0, 1, 95])
def test_short_file_is_no_image(tmp_path: Path, image: Path, size: int) -> None:
    path = tmp_path / "short"
    path.write_bytes(image.read_bytes()[:size])
    with pytest.raises(SquashfsError, match="Not a squashfs image"):
        read_superblock(str(path))


def test_cut_image_says_how_much_is_missing(image: Path) -> None:
    data = image.read_bytes()
    used = read_superblock(str(image)).bytes_used
    image.write_bytes(data[: used - 1])
    with pytest.raises(SquashfsError, match=f"{used - 1} bytes of {used}"):
        read_superblock(str(image))
    image.write_bytes(data[:used])  # only the padding is missing
    assert is_squashfs(str(image))


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")  # nobody will ever write to it
    for path in (tmp_path / "fifo", tmp_path):
        with pytest.raises(SquashfsError, match="Not a regular file"):
            read_superblock(str(path))
        assert not is_squashfs(str(path))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="No such file or directory"):
        read_superblock(str(tmp_path / "missing"))
    assert not is_squashfs(str(tmp_path / "missing"))


def test_every_compressor_number_of_the_format_has_a_name(image: Path) -> None:
    data = bytearray(image.read_bytes())
    names = []
    for number in range(1, 7):
        pack_into("<H", data, 20, number)
        names.append(parse_superblock(bytes(data), "image").compressor)
    assert names == ["gzip", "lzma", "lzo", "xz", "lz4", "zstd"]
