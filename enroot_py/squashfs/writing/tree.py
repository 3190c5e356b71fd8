"""The inode and directory tables of an image that is being written.

A directory's listing names the places of its children's inodes, and its own inode the place of its
listing, in terms of compressed blocks. So children come first, and every directory's inodes are
in the table before its listing is made.
"""

from __future__ import annotations

import stat
from array import array
from collections.abc import Iterator
from struct import pack

from enroot_py.errors import SquashfsError
from enroot_py.layers.entry import Node
from enroot_py.log import printable
from enroot_py.squashfs import format as layout
from enroot_py.squashfs.compressors import Compress
from enroot_py.squashfs.file_content import FRAGMENT_MASK, FRAGMENT_SHIFT, split_token
from enroot_py.squashfs.format import METADATA_SIZE
from enroot_py.squashfs.options import SquashfsOptions
from enroot_py.squashfs.writing.tables import MetadataWriter, XattrTable

_MAX_U32 = 0xFFFFFFFF
_pack_file = layout.FILE_INODE.pack
_BLOCK_SHIFT = METADATA_SIZE.bit_length() - 1
_Entry = tuple[bytes, int, int, int]
"""Name, inode number, place of the inode, basic type."""


class TreeWriter:
    """Turns a tree into tables.

    Attributes:
        inodes, directories: the two tables' blocks, complete after `write()`.
        inode_count: inodes written.
    """

    def __init__(
        self, options: SquashfsOptions, compress: Compress | None, xattrs: XattrTable
    ) -> None:
        self.inodes = MetadataWriter(compress)
        self.directories = MetadataWriter(compress)
        self.inode_count = 0
        self._options = options
        self._xattrs = xattrs
        # The format has 32 bits without a sign: 1970 to 2106.
        latest = _MAX_U32 if options.latest_time is None else options.latest_time
        self._earliest_time, self._latest_time = 0, latest
        if options.all_time is not None:
            self._earliest_time = self._latest_time = options.all_time
        # By id(): directories, and files with several names. All other files are met once.
        self._numbers: dict[int, int] = {}
        self._places: dict[int, int] = {}
        self._links: dict[int, int] = {}
        self._references = array("Q")

    def write(self, root: Node) -> int:
        """Write the whole tree; returns the place of the root's inode.

        Raises:
            SquashfsError: if a name, a link target or the whole is too large for the format.
        """
        order = self._number(root)
        if self.inode_count > _MAX_U32 - 1:
            raise SquashfsError(f"{self.inode_count} inodes are too many for an image")
        self._references = array("Q", bytes(8 * self.inode_count))
        # Reversed pre-order: every directory comes after all that lies in it.
        while order:
            node, number, parent, first_child = order.pop()
            entries = self._write_children(node, first_child)
            listing = _Listing(self.directories, self.inodes, entries)
            place = self._append_inode(number, self._directory_inode(node, number, parent, listing))
            self._places[id(node)] = place
        self.inodes.finish()
        self.directories.finish()
        return self._places[id(root)]

    def references(self) -> bytes:
        """Return the export table: for each inode number its reference, u64 each."""
        starts = self.inodes.starts
        mask = METADATA_SIZE - 1
        references = array(
            "Q", [starts[place >> _BLOCK_SHIFT] << 16 | place & mask for place in self._references]
        )
        return pack(f"<{len(references)}Q", *references)

    def _number(self, root: Node) -> list[tuple[Node, int, int, int]]:
        """Give out inode numbers, those of one directory's children in a row.

        Returns:
            For each directory, parents first: itself, its number, its parent's, and the first of
            the numbers of those children that are met here for the first time.
        """
        self._links = _count_links(root)
        numbers, links = self._numbers, self._links
        order: list[tuple[Node, int, int, int]] = []
        numbers[id(root)] = 1
        following = 2
        # The root is its own parent, as in a mounted file system.
        stack = [(root, 1)]
        while stack:
            node, parent = stack.pop()
            number = numbers[id(node)]
            order.append((node, number, parent, following))
            children = node.children
            assert children is not None
            folders = []
            for name in sorted(children):
                child = children[name]
                if child.children is not None:
                    numbers[id(child)] = following
                    folders.append((child, number))
                elif id(child) in links:
                    if id(child) in numbers:
                        continue
                    numbers[id(child)] = following
                following += 1
            folders.reverse()
            stack += folders
        self.inode_count = following - 1
        return order

    def _write_children(self, parent: Node, number: int) -> list[_Entry]:
        """Write the inodes of what lies in a directory; returns the listing's entries."""
        entries: list[_Entry] = []
        children = parent.children
        assert children is not None
        places, numbers, types = self._places, self._numbers, layout.TYPE_OF_KIND
        for name in sorted(children):
            if len(name) > layout.MAX_NAME:
                raise SquashfsError(f"A name is longer than 255 bytes: {_shown(name)}")
            child = children[name]
            own_number = numbers.get(id(child))
            if own_number is None:
                place = self._append_inode(number, self._inode(child, number, 1))
                entries.append((name, number, place, types[child.kind]))
                number += 1
                continue
            if child.children is None and id(child) not in places:
                record = self._inode(child, own_number, self._links[id(child)])
                places[id(child)] = self._append_inode(own_number, record)
            entries.append((name, own_number, places[id(child)], types[child.kind]))
            # A file with several names has its number from the first of its directories.
            number += own_number == number
        return entries

    def _append_inode(self, number: int, record: bytes) -> int:
        place = self.inodes.size
        self._references[number - 1] = place
        self.inodes.append(record)
        return place

    def _inode(self, node: Node, number: int, links: int) -> bytes:
        """Return the record of anything but a directory, in its shortest form."""
        kind, content = node.kind, node.content
        if type(content) is int and links == 1 and not node.xattrs:
            # A small file: most inodes of most images, and half of this function's time otherwise.
            return _pack_file(
                layout.FILE, node.mode & 0o7777, 0, 0, self._time(node), number,
                0, content >> FRAGMENT_SHIFT, content & FRAGMENT_MASK, node.size,
            )  # fmt: skip
        mode, mtime = node.mode & 0o7777, self._time(node)
        xattr = self._xattr(node)
        if kind == stat.S_IFREG:
            return self._file_inode(node, (mode, 0, 0, mtime, number), links, xattr)
        extended = xattr is not None
        number_of_type = layout.TYPE_OF_KIND[kind] + (layout.EXTENDED if extended else 0)
        if kind == stat.S_IFLNK:
            if not 0 < len(node.target) <= layout.MAX_TARGET:
                raise SquashfsError(f"A link's target is too long: {_shown(node.target)}")
            record = layout.SYMLINK_INODE.pack(
                number_of_type, 0o777, 0, 0, mtime, number, links, len(node.target)
            )
            return record + node.target + (pack("<I", xattr) if xattr is not None else b"")
        header = (number_of_type, mode, 0, 0, mtime, number, links)
        if kind in (stat.S_IFBLK, stat.S_IFCHR):
            device = layout.encode_device(*node.device)
            if xattr is None:
                return layout.DEVICE_INODE.pack(*header, device)
            return layout.EXTENDED_DEVICE_INODE.pack(*header, device, xattr)
        if xattr is None:
            return layout.IPC_INODE.pack(*header)
        return layout.EXTENDED_IPC_INODE.pack(*header, xattr)

    def _file_inode(
        self, node: Node, header: tuple[int, int, int, int, int], links: int, xattr: int | None
    ) -> bytes:
        fragment, offset, blocks = split_token(node.content)
        start, sizes, holes = 0, b"", 0
        if blocks is not None:
            start, sizes, holes = blocks.start, blocks.sizes, blocks.hole_bytes
        size = node.size
        if xattr is None and links == 1 and not holes and start <= _MAX_U32 and size <= _MAX_U32:
            return (
                layout.FILE_INODE.pack(layout.FILE, *header, start, fragment, offset, size) + sizes
            )
        index = layout.NO_XATTR if xattr is None else xattr
        return (
            layout.EXTENDED_FILE_INODE.pack(
                layout.FILE + layout.EXTENDED, *header,
                start, size, holes, links, fragment, offset, index,
            )
            + sizes
        )  # fmt: skip

    def _directory_inode(self, node: Node, number: int, parent: int, listing: _Listing) -> bytes:
        children = node.children
        assert children is not None
        links = 2 + sum(child.children is not None for child in children.values())
        header = (node.mode & 0o7777, 0, 0, self._time(node), number)
        start = self.directories.reference(listing.place)
        size = listing.size + layout.DIRECTORY_SIZE_BIAS
        xattr = self._xattr(node)
        if size <= 0xFFFF and not listing.index and xattr is None:
            return layout.DIRECTORY_INODE.pack(
                layout.DIRECTORY, *header, start >> 16, links, size, start & 0xFFFF, parent
            )
        index = listing.index[:0xFFFF]
        record = layout.EXTENDED_DIRECTORY_INODE.pack(
            layout.DIRECTORY + layout.EXTENDED, *header, links, size, start >> 16, parent,
            len(index), start & 0xFFFF, layout.NO_XATTR if xattr is None else xattr,
        )  # fmt: skip
        return record + b"".join(index)

    def _time(self, node: Node) -> int:
        mtime = node.mtime
        if self._earliest_time <= mtime <= self._latest_time:
            return mtime
        return self._earliest_time if mtime < self._earliest_time else self._latest_time

    def _xattr(self, node: Node) -> int | None:
        if node.xattrs and self._options.xattrs:
            return self._xattrs.add(node.xattrs)
        return None


class _Listing:
    """One directory's listing, written to the directory table.

    Attributes:
        place: where it begins in the table.
        size: its bytes.
        index: records that tell a reader where each further block of a long listing begins.
    """

    def __init__(
        self, table: MetadataWriter, inodes: MetadataWriter, entries: list[_Entry]
    ) -> None:
        self.place = table.size
        self.size = 0
        self._parts: list[bytes] = []
        # (offset in the listing, name) of headers that are the first in their block.
        self._firsts: list[tuple[int, bytes]] = []
        self._last_block = self.place >> _BLOCK_SHIFT
        for run in _split_runs(entries, self.place):
            self._add_run(run, inodes)
        table.append(b"".join(self._parts))
        self._parts.clear()
        if self.size <= METADATA_SIZE:
            # One more block to read at most: not worth the longer form of the inode.
            self._firsts.clear()
        self.index = [
            layout.DIRECTORY_INDEX.pack(
                offset, table.starts[self.place + offset >> _BLOCK_SHIFT], len(name) - 1
            )
            + name
            for offset, name in self._firsts
        ]

    def _add_run(self, run: list[_Entry], inodes: MetadataWriter) -> None:
        first_name, reference, place, _ = run[0]
        offset = self.size
        block = self.place + offset >> _BLOCK_SHIFT
        if block > self._last_block:
            self._last_block = block
            self._firsts.append((offset, first_name))
        parts = self._parts
        parts.append(
            layout.DIRECTORY_HEADER.pack(
                len(run) - 1, inodes.starts[place >> _BLOCK_SHIFT], reference
            )
        )
        self.size += layout.DIRECTORY_HEADER.size
        pack_entry = layout.DIRECTORY_ENTRY.pack
        mask = METADATA_SIZE - 1
        for name, number, place, kind in run:
            parts.append(pack_entry(place & mask, number - reference, kind, len(name) - 1))
            parts.append(name)
            self.size += layout.DIRECTORY_ENTRY.size + len(name)


def _split_runs(entries: list[_Entry], position: int) -> Iterator[list[_Entry]]:
    """Split a listing into runs that can share a header; it begins at `position` in its table."""
    run: list[_Entry] = []
    inode_block = reference = listing_block = 0
    for entry in entries:
        name, number, place, _ = entry
        if run and (
            len(run) == layout.DIRECTORY_RUN
            or place >> _BLOCK_SHIFT != inode_block
            or not -0x8000 <= number - reference <= 0x7FFF
            # Every block of a listing shall have a header, where the index can point to.
            or position >> _BLOCK_SHIFT != listing_block
        ):
            yield run
            run = []
        if not run:
            inode_block, reference = place >> _BLOCK_SHIFT, number
            listing_block = position >> _BLOCK_SHIFT
            position += layout.DIRECTORY_HEADER.size
        run.append(entry)
        position += layout.DIRECTORY_ENTRY.size + len(name)
    if run:
        yield run


def _count_links(root: Node) -> dict[int, int]:
    """Return the number of names of every file that has more than one, by id()."""
    seen: set[int] = set()
    links: dict[int, int] = {}
    stack = [root]
    while stack:
        children = stack.pop().children
        assert children is not None
        for child in children.values():
            if child.children is not None:
                stack.append(child)
            elif id(child) in seen:
                links[id(child)] = links.get(id(child), 1) + 1
            else:
                seen.add(id(child))
    return links


def _shown(name: bytes) -> str:
    return printable(name.decode("utf-8", "surrogateescape"))
