"""Metadata blocks, and the tables that are made of them: lookup tables, extended attributes."""

from __future__ import annotations

from array import array
from struct import pack

from enroot_py.log import printable, warn_once
from enroot_py.squashfs.compressors import Compress
from enroot_py.squashfs.format import (
    METADATA_SIZE,
    METADATA_UNCOMPRESSED,
    XATTR_KEY,
    XATTR_OUT_OF_LINE,
    XATTR_PREFIXES,
    XATTR_SET,
    XATTR_TABLE,
    XATTR_VALUE,
)

_INLINE_VALUE = 8
"""Bytes of a value up to which a reference to an equal one would save nothing."""


class MetadataWriter:
    """A stream of records, cut into compressed blocks of 8 KiB.

    A record's place is its offset in the uncompressed stream, until `reference()` turns it into
    what the format stores.

    Attributes:
        size: bytes of the stream so far, uncompressed.
        starts: for each block, its position from the first one, compressed; the last element is
            where the block that is being filled will begin.
    """

    def __init__(self, compress: Compress | None) -> None:
        self.size = 0
        self.starts = array("Q", [0])
        self.blocks: list[bytes] = []
        self._compress = compress
        self._pending = bytearray()

    def append(self, record: bytes) -> None:
        """Add a record."""
        self._pending += record
        self.size += len(record)
        if len(self._pending) >= METADATA_SIZE:
            self._write_full_blocks()

    def reference(self, offset: int) -> int:
        """Return `block position << 16 | offset in the block` for a place in the stream."""
        return self.starts[offset // METADATA_SIZE] << 16 | offset % METADATA_SIZE

    def finish(self) -> int:
        """Write the last, shorter block; returns the bytes of all blocks."""
        if self._pending:
            self._write_block(bytes(self._pending))
            self._pending.clear()
        return self.starts[-1]

    def _write_full_blocks(self) -> None:
        pending = self._pending
        end = len(pending) - len(pending) % METADATA_SIZE
        for position in range(0, end, METADATA_SIZE):
            self._write_block(bytes(pending[position : position + METADATA_SIZE]))
        del pending[:end]

    def _write_block(self, data: bytes) -> None:
        header = len(data) | METADATA_UNCOMPRESSED
        if self._compress is not None:
            packed = self._compress(data)
            if len(packed) < len(data):
                data, header = packed, len(packed)
        self.blocks.append(pack("<H", header) + data)
        self.starts.append(self.starts[-1] + 2 + len(data))


def encode_lookup_table(
    data: bytes | bytearray, position: int, compress: Compress | None
) -> tuple[list[bytes], int, int]:
    """Encode an array of equal records that is to be written at `position`.

    Returns:
        The buffers to write, the position that the superblock names (of the list of blocks), and
        the position behind it all.
    """
    table = MetadataWriter(compress)
    table.append(bytes(data))
    end = position + table.finish()
    positions = [position + start for start in table.starts[:-1]]
    index = pack(f"<{len(positions)}Q", *positions)
    return [*table.blocks, index], end, end + len(index)


class XattrTable:
    """Sets of extended attributes; equal sets are stored once, and so are equal long values."""

    def __init__(self, compress: Compress | None) -> None:
        self._compress = compress
        self._pairs = MetadataWriter(compress)
        # (place of the first pair, pairs, bytes) of each set; places become references at the end.
        self._sets: list[tuple[int, int, int]] = []
        self._known: dict[tuple[tuple[bytes, bytes], ...], int] = {}
        # Value to (index of the set, place): references can only be made to finished blocks.
        self._values: dict[bytes, int] = {}

    def add(self, xattrs: dict[bytes, bytes]) -> int | None:
        """Return the index of a set, or None if nothing of it can be stored.

        Names outside the namespaces of the format (`system.`, for instance POSIX ACLs) are left
        out with one warning, as mksquashfs does it.
        """
        key = tuple(sorted(xattrs.items()))
        known = self._known.get(key)
        if known is not None:
            return known
        pairs = [pair for name, value in key if (pair := self._split(name, value)) is not None]
        if not pairs:
            return None
        place = self._pairs.size
        for prefix, rest, value in pairs:
            self._append(prefix, rest, value)
        self._sets.append((place, len(pairs), self._pairs.size - place))
        self._known[key] = len(self._sets) - 1
        return len(self._sets) - 1

    def encode(self, position: int) -> tuple[list[bytes], int, int] | None:
        """Encode the table for writing at `position`, like `encode_lookup_table`.

        None if there is no set in it.
        """
        if not self._sets:
            return None
        end = position + self._pairs.finish()
        sets = b"".join(
            XATTR_SET.pack(self._pairs.reference(place), count, size)
            for place, count, size in self._sets
        )
        # The sets' blocks, then a header and their positions: the header counts as the list.
        buffers, listed, _ = encode_lookup_table(sets, end, self._compress)
        header = XATTR_TABLE.pack(position, len(self._sets), 0)
        tail = [header, buffers.pop()]
        return [*self._pairs.blocks, *buffers, *tail], listed, listed + len(tail[0] + tail[1])

    def _split(self, name: bytes, value: bytes) -> tuple[int, bytes, bytes] | None:
        for number, prefix in enumerate(XATTR_PREFIXES):
            if name.startswith(prefix) and len(name) > len(prefix):
                return number, name[len(prefix) :], value
        shown = printable(name.decode("utf-8", "backslashreplace"))
        warn_once(f"xattr {shown}", f"Extended attribute {shown} cannot be stored in an image")
        return None

    def _append(self, prefix: int, rest: bytes, value: bytes) -> None:
        place = self._values.get(value)
        if place is not None:
            self._pairs.append(XATTR_KEY.pack(prefix | XATTR_OUT_OF_LINE, len(rest)) + rest)
            self._pairs.append(XATTR_VALUE.pack(8) + pack("<Q", self._pairs.reference(place)))
            return
        self._pairs.append(XATTR_KEY.pack(prefix, len(rest)) + rest)
        if len(value) > _INLINE_VALUE:
            self._values[value] = self._pairs.size
        self._pairs.append(XATTR_VALUE.pack(len(value)) + value)
