"""What an image knows of one file's bytes: the token that stands in `Node.content`.

A small file is an int, `fragment << FRAGMENT_SHIFT | offset`; one with blocks of its own is a
`FileBlocks`; an empty one is None. The same for images that are written and images that are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack

from enroot_py.squashfs.format import DATA_UNCOMPRESSED, NO_FRAGMENT

FRAGMENT_SHIFT = 20
"""A small file's token is `fragment << FRAGMENT_SHIFT | offset`: a block has at most 1 MiB."""

FRAGMENT_MASK = (1 << FRAGMENT_SHIFT) - 1


class FileBlocks:
    """The content of a file that has data blocks of its own; the sink's token for it.

    Attributes:
        start: position of the first block in the image, bytes.
        sizes: the block list as it stands in the inode: u32 each, little endian.
        hole_bytes: bytes of blocks that are not stored because they are zeros.
        tail: the small-file token of the end of the file, or -1 if the last block is a block.
    """

    __slots__ = ("hole_bytes", "sizes", "start", "tail")

    def __init__(self) -> None:
        self.start = 0
        self.sizes = b""
        self.hole_bytes = 0
        self.tail = -1


def split_token(token: object) -> tuple[int, int, FileBlocks | None]:
    """Return `(fragment, offset, blocks)` of a content token; None is an empty file.

    A file without fragment has fragment NO_FRAGMENT and offset 0.
    """
    if token is None:
        return NO_FRAGMENT, 0, None
    if isinstance(token, FileBlocks):
        if token.tail < 0:
            return NO_FRAGMENT, 0, token
        return token.tail >> FRAGMENT_SHIFT, token.tail & FRAGMENT_MASK, token
    assert isinstance(token, int)
    return token >> FRAGMENT_SHIFT, token & FRAGMENT_MASK, None


def split_blocks(
    content: FileBlocks, size: int, *, block_size: int, count: int
) -> Iterator[tuple[int, int, FileBlocks]]:
    """Yield `(offset, size, content)` of pieces of a file, each of at most `count` blocks."""
    position, offset = content.start, 0
    step = 4 * count
    for first in range(0, len(content.sizes), step):
        piece = FileBlocks()
        piece.start = position
        piece.sizes = content.sizes[first : first + step]
        if first + step >= len(content.sizes):
            piece.tail = content.tail
            length = size - offset
        else:
            length = count * block_size
        yield offset, length, piece
        stored = unpack(f"<{len(piece.sizes) // 4}I", piece.sizes)
        position += sum(packed & ~DATA_UNCOMPRESSED for packed in stored)
        offset += length
