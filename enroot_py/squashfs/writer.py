"""Write an image: file contents as they come, then the tree, then the tables.

    with SquashfsWriter(file, options, processors=4, mkfs_time=0) as writer:
        node.content = writer.add(source, size)
        ...
        writer.finish(root)

Source: squashfs-tools-ng doc/format.adoc; the order of the tables is the one the kernel insists on.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from struct import pack
from typing import BinaryIO

from enroot_py.layers.entry import ByteSource, Node
from enroot_py.squashfs import format as layout
from enroot_py.squashfs.compressors import compressor_options, make_compressor
from enroot_py.squashfs.options import SquashfsOptions
from enroot_py.squashfs.output import write_all
from enroot_py.squashfs.superblock import SUPERBLOCK_SIZE, Superblock
from enroot_py.squashfs.writing.content import ContentWriter
from enroot_py.squashfs.writing.tables import XattrTable, encode_lookup_table
from enroot_py.squashfs.writing.tree import TreeWriter

_MAX_TIME = 0xFFFFFFFF


class SquashfsWriter:
    """Writes one image to a file; a `ContentSink`.

    Owner and group of everything are 0, as the original's `-all-root` has it.

    Attributes:
        mkfs_time: the image's time, unless the options say otherwise; may be set until `finish()`.
    """

    def __init__(
        self, file: BinaryIO, options: SquashfsOptions, *, processors: int, mkfs_time: int
    ) -> None:
        """Start an image.

        Args:
            file: a regular file, open for reading and writing; its content is replaced. Not owned.
            options: compressors, block size and the like. Those only mksquashfs has are refused.
            processors: threads that compress; the options may say otherwise.
            mkfs_time: the image's time in seconds since 1970; the options may say otherwise.

        Raises:
            UnsupportedError: if the compressor's library is missing.
        """
        assert not options.foreign, "see squashfs/mksquashfs.py"
        self._fd = file.fileno()
        self._options = options
        self.mkfs_time = mkfs_time
        self._extras = compressor_options(options)
        start = SUPERBLOCK_SIZE + len(self._extras)
        threads = options.processors or processors
        self._content = ContentWriter(self._fd, options, processors=threads, position=start)

    def __enter__(self) -> SquashfsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def settled(self) -> int:
        """Up to here the file will not change any more, its superblock apart; in bytes.

        May be asked by another thread.
        """
        return self._content.settled

    def close(self) -> None:
        """End the threads. Without `finish()` before, the file is no image."""
        self._content.close()

    def add(
        self, source: ByteSource, size: int, extents: Sequence[tuple[int, int]] | None = None
    ) -> object:
        """Take the content of one file; see `ContentSink.add`."""
        return self._content.add(source, size, extents)

    def finish(self, root: Node) -> int:
        """Write the tree and make the file an image; returns its size in bytes.

        Raises:
            SquashfsError: if the tree does not fit the format.
        """
        options = self._options
        position = self._content.finish()
        compress = make_compressor(options)
        metadata = compress if options.compress_inodes else None
        xattrs = XattrTable(compress if options.compress_xattrs else None)
        tree = TreeWriter(options, metadata, xattrs)
        root_place = tree.write(root)

        tables: dict[str, int] = {"inode_table": position}
        position = self._write(tree.inodes.blocks, position)
        tables["directory_table"] = position
        position = self._write(tree.directories.blocks, position)
        fragments = self._content.fragments
        tables["fragment_table"] = tables["export_table"] = layout.NO_TABLE
        tables["xattr_table"] = layout.NO_TABLE
        if fragments:
            buffers, tables["fragment_table"], end = encode_lookup_table(
                fragments, position, metadata
            )
            position = self._write(buffers, position)
        if options.exports:
            buffers, tables["export_table"], end = encode_lookup_table(
                tree.references(), position, metadata
            )
            position = self._write(buffers, position)
        ids = compress if options.compress_ids else None
        buffers, tables["id_table"], end = encode_lookup_table(pack("<I", 0), position, ids)
        position = self._write(buffers, position)
        encoded = xattrs.encode(position)
        if encoded is not None:
            buffers, tables["xattr_table"], end = encoded
            position = self._write(buffers, position)
            assert position == end
        mkfs_time = self.mkfs_time if options.mkfs_time is None else options.mkfs_time
        superblock = Superblock(
            inode_count=tree.inode_count,
            mkfs_time=min(max(mkfs_time, 0), _MAX_TIME),
            block_size=options.block_size,
            fragment_count=len(fragments) // layout.FRAGMENT_ENTRY.size,
            compressor=options.compressor,
            flags=self._flags(has_xattrs=encoded is not None),
            id_count=1,
            root_inode=tree.inodes.reference(root_place),
            bytes_used=position,
            **tables,
        )
        return self._close_image(superblock)

    def _write(self, buffers: list[bytes], position: int) -> int:
        write_all(self._fd, buffers, position)
        return position + sum(map(len, buffers))

    def _close_image(self, superblock: Superblock) -> int:
        size = superblock.bytes_used
        if self._options.pad:
            size += -size % layout.PAD_SIZE
        # Also cuts off what a file that turned out to be a duplicate left behind.
        os.ftruncate(self._fd, superblock.bytes_used)
        os.ftruncate(self._fd, size)
        write_all(self._fd, [superblock.pack() + self._extras], 0)
        return size

    def _flags(self, *, has_xattrs: bool) -> int:
        options = self._options
        wanted = {
            layout.FLAG_NO_INODES: not options.compress_inodes,
            layout.FLAG_NO_DATA: not options.compress_data,
            layout.FLAG_NO_FRAGMENT_COMPRESSION: not options.compress_fragments,
            layout.FLAG_NO_FRAGMENTS: not options.fragments,
            layout.FLAG_ALWAYS_FRAGMENTS: options.tail_fragments,
            layout.FLAG_DUPLICATES: options.duplicates,
            layout.FLAG_EXPORTABLE: options.exports,
            layout.FLAG_NO_XATTR_COMPRESSION: not options.compress_xattrs,
            layout.FLAG_NO_XATTRS: not has_xattrs,
            layout.FLAG_COMPRESSOR_OPTIONS: bool(self._extras),
            layout.FLAG_NO_IDS: not options.compress_ids,
        }
        return sum(flag for flag, on in wanted.items() if on)
