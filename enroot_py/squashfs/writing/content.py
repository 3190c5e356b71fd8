"""Where the writer puts the bytes of files: data blocks, shared fragments, duplicates.

Blocks are compressed in threads and written in the order in which they came, and every decision
(what is a duplicate, what goes into which fragment) depends on that order alone: the image is the
same whatever the number of threads (docs/adr/0004-deterministic-images.md).
"""

from __future__ import annotations

import hashlib
import os
import sys
from array import array
from collections import OrderedDict, deque
from collections.abc import Sequence

from isal.isal_zlib import crc32

from enroot_py.errors import LimitError, SquashfsError
from enroot_py.layers.entry import ByteSource
from enroot_py.squashfs.compressors import make_decompressor
from enroot_py.squashfs.file_content import FRAGMENT_MASK, FRAGMENT_SHIFT, FileBlocks
from enroot_py.squashfs.format import (
    DATA_UNCOMPRESSED,
    FRAGMENT_ENTRY,
    MAX_FILE_BLOCKS,
)
from enroot_py.squashfs.options import SquashfsOptions
from enroot_py.squashfs.output import write_all
from enroot_py.squashfs.writing.pool import (
    BLOCK,
    END,
    FRAGMENT,
    HOLE,
    CompressorPool,
    Job,
    queue_depth,
)

_WRITE_BATCH = 1 << 20
_RAW_FRAGMENT_BYTES = 4 << 20
_COMPARE_SIZE = 1 << 20


class ContentWriter:
    """Takes file contents and writes them to an image, from a given position on.

    Use as a context manager, or call `close()`: it owns threads.

    Attributes:
        position: where the next byte goes; after `finish()` the end of the data.
        settled: up to here all bytes are in the file, for good. Other threads may ask.
        fragments: the fragment table's entries.
    """

    def __init__(
        self, fd: int, options: SquashfsOptions, *, processors: int, position: int
    ) -> None:
        self.position = position
        self.settled = position
        self.fragments = bytearray()
        self._fd = fd
        self._options = options
        self._block_size = options.block_size
        self._zeros = bytes(options.block_size)
        self._queue: deque[Job] = deque()
        self._pool = CompressorPool(options, processors)
        self._depth = queue_depth(options, processors)
        self._unwritten: list[bytes] = []
        self._unwritten_size = 0
        # The file whose blocks are being taken out of the queue.
        self._file_sizes = array("I")
        self._file_start = position
        self._file_checksum = 0
        self._known_files: dict[tuple[int, int], FileBlocks] = {}
        # The fragment that is being filled, and what is known of earlier ones.
        self._fragment = bytearray()
        self._fragment_count = 0
        self._raw_fragments: OrderedDict[int, bytes] = OrderedDict()
        self._known_tails: dict[int, int] = {}
        self._tail_digests: dict[int, bytes] = {}

    def __enter__(self) -> ContentWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads; what has not been written by then is lost."""
        self._pool.close()

    def add(
        self, source: ByteSource, size: int, extents: Sequence[tuple[int, int]] | None = None
    ) -> object:
        """Take one file's content; see `ContentSink.add`.

        Raises:
            LimitError: if the file is larger than an image can hold.
        """
        if size > MAX_FILE_BLOCKS * self._block_size:
            raise LimitError(f"A file of {size} bytes is too large for an image")
        if extents is not None:
            source = _SparseSource(source, size, extents)
        if size < self._block_size and self._options.fragments:
            return self._pack_tail(source.take(size))
        return self._add_blocks(source, size)

    def finish(self) -> int:
        """Write what is pending, and return the position behind the last byte."""
        self._flush_fragment()
        self._drain(0)
        self._write_pending()
        self._known_files.clear()
        self._known_tails.clear()
        self._tail_digests.clear()
        self._raw_fragments.clear()
        return self.position

    def _add_blocks(self, source: ByteSource, size: int) -> FileBlocks:
        record = FileBlocks()
        block_size = self._block_size
        while size >= block_size:
            if isinstance(source, _SparseSource) and self._options.sparse:
                hole = source.skip_hole(size // block_size * block_size, block_size)
                if hole:
                    self._queue.append(_hole_job(record, hole, hole // block_size))
                    size -= hole
                    continue
            self._add_block(source.take(block_size), record)
            size -= block_size
        in_fragment = size and self._options.tail_fragments and self._options.fragments
        if size and not in_fragment:
            self._add_block(source.take(size), record)
        # Before the tail is packed, which may queue a fragment: a file's blocks are contiguous.
        self._queue.append(Job(END, b"", record))
        if in_fragment:
            record.tail = self._pack_tail(source.take(size))
        self._drain(self._depth)
        return record

    def _add_block(self, data: bytes, record: FileBlocks) -> None:
        if self._options.sparse and data[0] == 0 and data == self._zeros[: len(data)]:
            self._queue.append(_hole_job(record, len(data), 1))
            return
        job = Job(BLOCK, data, record)
        self._pool.submit(job)
        self._queue.append(job)
        self._drain(self._depth)

    # -- tails and small files ---------------------------------------------------------------

    def _pack_tail(self, data: bytes) -> int:
        """Put less than a block's bytes into the shared fragments, or find them there."""
        key = 0
        if self._options.duplicates:
            key = len(data) << 32 | crc32(data)
            known = self._known_tails.get(key)
            if known is not None and self._is_same_tail(known, key, data):
                return known
        if len(self._fragment) + len(data) > self._block_size:
            self._flush_fragment()
        token = self._fragment_count << FRAGMENT_SHIFT | len(self._fragment)
        self._fragment += data
        if key:
            self._known_tails.setdefault(key, token)
        return token

    def _is_same_tail(self, known: int, key: int, data: bytes) -> bool:
        """Compare by digest; the first's is computed when a second comes that looks like it.

        Most files are the only ones of their size and checksum and are never hashed.
        """
        digest = self._tail_digests.get(key)
        if digest is None:
            fragment, offset = known >> FRAGMENT_SHIFT, known & FRAGMENT_MASK
            first = self._raw_fragment(fragment)[offset : offset + len(data)]
            digest = self._tail_digests[key] = hashlib.sha256(first).digest()
        return hashlib.sha256(data).digest() == digest

    def _raw_fragment(self, number: int) -> bytes | bytearray:
        """Return an earlier fragment's uncompressed bytes, from the image if need be."""
        if number == self._fragment_count:
            return self._fragment
        raw = self._raw_fragments.get(number)
        if raw is None:
            while len(self.fragments) <= number * FRAGMENT_ENTRY.size:
                self._drain(len(self._queue) - 1)
            self._write_pending()
            start, size, _ = FRAGMENT_ENTRY.unpack_from(
                self.fragments, number * FRAGMENT_ENTRY.size
            )
            raw = os.pread(self._fd, size & ~DATA_UNCOMPRESSED, start)
            if not size & DATA_UNCOMPRESSED:
                raw = make_decompressor(self._options.compressor)(raw, self._block_size)
            self._remember_fragment(number, raw)
        return raw

    def _remember_fragment(self, number: int, raw: bytes) -> None:
        self._raw_fragments[number] = raw
        while len(self._raw_fragments) * self._block_size > _RAW_FRAGMENT_BYTES:
            self._raw_fragments.popitem(last=False)

    def _flush_fragment(self) -> None:
        if not self._fragment:
            return
        job = Job(FRAGMENT, bytes(self._fragment), None)
        if self._options.duplicates:
            self._remember_fragment(self._fragment_count, job.data)
        self._fragment.clear()
        self._fragment_count += 1
        self._pool.submit(job)
        self._queue.append(job)
        self._drain(self._depth)

    # -- the end of the queue ----------------------------------------------------------------

    def _drain(self, depth: int) -> None:
        """Take finished jobs out of the queue until at most `depth` are left in it."""
        queue = self._queue
        while len(queue) > depth:
            job = queue.popleft()
            if job.kind == BLOCK:
                self._write_block(job)
            elif job.kind == HOLE:
                assert job.record is not None
                self._file_sizes.frombytes(bytes(4 * job.size))
            elif job.kind == END:
                assert job.record is not None
                self._end_file(job.record)
            else:
                packed, size = self._pool.result(job)
                self.fragments += FRAGMENT_ENTRY.pack(self.position, size, 0)
                self._file_start = self._write(packed)

    def _write_block(self, job: Job) -> None:
        packed, size = self._pool.result(job)
        self._file_sizes.append(size)
        if self._options.duplicates:
            self._file_checksum = crc32(packed, self._file_checksum)
        self._write(packed)

    def _end_file(self, record: FileBlocks) -> None:
        sizes = self._file_sizes
        if sys.byteorder == "big":
            sizes.byteswap()
        record.start, record.sizes = self._file_start, sizes.tobytes()
        length = self.position - self._file_start
        if not length:
            # Nothing but holes. mksquashfs puts such files at 0 too.
            record.start = 0
        elif self._options.duplicates:
            known = self._known_files.setdefault((length, self._file_checksum), record)
            if known is not record and known.sizes == record.sizes:
                self._write_pending()
                if self._is_same_range(known.start, record.start, length):
                    record.start, record.sizes = known.start, known.sizes
                    # The next file overwrites this one.
                    self.position = self._file_start
        self._file_start = self.position
        self._file_sizes = array("I")
        self._file_checksum = 0

    def _is_same_range(self, first: int, second: int, length: int) -> bool:
        while length:
            size = min(length, _COMPARE_SIZE)
            if os.pread(self._fd, size, first) != os.pread(self._fd, size, second):
                return False
            first, second, length = first + size, second + size, length - size
        return True

    def _write(self, data: bytes) -> int:
        """Append to the image; returns the new position."""
        self._unwritten.append(data)
        self._unwritten_size += len(data)
        self.position += len(data)
        if self._unwritten_size >= _WRITE_BATCH:
            self._write_pending()
        return self.position

    def _write_pending(self) -> None:
        if self._unwritten:
            write_all(self._fd, self._unwritten, self.position - self._unwritten_size)
            self._unwritten.clear()
            self._unwritten_size = 0
        # A file that turns out to be a duplicate is overwritten, from its start.
        self.settled = max(self.settled, min(self._file_start, self.position))


def _hole_job(record: FileBlocks, size: int, blocks: int) -> Job:
    job = Job(HOLE, b"", record)
    job.size = blocks
    record.hole_bytes += size
    return job


class _SparseSource:
    """A file with holes as a stream of all its bytes, from a stream of its extents' bytes."""

    def __init__(self, source: ByteSource, size: int, extents: Sequence[tuple[int, int]]) -> None:
        self._source = source
        self._position = 0
        # Reversed, so that the next extent is popped; the end of the file closes the last hole.
        self._extents = [(size, 0), *reversed(list(extents))]
        if any(offset + length > size for offset, length in extents):
            raise SquashfsError("A sparse file's data reaches beyond its size")

    def skip_hole(self, limit: int, unit: int) -> int:
        """Skip whole units of the hole at the current position; returns the bytes skipped."""
        offset = self._next_extent()[0]
        skipped = min(offset - self._position, limit) // unit * unit
        self._position += skipped
        return skipped

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes of the file."""
        parts = []
        while size:
            offset, length = self._next_extent()
            gap = min(offset - self._position, size)
            if gap:
                parts.append(bytes(gap))
                self._position += gap
                size -= gap
                continue
            count = min(offset + length - self._position, size)
            parts.append(self._source.take(count))
            self._position += count
            size -= count
        return b"".join(parts)

    def _next_extent(self) -> tuple[int, int]:
        """The extent at or after the current position; what is left of one counts as one."""
        offset, length = self._extents[-1]
        while self._position >= offset + length and len(self._extents) > 1:
            self._extents.pop()
            offset, length = self._extents[-1]
        return max(offset, self._position), offset + length - max(offset, self._position)
