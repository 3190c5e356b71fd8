"""What a layer may be compressed with, and what happens to data that is not what it should be."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import threading
from collections.abc import Iterator

import pytest
import zstandard

from enroot_py.errors import LayerError, LimitError
from enroot_py.layers.compression import CHUNK, ReadAhead, decompress
from enroot_py.layers.entry import Limits
from tests.layers.archives import archive, file, zstandard_frame

ARCHIVE = archive(file(b"a", bytes(range(256)) * 16), file(b"b", b"b" * 100_000))
SKIPPABLE = b"\x5a\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"


class Trickle(io.RawIOBase):
    """A file that gives a few bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data = io.BytesIO(data)
        self._size = size

    def read(self, size: int = -1) -> bytes:
        return self._data.read(min(size, self._size))


def plain(data: bytes, limits: Limits | None = None, size: int = 1 << 20) -> bytes:
    chunks = decompress(Trickle(data, size), "layer", limits or Limits())  # type: ignore[arg-type]
    return b"".join(chunks)


def zstandard_stream(data: bytes) -> bytes:
    """A frame without its content's size, as it comes out of a pipe, with a checksum."""
    compressor = zstandard.ZstdCompressor(level=1, write_checksum=True).compressobj()
    return compressor.compress(data) + compressor.flush()


HALVES = (ARCHIVE[:3000], ARCHIVE[3000:])
FORMS = {
    "plain": ARCHIVE,
    "gzip": gzip.compress(ARCHIVE),
    "gzip with a name": gzip.compress(ARCHIVE)[:3] + b"\x08" + gzip.compress(ARCHIVE)[4:10]
    + b"name\0" + gzip.compress(ARCHIVE)[10:],
    "gzip members": gzip.compress(HALVES[0]) + gzip.compress(b"") + gzip.compress(HALVES[1]),
    "gzip and zeros": gzip.compress(ARCHIVE) + bytes(1000),
    "stored gzip": gzip.compress(ARCHIVE, 0),
    "zstd": zstandard_frame(ARCHIVE),
    "zstd stream": zstandard_stream(ARCHIVE),
    "zstd frames": zstandard_stream(HALVES[0]) + zstandard_frame(b"") + zstandard_frame(HALVES[1]),
    "zstd skippable frames": SKIPPABLE + zstandard_frame(HALVES[0]) + SKIPPABLE * 2
    + zstandard_frame(HALVES[1]) + SKIPPABLE,
    "zstd and zeros": zstandard_frame(ARCHIVE) + bytes(1000),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_every_form_by_its_first_bytes(form: str, size: int) -> None:
    assert plain(FORMS[form], size=size) == ARCHIVE


def test_nothing_is_an_archive_of_nothing() -> None:
    assert plain(b"") == b""
    assert plain(gzip.compress(b"")) == b""
    assert plain(zstandard_frame(b"")) == b""
    assert plain(bytes(1024)) == bytes(1024)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (bz2.compress(ARCHIVE), "bzip2"),
        (lzma.compress(ARCHIVE), "xz"),
        (b'{"schemaVersion": 2}', "7b 22"),
        (b"\x1f\x8b\x00junk", "1f 8b 00"),
        (b"\x28\xb5\x2f", "28 b5 2f"),
        (ARCHIVE[1:], "begins with"),
    ],
)
def test_other_formats_are_refused_by_name(data: bytes, kind: str) -> None:
    with pytest.raises(LayerError, match="not a tar archive, nor") as caught:
        plain(data)
    assert kind in str(caught.value)


@pytest.mark.parametrize("form", ["gzip", "gzip members", "stored gzip", "zstd", "zstd stream"])
def test_truncated_data_is_refused_wherever_it_ends(form: str) -> None:
    data = FORMS[form]
    for end in [*range(12, min(len(data), 60)), *range(len(data) - 20, len(data))]:
        if form == "gzip members" and end == len(gzip.compress(HALVES[0])):
            continue
        with pytest.raises(LayerError):
            plain(data[:end])


@pytest.mark.parametrize("form", ["gzip", "zstd stream"])
def test_damaged_data_is_refused(form: str) -> None:
    data = bytearray(FORMS[form])
    for at in (len(data) // 2, len(data) - 2):
        damaged = bytes(data[:at]) + bytes([data[at] ^ 0x55]) + bytes(data[at + 1 :])
        with pytest.raises(LayerError, match="damaged|truncated"):
            plain(damaged)


@pytest.mark.parametrize("form", ["gzip", "zstd"])
@pytest.mark.parametrize("junk", [b"x", b"junk that goes on", b"\0\0x", b"\x1f\x8b", b"BZh9"])
def test_what_follows_the_compressed_data_is_refused(form: str, junk: bytes) -> None:
    with pytest.raises(LayerError, match="something else follows"):
        plain(FORMS[form] + junk)


def test_one_format_does_not_follow_another() -> None:
    with pytest.raises(LayerError, match="something else follows"):
        plain(gzip.compress(HALVES[0]) + zstandard_frame(HALVES[1]))
    with pytest.raises(LayerError, match="something else follows"):
        plain(zstandard_frame(HALVES[0]) + gzip.compress(HALVES[1]))


def zstandard_header(window_descriptor: int) -> bytes:
    """A frame that has one empty block, and says what window it needs."""
    return b"\x28\xb5\x2f\xfd" + bytes([0, window_descriptor]) + b"\1\0\0"


def test_windows_are_limited() -> None:
    assert plain(zstandard_header((27 - 10) << 3)) == b""
    for descriptor in (((27 - 10) << 3) + 1, (31 - 10) << 3, 255):
        with pytest.raises(LayerError, match="window"):
            plain(zstandard_header(descriptor))
    single_segment = b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little") + b"\1\0\0"
    with pytest.raises(LayerError, match="window"):
        plain(single_segment)


def test_dictionaries_are_refused() -> None:
    frame = b"\x28\xb5\x2f\xfd" + bytes([1, 0, 7]) + b"\1\0\0"
    with pytest.raises(LayerError, match="dictionary"):
        plain(frame)


def test_blocks_that_are_too_long_are_refused() -> None:
    head = ((129 << 10) << 3 | 1).to_bytes(3, "little")
    with pytest.raises(LayerError, match="too long"):
        plain(b"\x28\xb5\x2f\xfd\0\0" + head + bytes(129 << 10))


def zeros(size: int, form: str) -> bytes:
    if form == "gzip":
        return gzip.compress(bytes(size), 9)
    return zstandard.ZstdCompressor(level=3).compress(bytes(size))


@pytest.mark.parametrize("form", ["gzip", "zstd"])
def test_chunks_are_small_whatever_a_byte_expands_to(form: str) -> None:
    chunks = decompress(io.BytesIO(zeros(50 << 20, form)), "layer", Limits())
    assert max(map(len, chunks)) <= CHUNK


@pytest.mark.parametrize("form", ["gzip", "zstd"])
def test_bombs_are_stopped_by_their_ratio(form: str) -> None:
    limits = Limits(ratio_floor=10 << 20)
    assert len(plain(zeros(9 << 20, form), limits)) == 9 << 20
    with pytest.raises(LimitError, match="bomb") as caught:
        plain(zeros(20 << 20, form), limits)
    assert "ENROOT_MAX_IMAGE_SIZE" in caught.value.hint
    named = Limits(ratio_floor=10 << 20, max_bytes=20 << 20)
    assert len(plain(zeros(20 << 20, form), named)) == 20 << 20
    assert len(plain(zeros(20 << 20, form), Limits(ratio_floor=0, max_ratio=0))) == 20 << 20


def test_a_layer_of_zeros_that_is_not_compressed_is_no_bomb() -> None:
    assert len(plain(bytes(20 << 20), Limits(ratio_floor=0))) == 20 << 20


def test_sizes_are_limited_over_all_layers() -> None:
    limits = Limits(max_bytes=len(ARCHIVE) + 10)
    assert plain(FORMS["gzip"], limits) == ARCHIVE
    chunks = decompress(io.BytesIO(FORMS["gzip"]), "layer", limits, earlier=11)
    with pytest.raises(LimitError, match=f"more than {limits.max_bytes} bytes"):
        list(chunks)


def test_reading_ahead_gives_everything_in_order() -> None:
    ahead = ReadAhead(iter([b"%d" % number for number in range(100)]))
    assert [ahead.read() for _ in range(101)] == [b"%d" % number for number in range(100)] + [b""]
    assert ahead.read() == b""
    ahead.close()


def test_errors_come_out_where_they_are_read() -> None:
    def chunks() -> Iterator[bytes]:
        yield b"good"
        raise LayerError("broken")

    ahead = ReadAhead(chunks())
    assert ahead.read() == b"good"
    for _ in range(2):
        with pytest.raises(LayerError, match="broken"):
            ahead.read()
    ahead.close()


def test_giving_up_early_leaves_no_thread() -> None:
    before = set(threading.enumerate())

    def endless() -> Iterator[bytes]:
        while True:
            yield b"x"

    ahead = ReadAhead(endless())
    ahead.read()
    assert len(set(threading.enumerate()) - before) == 1
    ahead.close()
    ahead.close()
    assert set(threading.enumerate()) <= before
