"""The superblock: the first 96 bytes of an image.

On the start path (`enroot start IMAGE` looks at nothing else of an image before it is mounted), so
nothing is imported here but `struct`.

Source: Linux fs/squashfs/super.c, squashfs_fill_super(); squashfs-tools-ng doc/format.adoc.
"""

from __future__ import annotations

import os
from struct import Struct

from enroot_py.errors import NotFoundError, SquashfsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

MAGIC = b"hsqs"
SUPERBLOCK_SIZE = 96

COMPRESSOR_NAMES = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}

_NO_TABLE = 0xFFFFFFFFFFFFFFFF
_FIELDS = Struct("<4sIIIIHHHHHHQQQQQQQQ")


class Superblock(NamedTuple):
    """What an image says of itself. Positions and sizes are bytes from the image's start.

    A table that the image does not have is at 2**64 - 1.
    """

    inode_count: int
    mkfs_time: int
    block_size: int
    fragment_count: int
    compressor: str
    flags: int
    id_count: int
    root_inode: int
    bytes_used: int
    id_table: int
    xattr_table: int
    inode_table: int
    directory_table: int
    fragment_table: int
    export_table: int

    def pack(self) -> bytes:
        """Return the superblock's 96 bytes."""
        compressor = next(key for key, name in COMPRESSOR_NAMES.items() if name == self.compressor)
        return _FIELDS.pack(
            MAGIC, self.inode_count, self.mkfs_time, self.block_size, self.fragment_count,
            compressor, self.block_size.bit_length() - 1, self.flags, self.id_count, 4, 0,
            self.root_inode, self.bytes_used, self.id_table, self.xattr_table, self.inode_table,
            self.directory_table, self.fragment_table, self.export_table,
        )  # fmt: skip


def is_squashfs(path: str) -> bool:
    """Tell whether `path` is a regular file that begins with a plausible superblock."""
    try:
        read_superblock(path)
    except (SquashfsError, NotFoundError):
        return False
    return True


def read_superblock(path: str) -> Superblock:
    """Read and check the superblock of the image at `path`.

    Raises:
        NotFoundError: if there is no such file, or it cannot be opened.
        SquashfsError: if it is not an image, or one that is truncated or contradicts itself.
    """
    try:
        # Not blocking: a fifo of that name must not hold a start up for ever.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise NotFoundError(f"{error.strerror}: {path}") from error
    try:
        return read_superblock_fd(fd, path)
    finally:
        os.close(fd)


def read_superblock_fd(fd: int, name: str) -> Superblock:
    """Like `read_superblock`, of an open file; `name` is for messages."""
    status = os.fstat(fd)
    if status.st_mode & 0o170000 != 0o100000:
        raise SquashfsError(f"Not a regular file: {name}")
    superblock = parse_superblock(os.pread(fd, SUPERBLOCK_SIZE, 0), name)
    if superblock.bytes_used > status.st_size:
        raise SquashfsError(
            f"Truncated image: {name} has {status.st_size} bytes of {superblock.bytes_used}",
            hint="import or copy it again",
        )
    return superblock


def parse_superblock(data: bytes, name: str) -> Superblock:
    """Parse the first bytes of an image and check what can be checked without the rest.

    Raises:
        SquashfsError: naming what is wrong.
    """
    if len(data) < SUPERBLOCK_SIZE or data[:4] != MAGIC:
        raise SquashfsError(f"Not a squashfs image: {name}")
    (
        _, inode_count, mkfs_time, block_size, fragment_count, compressor, block_log, flags,
        id_count, major, minor, root_inode, bytes_used, id_table, xattr_table, inode_table,
        directory_table, fragment_table, export_table,
    ) = _FIELDS.unpack_from(data)  # fmt: skip
    if (major, minor) != (4, 0):
        raise SquashfsError(f"Squashfs version {major}.{minor} is not 4.0: {name}")
    superblock = Superblock(
        inode_count, mkfs_time, block_size, fragment_count,
        COMPRESSOR_NAMES.get(compressor, f"number {compressor}"), flags, id_count, root_inode,
        bytes_used, id_table, xattr_table, inode_table, directory_table, fragment_table,
        export_table,
    )  # fmt: skip
    fault = _find_fault(superblock, block_log)
    if fault:
        raise SquashfsError(f"Damaged superblock ({fault}): {name}")
    return superblock


def _find_fault(superblock: Superblock, block_log: int) -> str:
    """Say what contradicts itself, or nothing."""
    end = superblock.bytes_used
    if not 12 <= block_log <= 20 or superblock.block_size != 1 << block_log:
        return "block size"
    if not superblock.compressor.isalnum():
        return f"compressor {superblock.compressor}"
    if end < SUPERBLOCK_SIZE or end > 1 << 62:
        return "size"
    if not SUPERBLOCK_SIZE <= superblock.inode_table < superblock.directory_table <= end:
        return "inode or directory table"
    if superblock.id_count == 0 or not superblock.directory_table <= superblock.id_table < end:
        return "id table"
    if superblock.fragment_count and not 96 <= superblock.fragment_table < end:
        return "fragment table"
    if superblock.xattr_table != _NO_TABLE and not 96 <= superblock.xattr_table < end:
        return "attribute table"
    if superblock.root_inode >> 16 >= superblock.directory_table - superblock.inode_table:
        return "root inode"
    if superblock.root_inode & 0xFFFF >= 8192 or superblock.inode_count == 0:
        return "root inode"
    return ""
