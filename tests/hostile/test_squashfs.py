"""Images made to mislead or broken on the way: refused, or read without harm (threats row 55)."""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path
from struct import pack, pack_into, unpack_from

import pytest

from enroot_py.errors import EnrootError, LimitError, SquashfsError
from enroot_py.layers.entry import Node, new_directory
from enroot_py.squashfs import format as layout
from enroot_py.squashfs.options import parse_squash_options
from enroot_py.squashfs.reader import SquashfsImage
from enroot_py.squashfs.superblock import read_superblock
from enroot_py.squashfs.writer import SquashfsWriter
from tests.squashfs.trees import Item, Source, random_items, read_all, write_image

PLAIN = "-comp zstd -noI -noX -no-exports -b 4K"
"""Tables that a test can find its way in: one uncompressed metadata block each."""


def read_everything(path: Path, *, max_entries: int = 0) -> int:
    """Read all of an image; returns the number of its entries."""
    with SquashfsImage(str(path), max_entries=max_entries) as image:
        count = 0
        for _, node in image.walk():
            count += 1
            if node.size < 1 << 24:
                read_all(image, node)
        return count


def extract(path: Path, folder: Path, *, processors: int = 1) -> None:
    folder.mkdir()
    with SquashfsImage(str(path)) as image:
        image.extract(str(folder), processors=processors)


def write_tree(path: Path, children: dict[bytes, Node]) -> Path:
    """Write an image of nodes, whatever they are called."""
    root = new_directory()
    root.children = children
    with (
        open(path, "w+b", buffering=0) as file,
        SquashfsWriter(file, parse_squash_options(PLAIN), processors=1, mkfs_time=0) as writer,
    ):
        for node in children.values():
            if node.size:
                node.content = writer.add(Source(b"x" * node.size), node.size)
        writer.finish(root)
    return path


def regular(size: int = 0) -> Node:
    node = Node(stat.S_IFREG, 0o644)
    node.size = size
    return node


def patch_inode(path: Path, name: str, offset: int, form: str, value: int) -> None:
    """Change a field of the inode of a file at the root of a PLAIN image."""
    superblock = read_superblock(str(path))
    data = bytearray(path.read_bytes())
    table = superblock.directory_table + 2
    at = data.index(name.encode(), table) - layout.DIRECTORY_ENTRY.size
    inode = superblock.inode_table + 2 + unpack_from("<H", data, at)[0]
    pack_into(form, data, inode + offset, value)
    path.write_bytes(data)


def patch_entry(path: Path, name: str, offset: int, form: str, value: int) -> None:
    """Change a field of the directory entry of `name` in a PLAIN image."""
    data = bytearray(path.read_bytes())
    table = read_superblock(str(path)).directory_table + 2
    at = data.index(name.encode(), table) - layout.DIRECTORY_ENTRY.size
    pack_into(form, data, at + offset, value)
    path.write_bytes(data)


@pytest.mark.parametrize(
    "name", [b"..", b".", b"../escape", b"a/b", b"/etc", b"nul\0byte", b"\0"], ids=repr
)
@pytest.mark.parametrize("processors", [1, 2])
def test_name_that_is_no_name_is_refused(tmp_path: Path, name: bytes, processors: int) -> None:
    image = write_tree(tmp_path / "image", {b"good": regular(5), name: regular(5)})
    with pytest.raises(SquashfsError, match="cannot be a file's name"):
        extract(image, tmp_path / "out", processors=processors)
    # Nothing is written before everything has been looked at.
    assert os.listdir(tmp_path / "out") == []
    assert sorted(os.listdir(tmp_path)) == ["image", "out"]


def test_directory_named_like_its_parent_is_refused(tmp_path: Path) -> None:
    inner = new_directory()
    inner.children = {b"file": regular(3)}
    image = write_tree(tmp_path / "image", {b"..": inner})
    with pytest.raises(SquashfsError, match="cannot be a file's name"):
        extract(image, tmp_path / "out")
    assert not (tmp_path / "file").exists()


def test_name_in_control_characters_is_escaped_in_the_message(tmp_path: Path) -> None:
    image = write_tree(tmp_path / "image", {b"\x1b[31m/\n": regular()})
    with pytest.raises(SquashfsError) as caught:
        read_everything(image)
    assert "\\x1b[31m/\\n" in str(caught.value)


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    # The classic: a link that leads out, then a file of the same name that is written through it.
    link = Node(stat.S_IFLNK, 0o777)
    link.target = os.fsencode(tmp_path / "victim")
    image = write_tree(tmp_path / "image", {b"same": link, b"samf": regular(5)})
    image.write_bytes(image.read_bytes().replace(b"samf", b"same"))
    with pytest.raises(SquashfsError, match="two files of one directory are named same"):
        extract(image, tmp_path / "out")
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("processors", [1, 3])
def test_links_that_lead_out_are_never_followed(tmp_path: Path, processors: int) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    (victim / "file").write_bytes(b"precious")
    before = os.stat(victim / "file")
    target = os.fsencode(victim)
    items = [
        Item(b"absolute", stat.S_IFLNK, target=target),
        Item(b"relative", stat.S_IFLNK, target=b"../victim"),
        Item(b"to-file", stat.S_IFLNK, target=target + b"/file", mode=0o7777, mtime=1),
        Item(b"second", link=b"to-file"),
        Item(b"d", stat.S_IFDIR),
        Item(b"d/absolute", content=b"not through the link of this name above"),
        Item(b"loop", stat.S_IFLNK, target=b"loop"),
    ]
    image = write_image(tmp_path / "image", items)
    extract(image, tmp_path / "out", processors=processors)
    assert os.readlink(tmp_path / "out/absolute") == os.fsdecode(target)
    assert os.readlink(tmp_path / "out/second") == str(victim / "file")
    after = os.stat(victim / "file")
    assert (after.st_mode, after.st_mtime_ns, after.st_nlink) == (
        before.st_mode,
        before.st_mtime_ns,
        1,
    )
    assert os.listdir(victim) == ["file"]
    assert stat.S_IMODE(os.stat(victim).st_mode) == 0o700


def test_directory_within_itself_is_refused(tmp_path: Path) -> None:
    items = [Item(b"sub", stat.S_IFDIR), Item(b"other", stat.S_IFDIR)]
    image = write_image(tmp_path / "image", items, PLAIN)
    root_offset = read_superblock(str(image)).root_inode & 0xFFFF
    patch_entry(image, "sub", 0, "<H", root_offset)
    with pytest.raises(SquashfsError, match="in two places, or in itself"):
        read_everything(image)


def test_directory_in_two_places_is_refused(tmp_path: Path) -> None:
    items = [Item(b"sub", stat.S_IFDIR), Item(b"two", stat.S_IFDIR)]
    image = write_image(tmp_path / "image", items, PLAIN)
    data = image.read_bytes()
    table = read_superblock(str(image)).directory_table + 2
    at = data.index(b"sub", table) - layout.DIRECTORY_ENTRY.size
    patch_entry(image, "two", 0, "<H", unpack_from("<H", data, at)[0])
    with pytest.raises(SquashfsError, match="in two places"):
        read_everything(image)


def test_directories_that_share_a_listing_are_refused(tmp_path: Path) -> None:
    # Each of 1,500 directories claims the same listing of 600 files: 900,000 nodes of 20 KiB.
    items = [Item(b"many", stat.S_IFDIR)]
    items += [Item(b"many/%03d" % number) for number in range(600)]
    items += [Item(b"d%04d" % number, stat.S_IFDIR) for number in range(1500)]
    image = write_image(tmp_path / "image", items, "-comp zstd -noI -no-exports")
    superblock = read_superblock(str(image))
    data = bytearray(image.read_bytes())
    pack_into("<I", data, 4, 1 << 30)
    # Directories come last in an uncompressed table of blocks with a header of two bytes each.
    sizes = {}
    position = superblock.inode_table
    table = bytearray()
    places = []
    while position < superblock.directory_table:
        size = unpack_from("<H", data, position)[0] & 0x7FFF
        places += range(position + 2, position + 2 + size)
        table += data[position + 2 : position + 2 + size]
        position += 2 + size
    at = 0
    while unpack_from("<H", table, at)[0] in (layout.DIRECTORY, layout.FILE):
        if unpack_from("<H", table, at)[0] == layout.FILE:
            at += layout.FILE_INODE.size
            continue
        sizes[at] = layout.DIRECTORY_INODE.unpack_from(table, at)[8]
        at += layout.DIRECTORY_INODE.size
    listing = max(sizes.values())
    claims = [at for at, size in sizes.items() if size == layout.DIRECTORY_SIZE_BIAS]
    assert (listing > 6000, len(claims)) == (True, 1500)
    for at in claims:
        fields = layout.DIRECTORY_INODE.unpack_from(table, at)
        record = layout.DIRECTORY_INODE.pack(*fields[:6], 0, 2, listing, 0, fields[10])
        for index, byte in enumerate(record):
            data[places[at + index]] = byte
    image.write_bytes(data)
    with pytest.raises(SquashfsError, match="share their listings"):
        read_everything(image)


FILE_FIELDS = layout.INODE_HEADER.size
# Where the fields of a basic file inode are: first block, fragment, offset in it, size.


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (4, 500, "index beyond a table"),
        (4, 0xFFFFFFFE, "index beyond a table"),
        (8, 0xFFFFFFFF, "beyond its fragment"),
        (8, 4000, "beyond its fragment"),
        (8, 3990, "beyond its fragment"),
        (12, 4095, "beyond its fragment"),
        (12, 0xFFFFFFFF, "Damaged|Truncated"),
        (4, layout.NO_FRAGMENT, "Damaged|Truncated"),
    ],
)
def test_small_file_with_impossible_place(
    tmp_path: Path, offset: int, value: int, message: str
) -> None:
    items = [Item(b"small", content=b"s" * 100), Item(b"other", content=b"o" * 50)]
    image = write_image(tmp_path / "image", items, PLAIN)
    patch_inode(image, "small", FILE_FIELDS + offset, "<I", value)
    with pytest.raises(SquashfsError, match=message):
        extract(image, tmp_path / "out")


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (0, 0xFFFFFFF0),  # first block beyond the image
        (0, 0),  # first block in the superblock
        (16, 1 << 23),  # a block longer than a block
        (16, (1 << 24) | 5),  # an uncompressed block that is too short
        (12, 1 << 31),  # more blocks than there is inode table
    ],
)
def test_large_file_with_impossible_blocks(tmp_path: Path, offset: int, value: int) -> None:
    items = [Item(b"large", content=bytes(range(256)) * 64)]
    image = write_image(tmp_path / "image", items, PLAIN)
    patch_inode(image, "large", FILE_FIELDS + offset, "<I", value)
    with pytest.raises(SquashfsError):
        extract(image, tmp_path / "out")


def test_file_of_impossible_size(tmp_path: Path) -> None:
    items = [Item(b"large", content=bytes(4096) + b"x" * 4096)]  # a hole: an extended inode
    image = write_image(tmp_path / "image", items, PLAIN)
    patch_inode(image, "large", FILE_FIELDS + 8, "<Q", 1 << 62)
    with pytest.raises(SquashfsError, match="is too large"):
        read_everything(image)


def test_more_inodes_than_declared(tmp_path: Path) -> None:
    items = [Item(b"f%d" % number) for number in range(10)]
    image = write_image(tmp_path / "image", items)
    data = bytearray(image.read_bytes())
    pack_into("<I", data, 4, 5)
    image.write_bytes(data)
    with pytest.raises(SquashfsError, match="more inodes than it declares"):
        read_everything(image)


def test_more_entries_than_allowed(tmp_path: Path) -> None:
    items = [Item(b"f%d" % number) for number in range(10)]
    image = write_image(tmp_path / "image", items)
    assert read_everything(image, max_entries=10) == 10
    with pytest.raises(LimitError, match="More than 9 entries") as caught:
        read_everything(image, max_entries=9)
    assert "ENROOT_MAX_IMAGE_ENTRIES" in caught.value.hint


def test_entry_and_inode_that_disagree(tmp_path: Path) -> None:
    items = [Item(b"file"), Item(b"link", stat.S_IFLNK, target=b"file")]
    image = write_image(tmp_path / "image", items, PLAIN)
    patch_entry(image, "link", 4, "<H", layout.FILE)
    with pytest.raises(SquashfsError, match="disagree"):
        read_everything(image)


def test_unknown_kind_of_inode(tmp_path: Path) -> None:
    image = write_image(tmp_path / "image", [Item(b"file")], PLAIN)
    for kind in (0, 15, 0xFFFF):
        patch_inode(image, "file", 0, "<H", kind)
        with pytest.raises(SquashfsError, match=f"of type {kind}"):
            read_everything(image)


def test_root_that_is_no_directory(tmp_path: Path) -> None:
    image = write_image(tmp_path / "image", [Item(b"file")], PLAIN)
    data = bytearray(image.read_bytes())
    pack_into("<Q", data, 32, 0)  # the file's inode comes first
    image.write_bytes(data)
    with pytest.raises(SquashfsError, match="root is not a directory"):
        read_everything(image)


def test_link_with_impossible_target(tmp_path: Path) -> None:
    items = [Item(b"link", stat.S_IFLNK, target=b"target"), Item(b"zero")]
    image = write_image(tmp_path / "image", items, PLAIN)
    for size in (0, 5000, 0xFFFFFFFF):
        patch_inode(image, "link", FILE_FIELDS + 4, "<I", size)
        with pytest.raises(SquashfsError, match="impossible size"):
            read_everything(image)
    patch_inode(image, "link", FILE_FIELDS + 4, "<I", 6)
    image.write_bytes(image.read_bytes().replace(b"target", b"ta\0get"))
    with pytest.raises(SquashfsError, match="zero byte"):
        read_everything(image)


def test_owner_beyond_the_table(tmp_path: Path) -> None:
    image = write_image(tmp_path / "image", [Item(b"file")], PLAIN)
    patch_inode(image, "file", 4, "<H", 9)
    with pytest.raises(SquashfsError, match="index beyond a table"):
        read_everything(image)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pack("<HH", 0, 4) + b"note", pack("<HH", 7, 4) + b"note"),  # unknown namespace
        (pack("<HH", 0, 4) + b"note", pack("<HH", 0, 4) + b"no\0e"),
        (pack("<HH", 0, 4) + b"note", pack("<HH", 0, 60000) + b"note"),
        (pack("<I", 9) + b"the value", pack("<I", 0xFFFFFFF0) + b"the value"),
        (pack("<HH", 0, 4) + b"note", pack("<HH", 0x100, 4) + b"note"),  # a pointer of nine bytes
        (pack("<QII", 0, 1, 21), pack("<QII", 0, 500, 21)),  # more pairs than bytes
        (pack("<QII", 0, 1, 21), pack("<QII", 1 << 60, 1, 21)),
    ],
)
def test_damaged_attributes(tmp_path: Path, old: bytes, new: bytes) -> None:
    items = [Item(b"file", xattrs=((b"user.note", b"the value"),))]
    image = write_image(tmp_path / "image", items, PLAIN)
    data = image.read_bytes()
    assert data.count(old) == 1
    image.write_bytes(data.replace(old, new))
    with pytest.raises(SquashfsError):
        read_everything(image)


def test_attribute_set_beyond_the_table(tmp_path: Path) -> None:
    items = [Item(b"fifo", stat.S_IFIFO, xattrs=((b"user.note", b"the value"),))]
    image = write_image(tmp_path / "image", items, PLAIN)
    patch_inode(image, "fifo", FILE_FIELDS + 4, "<I", 1)
    with pytest.raises(SquashfsError, match="index beyond a table"):
        read_everything(image)


def test_attributes_without_a_table(tmp_path: Path) -> None:
    items = [Item(b"fifo", stat.S_IFIFO, xattrs=((b"user.note", b"the value"),))]
    image = write_image(tmp_path / "image", items, PLAIN)
    data = bytearray(image.read_bytes())
    pack_into("<Q", data, 56, 2**64 - 1)
    image.write_bytes(data)
    with pytest.raises(SquashfsError, match="extended attributes"):
        read_everything(image)


@pytest.mark.parametrize("size", [0, 0x8000, 8193, 0xFFFF])
def test_metadata_block_of_impossible_size(tmp_path: Path, size: int) -> None:
    image = write_image(tmp_path / "image", [Item(b"file")], PLAIN)
    data = bytearray(image.read_bytes())
    pack_into("<H", data, read_superblock(str(image)).inode_table, size)
    image.write_bytes(data)
    with pytest.raises(SquashfsError):
        read_everything(image)


def test_directory_header_that_counts_too_many(tmp_path: Path) -> None:
    image = write_image(tmp_path / "image", [Item(b"file")], PLAIN)
    data = bytearray(image.read_bytes())
    pack_into("<I", data, read_superblock(str(image)).directory_table + 2, 256)
    image.write_bytes(data)
    with pytest.raises(SquashfsError, match="counts too many"):
        read_everything(image)


@pytest.mark.parametrize("options", ["", PLAIN, "-comp xz", "-comp lzo -noD"])
def test_image_cut_anywhere_is_refused(tmp_path: Path, options: str) -> None:
    image = write_image(tmp_path / "image", random_items(5, count=60), options)
    data = image.read_bytes()
    used = read_superblock(str(image)).bytes_used
    for size in [*range(0, used, max(1, used // 40)), used - 1]:
        image.write_bytes(data[:size])
        with pytest.raises(SquashfsError):
            read_everything(image)


FLIPPED = ["", PLAIN, "-comp gzip", "-comp lz4 -noI", "-comp lzo"]


@pytest.mark.parametrize("options", FLIPPED)
def test_one_wrong_byte_never_does_worse_than_an_error(tmp_path: Path, options: str) -> None:
    assert flip_bytes(tmp_path / "image", options, seed=6, rounds=120) > 20


@pytest.mark.soak
@pytest.mark.parametrize("options", FLIPPED)
def test_thousands_of_wrong_bytes_never_do_worse_than_an_error(
    tmp_path: Path, options: str
) -> None:
    assert flip_bytes(tmp_path / "image", options, seed=7, rounds=4000) > 1000


def flip_bytes(image: Path, options: str, *, seed: int, rounds: int) -> int:
    """Read images with one wrong byte each; returns how many were refused."""
    write_image(image, random_items(seed, count=50, block_size=4096), options)
    original = image.read_bytes()
    superblock = read_superblock(str(image))
    rng = random.Random(seed)
    errors = 0
    for _ in range(rounds):
        data = bytearray(original)
        # The superblock and the tables are what a reader could stumble over.
        first = rng.choice([0, superblock.inode_table, superblock.directory_table])
        at = rng.randrange(first, 96 if first == 0 else superblock.bytes_used)
        data[at] ^= 1 << rng.randrange(8)
        image.write_bytes(data)
        try:
            read_everything(image, max_entries=10_000)
        except EnrootError:
            errors += 1
    return errors
