"""A layer's compressed bytes in, chunks of its tar archive out, one chunk ahead of the reader.

What a layer is compressed with is decided by its first bytes, never by its label: registries hold
gzip labelled as zstd and plain archives labelled as gzip. Whatever a layer expands to, one chunk
holds at most `CHUNK` bytes, so memory stays bounded for a decompression bomb too.

Decompressors release the interpreter lock, so a thread of its own decompresses while the caller
parses: the reader then costs little more than the decompression alone.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import BinaryIO, Protocol

import zstandard
from isal import igzip_lib

from enroot_py.errors import EnrootError, LayerError, LimitError
from enroot_py.layers.entry import Limits
from enroot_py.layers.tar_header import BLOCK, has_valid_checksum

CHUNK = 512 << 10
"""Most bytes of one decompressed chunk."""

MAX_WINDOW_LOG = 27
"""Largest zstd window accepted, as a power of two: 128 MiB, what `zstd -d` accepts by default."""

# isal's type stub declares an instance where the module has the class.
_GzipError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]
_READ = 256 << 10
_QUEUED_CHUNKS = 4
_GZIP_MAGIC = b"\x1f\x8b\x08"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = (b"\x2a\x4d\x18", range(0x50, 0x60))
_ZSTD_BLOCK_SIZE = 128 << 10
_OTHER_FORMATS = ((b"BZh", "bzip2"), (b"\xfd7zXZ\0", "xz"), (b"\x04\x22\x4d\x18", "lz4"))


class ChunkSource(Protocol):
    """Gives an archive's bytes in order, in pieces of any size; b"" at the end."""

    def read(self) -> bytes:
        """Return the next bytes, b"" once there are none left."""
        ...

    def close(self) -> None:
        """Give up what is held; may be called more than once."""
        ...


class CountingReader:
    """Exact reads from a file object, with the number of bytes read so far.

    Attributes:
        consumed: bytes handed out.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.consumed = 0
        self._file = file
        self._name = name
        self._buffer = b""
        self._position = 0

    def peek(self, size: int) -> bytes:
        """Return up to `size` bytes without consuming them, fewer only at the file's end."""
        missing = size - (len(self._buffer) - self._position)
        while missing > 0:
            more = self._file.read(max(missing, _READ))
            if not more:
                break
            self._buffer = self._buffer[self._position :] + more
            self._position = 0
            missing -= len(more)
        return self._buffer[self._position : self._position + size]

    def read(self, size: int) -> bytes:
        """Return between 1 and `size` bytes; b"" at the file's end."""
        position = self._position
        if position == len(self._buffer):
            self._buffer = self._file.read(max(size, _READ))
            position = 0
        data = self._buffer[position : position + size]
        self._position = position + len(data)
        self.consumed += len(data)
        return data

    def exactly(self, size: int) -> bytes:
        """Return `size` bytes; raises LayerError if the file ends before."""
        data = self.read(size) if size else b""
        while len(data) < size:
            more = self.read(size - len(data))
            if not more:
                raise LayerError(f"{self._name}: the layer is truncated")
            data += more
        return data


def decompress(file: BinaryIO, name: str, limits: Limits, *, earlier: int = 0) -> Iterator[bytes]:
    """Yield the archive that `file` holds, in chunks of at most CHUNK bytes.

    Args:
        file: the layer, at its start; need not be seekable.
        name: what messages call the layer.
        limits: its `max_bytes` and `max_ratio` are checked here, where both sizes are known.
        earlier: uncompressed bytes that other layers have used up already.

    Raises:
        LayerError: the format is none of gzip, zstd and tar, or the data is broken or truncated.
        LimitError: it expands more than `limits` allow.
    """
    reader = CountingReader(file, name)
    magic = reader.peek(BLOCK)
    if magic.startswith(_GZIP_MAGIC):
        chunks = _gzip_chunks(reader, name)
    elif magic.startswith(_ZSTD_MAGIC) or _is_skippable(magic):
        chunks = _zstd_chunks(reader, name)
    elif not magic or not magic.strip(b"\0") or has_valid_checksum(magic):
        chunks = _plain_chunks(reader)
    else:
        raise LayerError(
            f"{name}: not a tar archive, nor one compressed with gzip or zstd: "
            + _describe_start(magic)
        )
    return _limited(chunks, reader, name, limits, earlier)


def _limited(
    chunks: Iterator[bytes], reader: CountingReader, name: str, limits: Limits, total: int
) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        total += len(chunk)
        if limits.max_bytes and total > limits.max_bytes:
            raise LimitError(
                f"{name}: the layers expand to more than {limits.max_bytes} bytes",
                hint="raise ENROOT_MAX_IMAGE_SIZE if this image can be trusted",
            )
        if (
            limits.max_ratio
            and not limits.max_bytes
            and size > limits.ratio_floor
            and size > limits.max_ratio * reader.consumed
        ):
            raise LimitError(
                f"{name}: {reader.consumed} bytes expand to more than {size}, which is over "
                f"{limits.max_ratio} times as many: this looks like a decompression bomb",
                hint="if it can be trusted, say with ENROOT_MAX_IMAGE_SIZE how large it may be",
            )
        yield chunk


def _describe_start(magic: bytes) -> str:
    for start, kind in _OTHER_FORMATS:
        if magic.startswith(start):
            return f"it is {kind} data"
    return f"it begins with the bytes {magic[:8].hex(' ')}"


def _plain_chunks(reader: CountingReader) -> Iterator[bytes]:
    while chunk := reader.read(CHUNK):
        yield chunk


def _gzip_chunks(reader: CountingReader, name: str) -> Iterator[bytes]:
    """Members may follow each other (RFC 1952, 2.2), and zeros may follow the last one."""
    pending = b""
    while True:
        stream = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
        try:
            while not stream.eof:
                data = b""
                if stream.needs_input:
                    data = pending or reader.read(_READ)
                    pending = b""
                    if not data:
                        raise LayerError(f"{name}: the gzip data is truncated")
                if chunk := stream.decompress(data, CHUNK):
                    yield chunk
        except _GzipError as error:
            raise LayerError(f"{name}: the gzip data is damaged: {error}") from None
        pending = bytes(stream.unused_data)
        while not pending.strip(b"\0"):
            pending = reader.read(_READ)
            if not pending:
                return
        pending += reader.read(len(_GZIP_MAGIC))
        if not pending.startswith(_GZIP_MAGIC):
            raise LayerError(f"{name}: something else follows the gzip data")


def _is_skippable(magic: bytes) -> bool:
    tail, first = _ZSTD_SKIPPABLE
    return magic[1:4] == tail and magic[0] in first


def _zstd_chunks(reader: CountingReader, name: str) -> Iterator[bytes]:
    """Frames may follow each other, skippable ones among them, and zeros may follow the last one.

    The frames are walked block by block (three bytes of header for at most 128 KiB of data): that
    bounds what one call can expand to, and tells a truncated stream from a complete one.

    Source: RFC 8878, 3.1 (frames), 3.1.1.2 (blocks).
    """
    while magic := reader.peek(4):
        if _is_skippable(magic):
            reader.exactly(4)
            left = int.from_bytes(reader.exactly(4), "little")
            while left:
                left -= len(reader.exactly(min(left, _READ)))
        elif magic == _ZSTD_MAGIC:
            yield from _zstd_frame(reader, name)
        else:
            while not magic.strip(b"\0"):
                magic = reader.read(_READ)
                if not magic:
                    return
            raise LayerError(f"{name}: something else follows the zstd data")


def _zstd_frame(reader: CountingReader, name: str) -> Iterator[bytes]:
    header, has_checksum = _zstd_frame_header(reader, name)
    pieces = [header]
    blocks = 0
    stream = zstandard.ZstdDecompressor(max_window_size=1 << MAX_WINDOW_LOG).decompressobj(
        write_size=CHUNK
    )
    try:
        last = False
        while not last:
            head = reader.exactly(3)
            value = int.from_bytes(head, "little")
            last = bool(value & 1)
            # A block of type 1 is one byte, repeated.
            length = 1 if value >> 1 & 3 == 1 else value >> 3
            if length > _ZSTD_BLOCK_SIZE:
                raise LayerError(f"{name}: the zstd data is damaged: a block is too long")
            pieces += (head, reader.exactly(length))
            blocks += 1
            if last and has_checksum:
                pieces.append(reader.exactly(4))
            if last or blocks * _ZSTD_BLOCK_SIZE >= CHUNK:
                if chunk := stream.decompress(b"".join(pieces)):
                    yield chunk
                pieces.clear()
                blocks = 0
    except zstandard.ZstdError as error:
        raise LayerError(f"{name}: the zstd data is damaged: {error}") from None
    if not stream.eof or stream.unused_data:
        raise LayerError(f"{name}: the zstd data is damaged: a frame ends too early")


def _zstd_frame_header(reader: CountingReader, name: str) -> tuple[bytes, bool]:
    """Return a frame's header and whether a checksum ends the frame.

    Source: RFC 8878, 3.1.1.1.
    """
    header = reader.exactly(5)
    descriptor = header[4]
    single_segment = bool(descriptor & 0x20)
    content_size = (int(single_segment), 2, 4, 8)[descriptor >> 6]
    window = 0 if single_segment else 1
    dictionary = (0, 1, 2, 4)[descriptor & 3]
    rest = reader.exactly(window + dictionary + content_size)
    if window:
        exponent, mantissa = rest[0] >> 3, rest[0] & 7
        size = (1 << 10 + exponent) + (mantissa << 7 + exponent)
    else:
        size = int.from_bytes(rest[dictionary:], "little") + (256 if content_size == 2 else 0)
    if size > 1 << MAX_WINDOW_LOG:
        raise LayerError(
            f"{name}: its zstd window of {size} bytes is larger than the "
            f"{1 << MAX_WINDOW_LOG} bytes allowed",
            hint="compress the layer without --ultra or --long",
        )
    if any(rest[window : window + dictionary]):
        raise LayerError(f"{name}: its zstd data needs a dictionary")
    return header + rest, bool(descriptor & 4)


class ReadAhead:
    """Runs an iterator of chunks in a thread, up to four chunks ahead of `read`."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._queue: queue.Queue[bytes] = queue.Queue(_QUEUED_CHUNKS)
        self._error: BaseException | None = RuntimeError("the decompressing thread died")
        self._stopped = False
        self._thread = threading.Thread(target=self._run, args=(chunks,), name="decompress")
        self._thread.start()

    def _run(self, chunks: Iterator[bytes]) -> None:
        try:
            for chunk in chunks:
                if self._stopped:
                    break
                self._queue.put(chunk)
            self._error = None
        except (EnrootError, OSError, MemoryError) as error:
            self._error = error
        finally:
            self._queue.put(b"")

    def read(self) -> bytes:
        """Return the next chunk, b"" at the end; raises what decompressing it raised."""
        chunk = self._queue.get()
        if not chunk:
            self._queue.put(b"")
            if self._error is not None:
                raise self._error
        return chunk

    def close(self) -> None:
        """Stop the thread and wait for it."""
        self._stopped = True
        while self._thread.is_alive():
            try:
                self._queue.get(timeout=0.05)
            except queue.Empty:
                pass
        self._thread.join()
