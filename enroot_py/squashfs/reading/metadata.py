"""Metadata blocks of an image: the streams and lookup tables that they make up."""

from __future__ import annotations

import os
from collections import OrderedDict
from struct import Struct, unpack

from enroot_py.errors import SquashfsError
from enroot_py.squashfs.compressors import Decompress
from enroot_py.squashfs.format import METADATA_SIZE, METADATA_UNCOMPRESSED

_CACHED_BLOCKS = 1024


class ImageFile:
    """Bytes of an image, never beyond its end.

    Attributes:
        size: bytes that the image uses.
        name: for messages.
    """

    def __init__(self, fd: int, size: int, name: str) -> None:
        self._fd = fd
        self.size = size
        self.name = name

    def read(self, position: int, size: int) -> bytes:
        """Return exactly `size` bytes; raises SquashfsError if they are not all there."""
        if position + size > self.size:
            raise SquashfsError(f"Damaged image: a position beyond its end: {self.name}")
        data = os.pread(self._fd, size, position)
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), position + len(data))
            if not more:
                raise SquashfsError(f"Truncated image: {self.name}")
            data += more
        return data


class MetadataReader:
    """Metadata blocks by position, the last ones kept.

    Attributes:
        visited: positions of all blocks that were ever read.
        name: of the image, for messages.
    """

    def __init__(self, file: ImageFile, decompress: Decompress) -> None:
        self._file = file
        self._decompress = decompress
        self._cache: OrderedDict[int, tuple[bytes, int]] = OrderedDict()
        self.visited: set[int] = set()
        self.name = file.name

    def block(self, position: int) -> tuple[bytes, int]:
        """Return a block's bytes and the position of the next one."""
        cached = self._cache.get(position)
        if cached is not None:
            return cached
        (header,) = unpack("<H", self._file.read(position, 2))
        size = header & ~METADATA_UNCOMPRESSED
        if not 0 < size <= METADATA_SIZE:
            raise SquashfsError(f"Damaged image: a metadata block's size: {self._file.name}")
        data = self._file.read(position + 2, size)
        if not header & METADATA_UNCOMPRESSED:
            data = self._decompress(data, METADATA_SIZE)
        result = data, position + 2 + size
        self._cache[position] = result
        self.visited.add(position)
        if len(self._cache) > _CACHED_BLOCKS:
            self._cache.popitem(last=False)
        return result

    def read(self, position: int, offset: int, size: int) -> bytes:
        """Return `size` bytes of a stream of blocks, from `offset` in the one at `position`."""
        data, _ = self.block(position)
        if offset + size <= len(data):
            return data[offset : offset + size]
        return MetadataCursor(self, position, offset).take(size)

    def window(self, position: int, offset: int, size: int) -> tuple[bytes, int]:
        """Return bytes and an offset in them where up to `size` bytes of the stream begin.

        Fewer only where the stream ends; for records whose size their own fields tell.
        """
        cached = self._cache.get(position)
        data, following = cached if cached is not None else self.block(position)
        if offset + size <= len(data) or len(data) != METADATA_SIZE or following >= self._file.size:
            return data, offset
        more, _ = self.block(following)
        return data[offset:] + more[:size], 0

    def read_entry(self, table: int, count: int, record: Struct, index: int) -> tuple[int, ...]:
        """Return one record of a lookup table, whose list of blocks is at `table`."""
        if not 0 <= index < count:
            raise SquashfsError(f"Damaged image: an index beyond a table: {self._file.name}")
        block, offset = divmod(index * record.size, METADATA_SIZE)
        (position,) = unpack("<Q", self._file.read(table + 8 * block, 8))
        return record.unpack(self.read(position, offset, record.size))


class MetadataCursor:
    """A place in a stream of blocks that moves on as it is read."""

    def __init__(self, reader: MetadataReader, position: int, offset: int) -> None:
        self._reader = reader
        self._position = position
        self._offset = offset

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes; raises SquashfsError if the stream ends before."""
        parts = []
        while size:
            data, following = self._reader.block(self._position)
            part = data[self._offset : self._offset + size]
            parts.append(part)
            size -= len(part)
            self._offset += len(part)
            if size:
                if len(data) != METADATA_SIZE or self._offset > METADATA_SIZE:
                    raise SquashfsError(
                        f"Damaged image: a table ends too early: {self._reader.name}"
                    )
                self._position, self._offset = following, 0
        return b"".join(parts)
