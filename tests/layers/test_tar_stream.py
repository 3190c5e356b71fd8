"""Archives of every form that layers have, read member by member."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from enroot_py import log
from enroot_py.errors import LayerError
from enroot_py.layers.entry import Node
from enroot_py.layers.tar_stream import TarStream
from tests.layers import archives
from tests.layers.archives import archive, file, header, long_name, padded, pax


class Chunks:
    """Gives an archive out in pieces of `size` bytes."""

    def __init__(self, data: bytes, size: int) -> None:
        self._file = io.BytesIO(data)
        self._size = size

    def read(self) -> bytes:
        return self._file.read(self._size)

    def close(self) -> None:
        pass


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    texts: list[str] = []
    log.set_sink(lambda level, text: texts.append(text))
    yield texts
    log.set_sink(None)


def read(data: bytes, chunk: int = 1 << 20) -> list[tuple[bytes, Node | bytes, bytes]]:
    """Names, nodes (or link targets) and contents (without holes) of an archive's members."""
    stream = TarStream(Chunks(data, chunk), "layer")
    return [(name, what, stream.take(stored)) for name, what, stored in stream.members()]


def one(data: bytes) -> Node:
    ((_, what, _),) = read(data)
    assert isinstance(what, Node)
    return what


def names(data: bytes) -> list[bytes]:
    return [name for name, _, _ in read(data)]


@pytest.mark.parametrize("chunk", [1, 7, 511, 512, 513, 1 << 20])
def test_pieces_of_any_size_give_the_same(chunk: int) -> None:
    data = archive(
        long_name(b"x" * 300), file(b"short", b"a" * 1000), file(b"b", b"2"), file(b"c"), file(b"d")
    )
    found = [(name, content) for name, _, content in read(data, chunk)]
    assert found == [(b"x" * 300, b"a" * 1000), (b"b", b"2"), (b"c", b""), (b"d", b"")]


@pytest.mark.parametrize("chunk", [1, 512, 700, 1 << 20])
def test_content_that_is_not_taken_is_skipped(chunk: int) -> None:
    data = archive(file(b"a", b"a" * 1500), file(b"b", b"b" * 512), file(b"c"))
    stream = TarStream(Chunks(data, chunk), "layer")
    assert [name for name, _, _ in stream.members()] == [b"a", b"b", b"c"]


def test_every_field_of_a_header() -> None:
    node = one(archive(file(b"f", b"x", mode=0o104755, uid=b"0001750\0", gid=b" 144 \0", mtime=99)))
    assert (node.kind, node.mode, node.uid, node.gid) == (stat.S_IFREG, 0o4755, 1000, 100)
    assert (node.mtime, node.size, node.xattrs) == (99, 1, None)


@pytest.mark.parametrize(
    ("flag", "kind"),
    [
        (b"0", stat.S_IFREG),
        (b"\0", stat.S_IFREG),
        (b"7", stat.S_IFREG),
        (b"3", stat.S_IFCHR),
        (b"4", stat.S_IFBLK),
        (b"5", stat.S_IFDIR),
        (b"6", stat.S_IFIFO),
        (b"D", stat.S_IFDIR),
    ],
)
def test_types(flag: bytes, kind: int) -> None:
    assert one(archive(header(b"n", kind=flag))).kind == kind


def test_names_of_every_form() -> None:
    data = archive(
        file(b"n" * 100),
        header(b"name", prefix=b"p" * 155),
        header(b"name", prefix=b"p" * 140, patch=(508, b"tar\0")),
        header(b"old", magic=b"\0" * 8, prefix=b"garbage"),
        header(b"gnu", magic=b"ustar  \0", prefix=b"14000000000"),
        long_name(b"l" * 200) + file(b"l" * 100),
        pax((b"path", b"p" * 300)) + file(b"p" * 100),
        long_name(b"same") + pax((b"path", b"same")) + file(b"other"),
    )
    assert names(data) == [
        b"n" * 100,
        b"p" * 155 + b"/name",
        b"p" * 131 + b"/name",
        b"old",
        b"gnu",
        b"l" * 200,
        b"p" * 300,
        b"same",
    ]


def test_links_of_every_form() -> None:
    data = archive(
        archives.symlink(b"s", b"t" * 100),
        long_name(b"t" * 200, b"K") + archives.symlink(b"s", b"x"),
        pax((b"linkpath", b"t" * 300)) + archives.symlink(b"s", b"x"),
        archives.hard_link(b"h", b"dir/file"),
        pax((b"linkpath", b"h" * 300)) + archives.hard_link(b"h", b"x"),
    )
    found = [what if isinstance(what, bytes) else what.target for _, what, _ in read(data)]
    assert found == [b"t" * 100, b"t" * 200, b"t" * 300, b"dir/file", b"h" * 300]


def test_a_volume_label_and_an_old_directory() -> None:
    data = archive(header(b"label", 3, b"V"), padded(b"abc"), header(b"d/", kind=b"\0"))
    assert one(data).kind == stat.S_IFDIR


@pytest.mark.parametrize("flag", [b"1", b"2", b"5", b"6", b"3"])
def test_only_files_have_content(flag: bytes) -> None:
    """A size in any other header counts for nothing, in every reader of layers alike."""
    data = archive(header(b"n", 5000, flag, link=b"x"), file(b"next"))
    assert names(data) == [b"n", b"next"]


def test_pax_wins_over_the_header() -> None:
    records = ((b"path", b"p"), (b"size", b"3"), (b"uid", b"4000000000"), (b"gid", b"7"))
    node = one(archive(pax(*records, (b"mtime", b"1.9")), file(b"h", b"abc", size_field=b"0" * 12)))
    assert (node.size, node.uid, node.gid, node.mtime) == (3, 4_000_000_000, 7, 1)


def test_a_pax_header_is_for_one_member() -> None:
    data = archive(pax((b"path", b"p"), (b"mtime", b"5")), file(b"a"), file(b"b"))
    assert names(data) == [b"p", b"b"]
    assert [node.mtime for _, node, _ in read(data) if isinstance(node, Node)] == [5, 0]


def test_a_global_header_is_for_all_that_do_not_differ() -> None:
    data = archive(
        pax((b"mtime", b"7"), (b"comment", b"x"), kind=b"g"),
        file(b"a"),
        pax((b"mtime", b"8")) + file(b"b"),
        pax((b"mtime", b"")) + file(b"c", mtime=9),
        file(b"d"),
    )
    assert [node.mtime for _, node, _ in read(data) if isinstance(node, Node)] == [7, 8, 9, 7]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"0", 0), (b"1.999999999", 1), (b"-1", -1), (b"-1.5", -2), (b"-1.000", -1), (b"5.", 5)],
)
def test_pax_times_are_rounded_down(value: bytes, seconds: int) -> None:
    assert one(archive(pax((b"mtime", value)), file(b"a"))).mtime == seconds


def test_numbers_in_binary() -> None:
    big = b"\x80" + (9 << 30).to_bytes(11, "big")
    data = archive(
        header(b"a", kind=b"5", mtime=b"\xff" * 12, uid=b"\x80\0\0\0\xff\xff\xff\xfe"),
        pax((b"size", b"1")) + header(b"b", size_field=big) + padded(b"x"),
    )
    (_, a, _), (_, b, _) = read(data)
    assert isinstance(a, Node)
    assert isinstance(b, Node)
    assert (a.mtime, a.uid, b.size) == (-1, 2**32 - 2, 1)
    stream = TarStream(Chunks(header(b"big", size_field=big), 512), "layer")
    assert next(stream.members())[2] == 9 << 30


def test_extended_attributes() -> None:
    records = (
        (b"SCHILY.xattr.user.a", b"\0binary\n=\xff"),
        (b"SCHILY.xattr.security.capability", b"\1\0\0\2"),
        (b"LIBARCHIVE.xattr.user.b%20c", b"aGVsbG8"),
        (b"LIBARCHIVE.xattr.user.a", b"b3RoZXI="),
        (b"SCHILY.xattr.user.overlay.opaque", b"y"),
        (b"SCHILY.xattr.trusted.overlay.whiteout", b"y"),
        (b"SCHILY.xattr.user.fuseoverlayfs.opaque", b"y"),
        (b"LIBARCHIVE.xattr.trusted.overlay.opaque", b"eQ=="),
    )
    assert one(archive(pax(*records), file(b"a"))).xattrs == {
        b"user.a": b"\0binary\n=\xff",
        b"security.capability": b"\1\0\0\2",
        b"user.b c": b"hello",
    }


SPARSE_MAP = ((0, 3), (1000, 2), (4094, 2))
SPARSE_DATA = b"abcdefg"
OLD_MAP = b"".join(b"%011o\0%011o\0" % extent for extent in SPARSE_MAP)


def sparse_old(extents: bytes = OLD_MAP, size: int = 5000) -> bytes:
    """An old GNU sparse file; more than four extents go to extension blocks."""
    first, rest = extents[:96], extents[96:]
    patch = first.ljust(96, b"\0") + (b"\1" if rest else b"\0") + b"%011o\0" % size
    blocks = [header(b"s", len(SPARSE_DATA), b"S", magic=b"ustar  \0", patch=(386, patch))]
    while rest:
        block, rest = rest[: 21 * 24], rest[21 * 24 :]
        blocks.append(padded(block.ljust(504, b"\0") + (b"\1" if rest else b"\0")))
    return b"".join(blocks) + padded(SPARSE_DATA)


def sparse_0_0() -> bytes:
    records = [(b"GNU.sparse.size", b"5000"), (b"GNU.sparse.numblocks", b"3")]
    for offset, length in SPARSE_MAP:
        records += [
            (b"GNU.sparse.offset", b"%d" % offset),
            (b"GNU.sparse.numbytes", b"%d" % length),
        ]
    return pax(*records) + file(b"s", SPARSE_DATA)


def sparse_0_1() -> bytes:
    numbers = b",".join(b"%d,%d" % extent for extent in SPARSE_MAP)
    records = ((b"GNU.sparse.size", b"5000"), (b"GNU.sparse.name", b"s"))
    return pax(*records, (b"GNU.sparse.map", numbers)) + file(b"GNUSparseFile.1/s", SPARSE_DATA)


def sparse_1_0(table: bytes = b"3\n0\n3\n1000\n2\n4094\n2\n") -> bytes:
    records = ((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"))
    names_and_sizes = ((b"GNU.sparse.name", b"s"), (b"GNU.sparse.realsize", b"5000"))
    data = padded(table) + SPARSE_DATA
    return pax(*records, *names_and_sizes) + file(b"GNUSparseFile.1/s", data)


@pytest.mark.parametrize("make", [sparse_old, sparse_0_0, sparse_0_1, sparse_1_0])
@pytest.mark.parametrize("chunk", [100, 1 << 20])
def test_sparse_files(make: object, chunk: int) -> None:
    data = archive(make(), file(b"next", b"n"))  # type: ignore[operator]
    stream = TarStream(Chunks(data, chunk), "layer")
    members = stream.members()
    name, node, stored = next(members)
    assert isinstance(node, Node)
    assert (name, node.size, stored, stream.extents) == (b"s", 5000, 7, list(SPARSE_MAP))
    assert stream.take(stored) == SPARSE_DATA
    assert next(members)[0] == b"next"
    assert stream.extents is None
    assert stream.take(1) == b"n"


def test_a_sparse_map_that_goes_on_in_further_blocks() -> None:
    extents = [(100 * number, 1) for number in range(7)]
    table = b"".join(b"%011o\0%011o\0" % extent for extent in extents)
    stream = TarStream(Chunks(archive(sparse_old(table)), 1 << 20), "layer")
    next(stream.members())
    assert stream.extents == extents
    many = [(100 * number, 0) for number in range(100)]
    table = b"".join(b"%011o\0%011o\0" % extent for extent in [*many, (20000, 7)])
    stream = TarStream(Chunks(archive(sparse_old(table, 30000)), 1 << 20), "layer")
    next(stream.members())
    assert stream.extents == [(20000, 7)]
    table = b"200\n" + b"".join(b"%d\n0\n" % (20 * number) for number in range(199)) + b"4900\n7\n"
    stream = TarStream(Chunks(archive(sparse_1_0(table)), 1 << 20), "layer")
    next(stream.members())
    assert stream.extents == [(4900, 7)]


@pytest.mark.parametrize(
    "member",
    [
        sparse_old(b"%011o\0%011o\0" % (0, 8)),
        sparse_old(b"%011o\0%011o\0" % (0, 6)),
        sparse_old(b"%011o\0%011o\0" % (4999, 7)),
        sparse_old(b"%011o\0%011o\0" % (10, 4) + b"%011o\0%011o\0" % (0, 3)),
        sparse_old(b"%011o\0%011o\0" % (0, 4) + b"%011o\0%011o\0" % (3, 3)),
        sparse_old(b"\xff" * 24),
        sparse_1_0(b"2\n0\n"),
        sparse_1_0(b"x\n"),
        sparse_1_0(b"-1\n"),
        sparse_1_0(b"99999999\n"),
        sparse_1_0(b"1" * 2000),
        pax((b"GNU.sparse.map", b"0,1,2"), (b"GNU.sparse.size", b"9")) + file(b"s", b"x"),
        pax((b"GNU.sparse.map", b"0,1")) + file(b"s", b"x"),
        pax((b"GNU.sparse.numbytes", b"1"), (b"GNU.sparse.size", b"9")) + file(b"s", b"x"),
        pax((b"GNU.sparse.major", b"2"), (b"GNU.sparse.realsize", b"9")) + file(b"s", b"x"),
    ],
)
def test_a_sparse_map_that_makes_no_sense_is_refused(member: bytes) -> None:
    with pytest.raises(LayerError):
        read(archive(member, file(b"next")))


def test_a_sparse_map_without_end_is_refused() -> None:
    table = b"%d\n" % ((1 << 20) + 1) + b"0\n0\n" * ((1 << 20) + 1)
    with pytest.raises(LayerError, match="1048577 extents"):
        read(archive(sparse_1_0(table)))


OVERFLOW = b"\x80" + b"\xff" * 11


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (file(b"a").replace(b"ustar", b"ustax"), "checksum"),
        (b"x" * 512, "checksum"),
        (header(b"a", kind=b"Q"), "unknown type"),
        (header(b"a", kind=b"M"), "unknown type"),
        (header(b"a", size_field=b"\xff" * 12), "size is negative"),
        (header(b"a", size_field=OVERFLOW), "out of range"),
        (header(b"a", size_field=b"0000000000x\0"), "malformed"),
        (header(b"a", size_field=b"00000000009\0"), "malformed"),
        (header(b"a", size_field=b"0o777\0"), "malformed"),
        (header(b"a", size_field=b"-1\0"), "malformed"),
        (header(b"a", size_field=b"\x81" + b"\0" * 11), "malformed"),
        (header(b"a", mtime=OVERFLOW), "out of range"),
        (header(b"a", mtime=b"0000000008 \0"), "malformed"),
        (header(b"a", uid=b"\xff" * 8), "id is out of range"),
        (header(b"a", gid=b"\x80\0\0\1\0\0\0\0"), "id is out of range"),
        (header(b"a", uid=b"1_0\0"), "malformed"),
        (pax((b"uid", b"-1")) + file(b"a"), "id is out of range"),
        (pax((b"uid", b"4294967296")) + file(b"a"), "id is out of range"),
        (pax((b"size", b"-1")) + file(b"a"), "negative"),
        (pax((b"size", b"1e3")) + file(b"a"), "malformed"),
        (pax((b"size", b"9" * 19)) + file(b"a"), "out of range"),
        (pax((b"size", b"9" * 20)) + file(b"a"), "malformed"),
        (pax((b"mtime", b"1.x")) + file(b"a"), "malformed"),
        (pax((b"mtime", b"")) + pax((b"mtime", b"x")) + file(b"a"), "malformed"),
        (pax((b"path", b"a\0b")) + file(b"a"), "zero byte"),
        (pax((b"linkpath", b"a\0b")) + archives.symlink(b"a", b"b"), "zero byte"),
        (long_name(b"a") + pax((b"path", b"b")) + file(b"c"), "two names"),
        (long_name(b"a", b"K") + pax((b"linkpath", b"b")) + archives.symlink(b"c", b"d"), "two"),
        (pax((b"path", b"x"), kind=b"g"), "every member"),
        (pax((b"size", b"1"), kind=b"g"), "every member"),
        (pax((b"SCHILY.xattr.", b"x")) + file(b"a"), "attribute"),
        (pax((b"SCHILY.xattr.plain", b"x")) + file(b"a"), "attribute"),
        (pax((b"SCHILY.xattr.user." + b"x" * 300, b"x")) + file(b"a"), "attribute"),
        (pax((b"LIBARCHIVE.xattr.user.x%00", b"eA==")) + file(b"a"), "attribute"),
        (pax((b"LIBARCHIVE.xattr.user.x", b"eA=x=A")) + file(b"a"), "attribute"),
        (header(b"p", 6, b"x") + padded(b"7 a=b\n") + file(b"a"), "PAX record"),
        (header(b"p", 6, b"x") + padded(b"6 a=bc") + file(b"a"), "PAX record"),
        (header(b"p", 6, b"x") + padded(b"6 abc\n") + file(b"a"), "PAX record"),
        (header(b"p", 5, b"x") + padded(b"5 =b\n") + file(b"a"), "PAX record"),
        (header(b"p", 6, b"x") + padded(b"-6 a=b\n") + file(b"a"), "PAX record"),
        (header(b"p", 6, b"x") + padded(b"0 a=b\n") + file(b"a"), "PAX record"),
        (header(b"p", 2 << 20, b"x"), "extended header"),
        (header(b"p", 2 << 20, b"L"), "extended header"),
        (archives.symlink(b"a", b""), "target"),
        (pax((b"linkpath", b"x" * 4096)) + archives.symlink(b"a", b"b"), "target"),
        (bytes(512) + file(b"a"), "single block of zeros"),
    ],
)
def test_malformed_members_are_refused_with_their_place(members: bytes, message: str) -> None:
    with pytest.raises(LayerError, match=message) as caught:
        read(archive(file(b"first"), members))
    assert str(caught.value).startswith("layer: ")
    assert "\n" not in str(caught.value)
    assert "(member at byte " in str(caught.value)


def test_signed_checksums_of_old_programs() -> None:
    block = bytearray(header("é".encode()))
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(byte - 256 if byte > 127 else byte for byte in block)
    assert names(archive(bytes(block))) == ["é".encode()]


@pytest.mark.parametrize("cut", [1, 100, 511, 513, 700, 1024, 1511])
def test_truncated_archives_are_refused(cut: int) -> None:
    data = file(b"a", b"x" * 1000)
    with pytest.raises(LayerError, match="truncated"):
        read(data[:cut])


def test_truncated_extensions_are_refused() -> None:
    for whole in (pax((b"path", b"x")), long_name(b"x"), sparse_old(OLD_MAP * 2), sparse_1_0()):
        with pytest.raises(LayerError, match="truncated"):
            read(whole[: len(whole) - 600])


def test_ends_of_every_form(warnings: list[str]) -> None:
    member = file(b"a", b"x")
    for end in (bytes(1024), bytes(512), bytes(10240), bytes(1000)):
        assert names(member + end) == [b"a"]
    assert warnings == []
    assert names(b"") == names(bytes(1024)) == []
    assert warnings == []
    assert names(member + bytes(1024) + b"junk") == [b"a"]
    assert names(member) == [b"a"]
    for cut in (1, 400, 511):  # as `umoci insert --opaque` leaves it
        assert names(member[:-cut]) == [b"a"]
    assert warnings == [
        "layer: ignored what follows the end of the archive",
        *["layer: the archive has no end mark"] * 4,
    ]


FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


@pytest.mark.parametrize("form", FORMATS)
def test_python_writes_what_we_read(form: int) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for number in range(50):
            info = tarfile.TarInfo("d" * 90 + "/" + "n" * (60 + number % 30) + str(number))
            info.size = number * 37
            info.mtime = number
            tar.addfile(info, io.BytesIO(bytes([number]) * info.size))
    found = read(buffer.getvalue(), 1000)
    assert len(found) == 50
    for number, (name, node, content) in enumerate(found):
        assert isinstance(node, Node)
        assert name.endswith(b"n%d" % number)
        assert (node.mtime, content) == (number, bytes([number]) * (number * 37))


GNU_TAR = [
    ("--format=gnu",),
    ("--format=gnu", "--sparse"),
    ("--format=pax", "--sparse", "--sparse-version=0.0"),
    ("--format=pax", "--sparse", "--sparse-version=0.1"),
    ("--format=pax", "--sparse", "--sparse-version=1.0"),
    ("--format=posix",),
    ("--format=oldgnu", "--sparse"),
]


@pytest.mark.parametrize("options", GNU_TAR, ids=" ".join)
def test_gnu_tar_writes_what_we_read(options: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    with open(folder / ("s" * 120), "wb") as sparse:
        for offset in range(0, 40 << 16, 2 << 16):
            sparse.seek(offset)
            sparse.write(b"data%d" % offset)
        sparse.truncate(50 << 16)
    os.symlink("t" * 150, folder / "link")
    expected = (folder / ("s" * 120)).read_bytes()
    command = ["tar", "-C", tmp_path, *options, "-cf", "-", folder.name]
    data = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    stream = TarStream(Chunks(data, 100_000), "layer")
    found = {}
    for name, node, stored in stream.members():
        assert isinstance(node, Node)
        content = bytearray(node.size)
        for offset, length in stream.extents or [(0, stored)]:
            content[offset : offset + length] = stream.take(length)
        found[name.rpartition(b"/")[2]] = bytes(content) or node.target
    assert found[b"s" * 120] == expected
    assert found[b"link"] == b"t" * 150
