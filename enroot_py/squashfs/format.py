"""The squashfs 4.0 on-disk format: numbers and record layouts, for the writer and the reader.

All integers are little endian. Not for reading or writing files: pure data.

Source: Linux Documentation/filesystems/squashfs.rst and fs/squashfs/squashfs_fs.h;
squashfs-tools-ng doc/format.adoc.
"""

from __future__ import annotations

import stat
from struct import Struct

METADATA_SIZE = 8192
"""Bytes of a metadata block before compression."""

METADATA_UNCOMPRESSED = 0x8000
"""Bit of a metadata block's 16-bit header: the block is stored as it is."""

DATA_UNCOMPRESSED = 1 << 24
"""Bit of a data or fragment block's size: the block is stored as it is."""

DEFAULT_BLOCK_SIZE = 1 << 17
MIN_BLOCK_SIZE = 1 << 12
MAX_BLOCK_SIZE = 1 << 20

NO_FRAGMENT = 0xFFFFFFFF
NO_XATTR = 0xFFFFFFFF
NO_TABLE = 0xFFFFFFFFFFFFFFFF

PAD_SIZE = 4096
"""An image is padded with zeros to a multiple of this many bytes."""

MAX_NAME = 255
"""Bytes of the longest file name; the format could hold 256, the kernel's VFS cannot."""

MAX_TARGET = 4095
"""Bytes of the longest symbolic link target (PATH_MAX without the closing zero byte)."""

MAX_FILE_BLOCKS = 1 << 25
"""Blocks of the largest file that is read or written: 4 TiB with blocks of 128 KiB.

A hole costs four bytes for each of its blocks, so a larger sparse file is an attack on memory.
"""

DIRECTORY_RUN = 256
"""Most entries that may follow one directory header."""

DIRECTORY_SIZE_BIAS = 3
"""A directory's listing size counts `.` and `..` as this many bytes, which are not stored."""

# Inode types. The extended form of a basic type is the basic type plus 7.
DIRECTORY, FILE, SYMLINK, BLOCK_DEVICE, CHARACTER_DEVICE, FIFO, SOCKET = range(1, 8)
EXTENDED = 7

KIND_OF_TYPE = {
    DIRECTORY: stat.S_IFDIR,
    FILE: stat.S_IFREG,
    SYMLINK: stat.S_IFLNK,
    BLOCK_DEVICE: stat.S_IFBLK,
    CHARACTER_DEVICE: stat.S_IFCHR,
    FIFO: stat.S_IFIFO,
    SOCKET: stat.S_IFSOCK,
}
TYPE_OF_KIND = {kind: number for number, kind in KIND_OF_TYPE.items()}

# type, mode, owner index, group index, mtime, inode number
INODE_HEADER = Struct("<HHHHII")
INODE_HEADER_FIELDS = "<HHHHII"

# First listing block, link count, listing size, offset in the block, parent's inode number.
DIRECTORY_INODE = Struct(INODE_HEADER_FIELDS + "IIHHI")
# Link count, listing size, first listing block, parent, index entries, offset, xattr index.
EXTENDED_DIRECTORY_INODE = Struct(INODE_HEADER_FIELDS + "IIIIHHI")
# First data block, fragment, offset in the fragment, size; then one u32 for each data block.
FILE_INODE = Struct(INODE_HEADER_FIELDS + "IIII")
# First data block, size, bytes in holes, link count, fragment, offset, xattr index; block sizes.
EXTENDED_FILE_INODE = Struct(INODE_HEADER_FIELDS + "QQQIIII")
# Link count, target size; then the target (and the xattr index in the extended form).
SYMLINK_INODE = Struct(INODE_HEADER_FIELDS + "II")
# Link count, device number.
DEVICE_INODE = Struct(INODE_HEADER_FIELDS + "II")
EXTENDED_DEVICE_INODE = Struct(INODE_HEADER_FIELDS + "III")
# Link count.
IPC_INODE = Struct(INODE_HEADER_FIELDS + "I")
EXTENDED_IPC_INODE = Struct(INODE_HEADER_FIELDS + "II")

# Entries that follow less one, inode table block, reference inode number.
DIRECTORY_HEADER = Struct("<III")
# Offset in the inode table block, difference to the reference, basic type, name size less one.
DIRECTORY_ENTRY = Struct("<HhHH")
# Offset in the listing, listing block, name size less one.
DIRECTORY_INDEX = Struct("<III")

ID_ENTRY = Struct("<I")

# Start, size, unused.
FRAGMENT_ENTRY = Struct("<QII")

XATTR_PREFIXES = (b"user.", b"trusted.", b"security.")
"""Prefixes of extended attribute names; a name is stored as the prefix's index and the rest."""

XATTR_OUT_OF_LINE = 0x0100
XATTR_KEY = Struct("<HH")
XATTR_VALUE = Struct("<I")
# Position of the pairs, number of pairs, their bytes.
XATTR_SET = Struct("<QII")
# Start of the first block of pairs, number of sets, unused.
XATTR_TABLE = Struct("<QII")

# Superblock flags.
FLAG_NO_INODES, FLAG_NO_DATA, FLAG_NO_FRAGMENT_COMPRESSION = 0x0001, 0x0002, 0x0008
FLAG_NO_FRAGMENTS, FLAG_ALWAYS_FRAGMENTS, FLAG_DUPLICATES = 0x0010, 0x0020, 0x0040
FLAG_EXPORTABLE, FLAG_NO_XATTR_COMPRESSION, FLAG_NO_XATTRS = 0x0080, 0x0100, 0x0200
FLAG_COMPRESSOR_OPTIONS, FLAG_NO_IDS = 0x0400, 0x0800


def encode_device(major: int, minor: int) -> int:
    """Return the 32-bit device number, as the kernel's new_encode_dev() makes it."""
    return (minor & 0xFF) | (major & 0xFFF) << 8 | (minor & ~0xFF & 0xFFFFF) << 12


def decode_device(number: int) -> tuple[int, int]:
    """Return `(major, minor)` of a 32-bit device number."""
    return number >> 8 & 0xFFF, (number & 0xFF) | (number >> 12 & 0xFFF00)
