"""An image's inode, directory and attribute tables: from bytes to a tree of nodes.

Everything is checked, because an image may be made to mislead: every directory is entered once,
names are single components, listings together are no longer than their table, and there are no
more inodes than the superblock declares.
"""

from __future__ import annotations

import struct
from collections import Counter
from struct import Struct, unpack_from

from enroot_py.errors import LimitError, SquashfsError
from enroot_py.layers.entry import Node
from enroot_py.log import printable
from enroot_py.squashfs import format as layout
from enroot_py.squashfs.file_content import FRAGMENT_SHIFT, FileBlocks
from enroot_py.squashfs.format import METADATA_SIZE
from enroot_py.squashfs.reading.metadata import ImageFile, MetadataCursor, MetadataReader
from enroot_py.squashfs.superblock import Superblock

_LARGEST_RECORD = 64
"""Bytes that hold any inode's fixed part."""

_MAX_XATTR_BYTES = 1 << 20
"""Names and values of one inode; the kernel's limit for one value is 64 KiB."""

_POINTER = Struct("<Q")

_Listing = tuple[int, int, int]
"""Block, offset in it and bytes of a directory's listing."""


class TreeReader:
    """Reads the tree of one image, once."""

    def __init__(
        self,
        superblock: Superblock,
        metadata: MetadataReader,
        listings: MetadataReader,
        file: ImageFile,
        max_entries: int,
    ) -> None:
        """Get ready; `metadata` and `listings` are two readers of the same image."""
        self._superblock = superblock
        self._metadata = metadata
        self._listings = listings
        self._file = file
        self._max_entries = max_entries
        self._xattrs = _XattrReader(superblock, metadata, file)
        self._ids: dict[int, int] = {}
        self._entries = 0
        self._inodes = 0
        self._listed = 0
        # By reference: files with several names, and directories, which may have only one.
        self._linked: dict[int, Node] = {}
        self._entered: set[int] = set()

    def read(self) -> Node:
        """Return the root, with everything below it."""
        try:
            return self._read_all()
        except struct.error as error:
            raise self._damaged("a record is cut short") from error

    def linked_nodes(self) -> list[Node]:
        """Return the nodes whose inodes count more than one name."""
        return list(self._linked.values())

    def _read_all(self) -> Node:
        reference = self._superblock.root_inode
        root, listing = self._read_inode(reference >> 16, reference & 0xFFFF)
        if listing is None:
            raise self._damaged("the root is not a directory")
        self._entered.add(reference)
        pending = [(root, listing)]
        while pending:
            node, listing = pending.pop()
            pending += reversed(self._read_directory(node, listing))
        return root

    def _read_directory(self, node: Node, listing: _Listing) -> list[tuple[Node, _Listing]]:
        """Fill a directory's children in; returns those that are directories themselves."""
        block, offset, size = listing
        children = node.children
        assert children is not None
        folders: list[tuple[Node, _Listing]] = []
        data = self._listings.read(self._superblock.directory_table + block, offset, size)
        # A small table in which thousands of directories claim the same thousands of entries
        # would make millions of nodes; listings that are apart fit into the blocks they are in.
        self._listed += size
        if self._listed > METADATA_SIZE * len(self._listings.visited):
            raise self._damaged("directories share their listings")
        names: list[bytes] = []
        position = 0
        while position < size:
            count, inode_block, _ = layout.DIRECTORY_HEADER.unpack_from(data, position)
            position += layout.DIRECTORY_HEADER.size
            self._count_entries(count + 1)
            for _ in range(count + 1):
                offset, _, kind, length = layout.DIRECTORY_ENTRY.unpack_from(data, position)
                start = position + layout.DIRECTORY_ENTRY.size
                position = start + length + 1
                name = data[start:position]
                child, inner = self._read_child(inode_block, offset)
                if layout.TYPE_OF_KIND[child.kind] != kind:
                    raise self._damaged("a directory entry and its inode disagree")
                names.append(name)
                children[name] = child
                if inner is not None:
                    folders.append((child, inner))
        self._check_names(names, children)
        if position != size:
            raise self._damaged("a directory's listing is cut short")
        return folders

    def _count_entries(self, count: int) -> None:
        if count > layout.DIRECTORY_RUN:
            raise self._damaged("a directory header counts too many entries")
        self._entries += count
        if self._max_entries and self._entries > self._max_entries:
            raise LimitError(
                f"More than {self._max_entries} entries: {self._file.name}",
                hint="ENROOT_MAX_IMAGE_ENTRIES sets this limit",
            )

    def _check_names(self, names: list[bytes], children: dict[bytes, Node]) -> None:
        """Check a directory's names together, which takes a fifth of the time of one by one."""
        together = b"\n".join(names)
        if (
            b"/" in together
            or b"\0" in together
            or b"." in children
            or b".." in children
            or max(map(len, names), default=0) > layout.MAX_NAME
        ):
            raise self._damaged(
                f"{_shown(next(filter(_is_no_name, names)))} cannot be a file's name"
            )
        if len(children) != len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise self._damaged(f"two files of one directory are named {_shown(twice)}")

    def _read_child(self, block: int, offset: int) -> tuple[Node, _Listing | None]:
        reference = block << 16 | offset
        known = self._linked.get(reference)
        if known is not None:
            return known, None
        child, listing = self._read_inode(block, offset)
        if listing is not None:
            if reference in self._entered:
                raise self._damaged("a directory lies in two places, or in itself")
            self._entered.add(reference)
        return child, listing

    def _read_inode(self, block: int, offset: int) -> tuple[Node, _Listing | None]:
        """Return the inode at a place, and for a directory where its listing is."""
        self._inodes += 1
        if self._inodes > self._superblock.inode_count:
            raise self._damaged("it has more inodes than it declares")
        place = (self._superblock.inode_table + block, offset)
        if place[0] >= self._superblock.directory_table or offset >= METADATA_SIZE:
            raise self._damaged("an inode lies outside its table")
        data, start = self._metadata.window(*place, _LARGEST_RECORD)
        type_, mode, owner, group, mtime, _ = layout.INODE_HEADER.unpack_from(data, start)
        basic = type_ - layout.EXTENDED if type_ > layout.EXTENDED else type_
        kind = layout.KIND_OF_TYPE.get(basic)
        if kind is None:
            raise self._damaged(f"an inode is of type {type_}")
        ids = self._ids
        uid = ids[owner] if owner in ids else self._read_id(owner)
        gid = ids[group] if group in ids else self._read_id(group)
        node = Node(kind, mode & 0o7777, uid=uid, gid=gid, mtime=mtime)
        if basic == layout.FILE:
            self._read_file(node, data, start, place, extended=type_ != basic)
            return node, None
        if basic == layout.DIRECTORY:
            return node, self._read_directory_inode(node, data, start, extended=type_ != basic)
        self._read_special(node, basic, data, start, place, extended=type_ != basic)
        return node, None

    def _read_directory_inode(
        self, node: Node, data: bytes, start: int, *, extended: bool
    ) -> _Listing:
        if extended:
            fields = layout.EXTENDED_DIRECTORY_INODE.unpack_from(data, start)
            _, size, block, _, _, offset, xattr = fields[6:]
            self._set_xattrs(node, xattr)
        else:
            block, _, size, offset, _ = layout.DIRECTORY_INODE.unpack_from(data, start)[6:]
        # An empty directory's listing is nowhere; some writers give it no size at all.
        return block, offset, max(0, size - layout.DIRECTORY_SIZE_BIAS)

    def _read_file(
        self, node: Node, data: bytes, start: int, place: tuple[int, int], *, extended: bool
    ) -> None:
        links, holes = 1, 0
        if extended:
            record = layout.EXTENDED_FILE_INODE
            first, size, holes, links, fragment, offset, xattr = record.unpack_from(data, start)[6:]
            self._set_xattrs(node, xattr)
        else:
            record = layout.FILE_INODE
            first, fragment, offset, size = record.unpack_from(data, start)[6:]
        node.size = size
        if links > 1:
            self._remember(node, place)
        if not size:
            return
        block_size = self._superblock.block_size
        blocks, rest = divmod(size, block_size)
        tail = -1
        if fragment == layout.NO_FRAGMENT:
            blocks += rest > 0
        elif rest:
            if offset + rest > block_size:
                raise self._damaged("a file reaches beyond its fragment")
            tail = fragment << FRAGMENT_SHIFT | offset
        if not blocks:
            node.content = tail
            return
        if blocks > layout.MAX_FILE_BLOCKS:
            raise self._damaged(f"a file of {size} bytes is too large")
        content = FileBlocks()
        content.start, content.tail, content.hole_bytes = first, tail, holes
        end = start + record.size
        # Most files' blocks are in the same metadata block as the inode.
        content.sizes = data[end : end + 4 * blocks]
        if len(content.sizes) < 4 * blocks:
            content.sizes = self._read_behind(place, record.size, 4 * blocks)
        node.content = content

    def _read_special(
        self,
        node: Node,
        basic: int,
        data: bytes,
        start: int,
        place: tuple[int, int],
        *,
        extended: bool,
    ) -> None:
        """Read a link, a device, a fifo or a socket."""
        (links,) = unpack_from("<I", data, start + layout.INODE_HEADER.size)
        if links > 1:
            self._remember(node, place)
        xattr = layout.NO_XATTR
        if basic == layout.SYMLINK:
            size = layout.SYMLINK_INODE.unpack_from(data, start)[7]
            if not 0 < size <= layout.MAX_TARGET:
                raise self._damaged("a link's target has an impossible size")
            node.target = self._read_behind(place, layout.SYMLINK_INODE.size, size)
            if b"\0" in node.target:
                raise self._damaged("a link's target has a zero byte")
            if extended:
                index = self._read_behind(place, layout.SYMLINK_INODE.size + size, 4)
                (xattr,) = unpack_from("<I", index)
        elif basic in (layout.BLOCK_DEVICE, layout.CHARACTER_DEVICE):
            device = layout.DEVICE_INODE.unpack_from(data, start)[7]
            node.device = layout.decode_device(device)
            if extended:
                xattr = layout.EXTENDED_DEVICE_INODE.unpack_from(data, start)[8]
        elif extended:
            xattr = layout.EXTENDED_IPC_INODE.unpack_from(data, start)[7]
        self._set_xattrs(node, xattr)

    def _read_behind(self, place: tuple[int, int], skipped: int, size: int) -> bytes:
        """Read what follows an inode's fixed part."""
        cursor = MetadataCursor(self._metadata, *place)
        cursor.take(skipped)
        return cursor.take(size)

    def _remember(self, node: Node, place: tuple[int, int]) -> None:
        self._linked[place[0] - self._superblock.inode_table << 16 | place[1]] = node

    def _set_xattrs(self, node: Node, index: int) -> None:
        if index != layout.NO_XATTR:
            node.xattrs = self._xattrs.read(index)

    def _read_id(self, index: int) -> int:
        superblock = self._superblock
        (found,) = self._metadata.read_entry(
            superblock.id_table, superblock.id_count, layout.ID_ENTRY, index
        )
        self._ids[index] = found
        return found

    def _damaged(self, what: str) -> SquashfsError:
        return SquashfsError(f"Damaged image ({what}): {self._file.name}")


def _is_no_name(name: bytes) -> bool:
    too_long = len(name) > layout.MAX_NAME
    return too_long or b"/" in name or b"\0" in name or name in (b".", b"..")


def _shown(name: bytes) -> str:
    return printable(name.decode("utf-8", "surrogateescape"))


class _XattrReader:
    """Sets of extended attributes by index."""

    def __init__(self, superblock: Superblock, metadata: MetadataReader, file: ImageFile) -> None:
        self._table = superblock.xattr_table
        self._metadata = metadata
        self._file = file
        self._start = 0
        self._count = -1
        self._known: dict[int, dict[bytes, bytes]] = {}

    def read(self, index: int) -> dict[bytes, bytes]:
        known = self._known.get(index)
        if known is None:
            known = self._known[index] = self._read(index)
        return known

    def _read(self, index: int) -> dict[bytes, bytes]:
        if self._count < 0:
            if self._table == layout.NO_TABLE:
                raise self._damaged()
            header = self._file.read(self._table, layout.XATTR_TABLE.size)
            self._start, self._count, _ = layout.XATTR_TABLE.unpack(header)
        # The set's size means different things to different writers; the kernel ignores it too.
        reference, count, _ = self._metadata.read_entry(
            self._table + layout.XATTR_TABLE.size, self._count, layout.XATTR_SET, index
        )
        cursor = self._cursor(reference)
        xattrs: dict[bytes, bytes] = {}
        total = 0
        for _ in range(count):
            type_, length = layout.XATTR_KEY.unpack(cursor.take(layout.XATTR_KEY.size))
            name = cursor.take(length)
            value = self._take_value(cursor)
            prefix = type_ & 0xFF
            if prefix >= len(layout.XATTR_PREFIXES) or b"\0" in name:
                raise self._damaged()
            if type_ & layout.XATTR_OUT_OF_LINE:
                if len(value) != _POINTER.size:
                    raise self._damaged()
                value = self._take_value(self._cursor(*_POINTER.unpack(value)))
            xattrs[layout.XATTR_PREFIXES[prefix] + name] = value
            total += len(name) + len(value) + 1
            if total > _MAX_XATTR_BYTES:
                raise self._damaged()
        return xattrs

    def _take_value(self, cursor: MetadataCursor) -> bytes:
        (size,) = layout.XATTR_VALUE.unpack(cursor.take(layout.XATTR_VALUE.size))
        if size > _MAX_XATTR_BYTES:
            raise self._damaged()
        return cursor.take(size)

    def _cursor(self, reference: int) -> MetadataCursor:
        return MetadataCursor(self._metadata, self._start + (reference >> 16), reference & 0xFFFF)

    def _damaged(self) -> SquashfsError:
        return SquashfsError(f"Damaged image (extended attributes): {self._file.name}")
