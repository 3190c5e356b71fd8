"""Every compressor there and back, and every damaged block refused."""

from __future__ import annotations

import lzma
import random
import zlib
from struct import pack

import pytest
import zstandard

from enroot_py.errors import SquashfsError, UnsupportedError
from enroot_py.squashfs.compressors import (
    compressor_options,
    make_compressor,
    make_decompressor,
)
from enroot_py.squashfs.options import SquashfsOptions, parse_squash_options

NAMES = ["zstd", "gzip", "xz", "lz4", "lzo"]
SIZE = 131072
TEXT = b"".join(b"line %d of a text that can be compressed\n" % n for n in range(4000))[:SIZE]
NOISE = random.Random(1).randbytes(SIZE)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("data", [TEXT, NOISE, bytes(SIZE), b"x", TEXT[:8192]])
def test_block_comes_back(name: str, data: bytes) -> None:
    compress = make_compressor(parse_squash_options(f"-comp {name}"))
    packed = compress(data)
    assert make_decompressor(name)(packed, SIZE) == data
    assert make_decompressor(name)(packed, len(data)) == data
    assert compress(data) == packed


@pytest.mark.parametrize("name", NAMES)
def test_damaged_block_is_refused(name: str) -> None:
    packed = make_compressor(parse_squash_options(f"-comp {name}"))(TEXT)
    decompress = make_decompressor(name)
    for damaged in (b"", b"\xf0", packed[: len(packed) // 2], NOISE[:500], b"\xff" * 100):
        with pytest.raises(SquashfsError, match="Damaged image"):
            decompress(damaged, SIZE)


@pytest.mark.parametrize("name", NAMES)
def test_block_that_expands_too_far_is_refused(name: str) -> None:
    packed = make_compressor(parse_squash_options(f"-comp {name} -b 1M"))(bytes(1 << 20))
    with pytest.raises(SquashfsError, match="Damaged image"):
        make_decompressor(name)(packed, 8192)


def test_frame_that_declares_a_terabyte_allocates_nothing() -> None:
    # A frame header with an 8-byte content size, as zstd's format has it.
    frame = b"\x28\xb5\x2f\xfd" + b"\xe0" + pack("<Q", 1 << 40) + b"\x01\0\0"
    assert zstandard.frame_content_size(frame) == 1 << 40
    with pytest.raises(SquashfsError, match="larger than it may be"):
        make_decompressor("zstd")(frame, SIZE)


def test_frame_without_a_size_is_read() -> None:
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)
    assert make_decompressor("zstd")(packed, SIZE) == TEXT


def test_dictionary_beyond_the_format_is_refused() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 28}]
    packed = lzma.compress(TEXT, lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, filters=filters)
    with pytest.raises(SquashfsError, match="Damaged image"):
        make_decompressor("xz")(packed, SIZE)


@pytest.mark.parametrize("name", ["lzma", "number 9"])
def test_other_compressors_are_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedError, match=name):
        make_decompressor(name)
    with pytest.raises(UnsupportedError, match=name):
        make_compressor(SquashfsOptions(compressor=name))


@pytest.mark.parametrize(
    ("words", "record"),
    [
        ("-comp gzip", b""),
        ("-comp gzip -Xcompression-level 3", pack("<IHH", 3, 15, 0)),
        ("-comp gzip -Xstrategy filtered -Xwindow-size 9", pack("<IHH", 9, 9, 2)),
        ("-comp zstd", b""),
        ("-comp zstd -Xcompression-level 1", pack("<I", 1)),
        ("-comp xz", b""),
        ("-comp xz -Xbcj x86,sparc", pack("<II", SIZE, 0b100001)),
        ("-comp xz -Xdict-size 8K", pack("<II", 8192, 0)),
        ("-comp lz4", pack("<II", 1, 0)),
        ("-comp lz4 -Xhc", pack("<II", 1, 1)),
        ("-comp lzo", b""),
    ],
)
def test_options_in_the_image(words: str, record: bytes) -> None:
    expected = pack("<H", 0x8000 | len(record)) + record if record else b""
    assert compressor_options(parse_squash_options(words)) == expected


def test_every_strategy_is_tried() -> None:
    sizes = [
        len(make_compressor(parse_squash_options(f"-Xcompression-level 1 -Xstrategy {name}"))(TEXT))
        for name in ("huffman_only", "default", "huffman_only,default")
    ]
    assert sizes[2] == min(sizes[:2]) < max(sizes[:2])
    packed = make_compressor(parse_squash_options("-Xwindow-size 8 -Xcompression-level 1"))(TEXT)
    assert zlib.decompress(packed) == TEXT


def test_every_branch_filter_is_tried() -> None:
    # Calls to one place from many: what the x86 filter is for.
    code = b"".join(b"\xe8" + pack("<i", 100_000 - 5 * n) for n in range(20_000))
    plain = make_compressor(parse_squash_options("-comp xz"))(code)
    filtered = make_compressor(parse_squash_options("-comp xz -Xbcj x86"))(code)
    assert len(filtered) < len(plain)
    assert make_decompressor("xz")(filtered, SIZE) == code
