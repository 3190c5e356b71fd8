"""Read an image: its tree, its files' contents, or all of it at once into a folder.

Images come from anywhere, so everything is checked before it is used: positions and sizes against
the image, names, links that lead back, and counts against what the superblock declares. What is
wrong raises SquashfsError.

Source: Linux fs/squashfs; squashfs-tools-ng doc/format.adoc.
"""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from collections.abc import Iterator
from struct import Struct

from enroot_py.errors import LimitError, NotFoundError, SquashfsError
from enroot_py.layers.entry import Node, walk
from enroot_py.log import printable
from enroot_py.squashfs import format as layout
from enroot_py.squashfs.compressors import Decompress, make_decompressor
from enroot_py.squashfs.file_content import FRAGMENT_MASK, FRAGMENT_SHIFT, FileBlocks
from enroot_py.squashfs.reading.metadata import ImageFile, MetadataReader
from enroot_py.squashfs.reading.tree import TreeReader
from enroot_py.squashfs.superblock import Superblock, read_superblock_fd

_CACHED_FRAGMENT_BYTES = 8 << 20
_U32 = Struct("<I")


class SquashfsImage:
    """An image, open for reading; a context manager.

    Attributes:
        path: of the image, as given.
        superblock: what it says of itself.
    """

    def __init__(self, path: str, *, max_entries: int = 0) -> None:
        """Open the image at `path`.

        Args:
            path: a host path.
            max_entries: names that it may contain; 0 for any number.

        Raises:
            NotFoundError: if it cannot be opened.
            SquashfsError: if it is no image or a damaged one.
            UnsupportedError: if its compressor cannot be read here.
        """
        self.path = path
        self._max_entries = max_entries
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise NotFoundError(f"{error.strerror}: {path}") from error
        try:
            self.superblock: Superblock = read_superblock_fd(self._fd, path)
            decompress = _naming(path, make_decompressor(self.superblock.compressor))
        except BaseException:
            os.close(self._fd)
            raise
        self._file = ImageFile(self._fd, self.superblock.bytes_used, path)
        self._metadata = MetadataReader(self._file, decompress)
        self._fragments = _FragmentReader(self._file, self.superblock, self._metadata, decompress)
        self._decompress = decompress
        self._root: Node | None = None
        self._linked: list[Node] = []

    def __enter__(self) -> SquashfsImage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def read_tree(self) -> Node:
        """Return the root of the image's tree; contents are tokens for `read_content`.

        Raises:
            SquashfsError: if a table is damaged, a name is not one, or a directory is met twice.
            LimitError: if there are more entries than allowed.
        """
        if self._root is None:
            reader = TreeReader(
                self.superblock,
                self._metadata,
                MetadataReader(self._file, self._decompress),
                self._file,
                self._max_entries,
            )
            self._root = reader.read()
            self._linked = reader.linked_nodes()
        return self._root

    def linked_nodes(self) -> list[Node]:
        """Return the nodes that may have more than one name."""
        self.read_tree()
        return self._linked

    def walk(self) -> Iterator[tuple[bytes, Node]]:
        """Yield `(path, node)` of everything but the root, parents first; see `entry.walk`."""
        return walk(self.read_tree())

    def find(self, path: str) -> Node:
        """Return the node at `path` within the image, following no links.

        Raises:
            NotFoundError: if there is none.
        """
        node = self.read_tree()
        for name in os.fsencode(path).split(b"/"):
            if name:
                child = (node.children or {}).get(name)
                if child is None:
                    raise NotFoundError(f"No {printable(path)} in {self.path}")
                node = child
        return node

    def read(self, path: str, *, max_size: int = 16 << 20) -> bytes:
        """Return the content of the regular file at `path` within the image.

        Raises:
            NotFoundError: if there is none, or it is not a regular file.
            LimitError: if it is larger than `max_size` bytes.
        """
        node = self.find(path)
        if node.kind != stat.S_IFREG:
            raise NotFoundError(f"Not a regular file: {printable(path)} in {self.path}")
        if node.size > max_size:
            raise LimitError(f"{printable(path)} in {self.path} has {node.size} bytes")
        return b"".join(
            piece if isinstance(piece, bytes) else bytes(piece)
            for piece in self.read_content(node.content, node.size)
        )

    def read_content(self, content: object, size: int) -> Iterator[bytes | int]:
        """Yield a file's content in order: bytes, or the size of a hole.

        Args:
            content, size: of a regular file's node, or a piece from `split_blocks`.

        Raises:
            SquashfsError: if a block is damaged.
        """
        if content is None:
            return
        if isinstance(content, int):
            yield self._fragments.read_tail(content, size)
            return
        assert isinstance(content, FileBlocks)
        block_size = self.superblock.block_size
        position, sizes, index = content.start, content.sizes, 0
        while index < len(sizes):
            (packed_size,) = _U32.unpack_from(sizes, index)
            stored = packed_size & ~layout.DATA_UNCOMPRESSED
            if stored:
                expected = min(block_size, size)
                yield self._read_block(position, packed_size, expected)
                position += stored
                index += 4
            else:
                # Many at a time: a lastlog of a terabyte has millions of them.
                count = _count_zeros(sizes, index) if packed_size == 0 else 4
                expected = min(block_size * (count // 4), size)
                yield expected
                index += count
            size -= expected
        if content.tail >= 0:
            yield self._fragments.read_tail(content.tail, size)

    def _read_block(self, position: int, packed_size: int, expected: int) -> bytes:
        data = self._file.read(position, packed_size & ~layout.DATA_UNCOMPRESSED)
        if not packed_size & layout.DATA_UNCOMPRESSED:
            data = self._decompress(data, expected)
        if len(data) != expected:
            raise SquashfsError(f"Damaged image: a data block has the wrong size: {self.path}")
        return data

    def extract(self, destination: str, *, processors: int = 1) -> None:
        """Unpack the whole image into the existing, empty folder `destination`.

        See `extract.extract_image`.
        """
        from enroot_py.squashfs.reading.extract import extract_image

        extract_image(self, destination, processors=processors)


def _naming(path: str, decompress: Decompress) -> Decompress:
    """Return a decompressor whose errors say which image is damaged."""

    def decompress_block(data: bytes, limit: int) -> bytes:
        try:
            return decompress(data, limit)
        except SquashfsError as error:
            raise SquashfsError(f"{error}: {path}", hint="import or copy it again") from error

    return decompress_block


def _count_zeros(data: bytes, start: int) -> int:
    """Return how many zero bytes there are from `start` on, in fours."""
    end = start
    for step in (1 << 16, 1 << 10, 4):
        zeros = bytes(step)
        while data[end : end + step] == zeros:
            end += step
    return end - start


class _FragmentReader:
    """Fragments by number, the last ones kept uncompressed."""

    def __init__(
        self,
        file: ImageFile,
        superblock: Superblock,
        metadata: MetadataReader,
        decompress: Decompress,
    ) -> None:
        self._file = file
        self._superblock = superblock
        self._metadata = metadata
        self._decompress = decompress
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._cached = max(2, _CACHED_FRAGMENT_BYTES // superblock.block_size)

    def read_tail(self, token: int, size: int) -> bytes:
        """Return `size` bytes of a fragment."""
        number, offset = token >> FRAGMENT_SHIFT, token & FRAGMENT_MASK
        data = self._cache.get(number)
        if data is None:
            data = self._read(number)
            self._cache[number] = data
            if len(self._cache) > self._cached:
                self._cache.popitem(last=False)
        tail = data[offset : offset + size]
        if len(tail) != size:
            raise SquashfsError(f"Damaged image: a file beyond its fragment: {self._file.name}")
        return tail

    def _read(self, number: int) -> bytes:
        superblock = self._superblock
        start, size, _ = self._metadata.read_entry(
            superblock.fragment_table, superblock.fragment_count, layout.FRAGMENT_ENTRY, number
        )
        stored = size & ~layout.DATA_UNCOMPRESSED
        if not 0 < stored <= superblock.block_size:
            raise SquashfsError(f"Damaged image: a fragment's size: {self._file.name}")
        data = self._file.read(start, stored)
        if size & layout.DATA_UNCOMPRESSED:
            return data
        return self._decompress(data, superblock.block_size)
