"""A tar archive as a stream: member by member, each header looked at once, data handed out once.

`tarfile` takes ten times as long and keeps every header; this reader makes one `Node` a member and
nothing else. What it accepts is what layers hold: ustar, GNU and PAX archives, each with long
names, sparse files, extended attributes and numbers of 64 bits. Anything malformed is refused with
the layer's name and the byte offset of the header.

How an archive may end: two blocks of zeros, or one at the very end. An archive that just stops
after a member's content is taken with a warning, as Docker and umoci take it: its digest has been
verified, so its author made it so (`umoci insert --opaque` does). Whatever follows the zero blocks
is read, so that a damaged end of the compressed data is noticed, and ignored, with a warning if it
is not zeros.
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from enroot_py import log
from enroot_py.errors import LayerError, LimitError
from enroot_py.layers.compression import ChunkSource, ReadAhead, decompress
from enroot_py.layers.entry import Limits, Node, quoted
from enroot_py.layers.tar_header import (
    BLOCK,
    MAX_EXTENTS,
    MAX_HEADER_BYTES,
    check_extents,
    check_id,
    has_valid_checksum,
    parse_decimal,
    parse_number,
    parse_octal,
    parse_old_sparse,
    parse_owner,
    parse_pax,
    parse_sparse_list,
    parse_xattrs,
    read_sparse_blocks,
)

Member = tuple[bytes, "Node | bytes", int]
"""A member: its name as the archive has it; its node, or the target's name of a hard link; the
bytes of content that follow, to be taken or left."""

_ZEROS = bytes(BLOCK)
# name, mode + uid + gid, size, mtime, type, link name, magic, prefix
_HEADER = struct.Struct("100s24s12s12s8xc100s6s82x155s12x")
_KINDS = {
    b"0": stat.S_IFREG,
    b"1": 0,  # a hard link; has no node of its own
    b"\0": stat.S_IFREG,
    b"7": stat.S_IFREG,
    b"S": stat.S_IFREG,
    b"2": stat.S_IFLNK,
    b"3": stat.S_IFCHR,
    b"4": stat.S_IFBLK,
    b"5": stat.S_IFDIR,
    b"6": stat.S_IFIFO,
    b"D": stat.S_IFDIR,
}
_SPARSE_KEYS = {b"GNU.sparse.map", b"GNU.sparse.major"}
_MAX_TARGET = 4095
_MAX_OWNERS = 4096


@contextmanager
def open_archive(
    open_layer: Callable[[], BinaryIO], name: str, limits: Limits, *, earlier: int = 0
) -> Iterator[TarStream]:
    """Open a layer and read its archive, decompressing ahead of the reader in a thread.

    Args:
        open_layer: returns the layer, which is closed at the end.
        name: what messages call the layer.
        limits: for the bytes that it expands to.
        earlier: uncompressed bytes that other layers have used up already.
    """
    with open_layer() as file:
        chunks = ReadAhead(decompress(file, name, limits, earlier=earlier))
        try:
            yield TarStream(chunks, name)
        finally:
            chunks.close()


class TarStream:
    """Reads one archive from a source of chunks.

    Iterate over `members()`; between two of them, `take` what is wanted of the content of the
    current one, and the rest is skipped.

    Attributes:
        extents: of the current member, if it is a sparse file; see ContentSink.add.
    """

    def __init__(self, chunks: ChunkSource, name: str) -> None:
        self.extents: list[tuple[int, int]] | None = None
        self._chunks = chunks
        self._name = name
        self._chunk = b""
        self._position = 0
        self._base = 0  # offset in the archive of the current chunk
        self._globals: dict[bytes, bytes] = {}
        self._pax: dict[bytes, bytes] = {}
        self._long_name = b""
        self._long_link = b""
        self._extended = False  # something above tells about the next member
        self._owners: dict[bytes, tuple[int, int, int]] = {}

    @property
    def offset(self) -> int:
        """Bytes of the archive consumed so far."""
        return self._base + self._position

    def take(self, size: int) -> bytes:
        """Return exactly `size` bytes; raises LayerError if the archive ends before."""
        position = self._position
        end = position + size
        if end <= len(self._chunk):
            self._position = end
            return self._chunk[position:end]
        parts = [self._chunk[position:]]
        missing = size - len(parts[0])
        while missing:
            self._next_chunk()
            part = self._chunk[:missing]
            self._position = len(part)
            missing -= len(part)
            parts.append(part)
        return b"".join(parts)

    def skip(self, size: int) -> None:
        """Pass over exactly `size` bytes; raises LayerError if the archive ends before."""
        while self._position + size > len(self._chunk):
            size -= len(self._chunk) - self._position
            self._next_chunk()
        self._position += size

    def _next_chunk(self) -> None:
        chunk = self._chunks.read()
        if not chunk:
            raise LayerError(f"{self._name}: the archive is truncated at byte {self.offset}")
        self._base += len(self._chunk)
        self._position = 0
        self._chunk = chunk

    def members(self) -> Iterator[Member]:
        """Yield every member in order. Device nodes are among them; names are not checked.

        Raises:
            LayerError: the archive is malformed or truncated; says at which byte.
        """
        start = 0
        try:
            while True:
                start = self._base + self._position
                header = self._read_header()
                if header is None:
                    return
                member = self._parse(header)
                if member is None:
                    continue
                stored = member[2]
                end = self._base + self._position + stored
                yield member
                left = end - self._base - self._position
                assert left in (0, stored), "a member's content is taken as a whole or not at all"
                if left:
                    self.skip(left)
                if stored % BLOCK and not self._skip_padding(-stored % BLOCK):
                    log.warn(f"{self._name}: the archive has no end mark")
                    return
        except LimitError:
            raise
        except LayerError as error:
            if str(error).startswith(self._name):
                raise
            raise LayerError(f"{self._name}: {error} (member at byte {start})") from None

    def _skip_padding(self, size: int) -> bool:
        """Pass over what fills up a member's last block; False if the archive ends instead."""
        while self._position + size > len(self._chunk):
            size -= len(self._chunk) - self._position
            chunk = self._chunks.read()
            self._base += len(self._chunk)
            self._chunk, self._position = chunk, 0
            if not chunk:
                return False
        self._position += size
        return True

    def _read_header(self) -> bytes | None:
        """Return the next header, None at the end of the archive."""
        position = self._position
        header = self._chunk[position : position + BLOCK]
        if len(header) == BLOCK:
            self._position = position + BLOCK
        else:
            header = self._read_block()
            if len(header) < BLOCK:
                if header:
                    raise LayerError(f"the archive is truncated at byte {self.offset}")
                if self.offset:
                    log.warn(f"{self._name}: the archive has no end mark")
                return None
        if header == _ZEROS:
            self._finish()
            return None
        return header

    def _read_block(self) -> bytes:
        """Return the next block, fewer bytes only where the archive ends."""
        block = self._chunk[self._position : self._position + BLOCK]
        self._position += len(block)
        while len(block) < BLOCK:
            chunk = self._chunks.read()
            if not chunk:
                break
            self._base += len(self._chunk)
            part = chunk[: BLOCK - len(block)]
            self._chunk, self._position = chunk, len(part)
            block += part
        return block

    def _finish(self) -> None:
        second = self._read_block()
        if second.strip(b"\0"):
            raise LayerError("a single block of zeros lies between members")
        rest = self._chunk[self._position :]
        junk = rest.count(0) != len(rest)
        self._position = len(self._chunk)
        while chunk := self._chunks.read():
            junk = junk or chunk.count(0) != len(chunk)
            self._base += len(chunk)
        if junk:
            log.warn(f"{self._name}: ignored what follows the end of the archive")

    def _parse(self, header: bytes) -> Member | None:
        """Return the member of a header, None for headers that only tell about others."""
        if not has_valid_checksum(header):
            raise LayerError("the checksum of a header is wrong")
        name, owner, field, time, flag, link, magic, prefix = _HEADER.unpack(header)
        if field[11] in b"\0 " and field[:11].isdigit():
            size = parse_octal(field[:11], "a size")
        else:
            size = parse_number(field, "a size")
            if size < 0:
                raise LayerError(f"a size is negative: {size}")
        if flag in b"xgXLKV":
            self._read_extension(flag, size)
            return None
        name = name.partition(b"\0")[0]
        if prefix[0] and magic == b"ustar\0":
            if header[508:] == b"tar\0":  # the star format has two times at the prefix's end
                prefix = prefix[:131]
            name = prefix.partition(b"\0")[0] + b"/" + name
        link = link.partition(b"\0")[0]
        ids = self._owners.get(owner)
        if ids is None:
            ids = self._parse_owner(owner)
        if time[11] in b"\0 " and time[:11].isdigit():
            mtime = parse_octal(time[:11], "a time")
        else:
            mtime = parse_number(time, "a time")
        kind = _KINDS.get(flag)
        if kind is None:
            raise LayerError(f"unknown type of member: {flag!r}")
        node = Node(kind, ids[0], uid=ids[1], gid=ids[2], mtime=mtime)
        self.extents = None
        if self._extended:
            name, link, size = self._extend(name, link, size, node)
        if kind != stat.S_IFREG or flag in b"S\0" or self.extents is not None:
            return self._special(flag, name, link, size, node, header)
        node.size = size
        return name, node, size

    def _parse_owner(self, field: bytes) -> tuple[int, int, int]:
        """Parse mode, uid and gid, of which an archive has only few different combinations."""
        if len(self._owners) >= _MAX_OWNERS:
            self._owners.clear()
        self._owners[field] = ids = parse_owner(field)
        return ids

    def _special(
        self, flag: bytes, name: bytes, link: bytes, size: int, node: Node, header: bytes
    ) -> Member:
        """Complete a member that is not an ordinary file."""
        kind = node.kind
        if flag == b"1":
            return name, link, 0
        if kind == stat.S_IFLNK:
            if not 0 < len(link) <= _MAX_TARGET:
                raise LayerError(f"the target of {quoted(name)} has {len(link)} bytes")
            node.target = link
        elif kind in (stat.S_IFCHR, stat.S_IFBLK):
            major = parse_number(header[329:337], "a device number")
            node.device = (major, parse_number(header[337:345], "a device number"))
        elif kind == stat.S_IFREG:
            if flag == b"\0" and name.endswith(b"/"):  # how archives before POSIX mark them
                folder = Node(stat.S_IFDIR, node.mode, uid=node.uid, gid=node.gid, mtime=node.mtime)
                folder.xattrs = node.xattrs
                return name, folder, 0
            if flag == b"S":
                extents, node.size = self._read_old_sparse(header)
                self.extents = check_extents(extents, node.size, size)
            elif self.extents is None:
                node.size = size
            if self.extents == [(0, node.size)]:
                self.extents = None
            return name, node, size
        # All other types are nothing but a header, whatever size that claims, except for GNU's
        # listing of a folder: here all readers of layers agree.
        return name, node, size if flag == b"D" else 0

    def _read_old_sparse(self, header: bytes) -> tuple[list[tuple[int, int]], int]:
        extents = parse_old_sparse(header, 386, 4)
        more = header[482]
        while more:
            if len(extents) > MAX_EXTENTS:
                raise LayerError("a sparse map has too many extents")
            block = self.take(BLOCK)
            extents += parse_old_sparse(block, 0, 21)
            more = block[504]
        return extents, parse_number(header[483:495], "the size of a sparse file")

    def _read_extension(self, flag: bytes, size: int) -> None:
        """Read a header that tells about the next member (x, L, K) or about all others (g)."""
        if flag == b"V":  # the name of a volume
            self.skip(size + -size % BLOCK)
            return
        if size > MAX_HEADER_BYTES:
            raise LayerError(f"an extended header has {size} bytes")
        data = self.take(size)
        self.skip(-size % BLOCK)
        if flag == b"L":
            self._long_name = data.partition(b"\0")[0]
        elif flag == b"K":
            self._long_link = data.partition(b"\0")[0]
        elif flag == b"g":
            parse_pax(data, self._globals)
            for key in (b"path", b"linkpath", b"size", b"GNU.sparse.map"):
                if key in self._globals:
                    raise LayerError(f"a global header sets the {key.decode()} of every member")
        else:
            self._pax = dict(self._globals)
            parse_pax(data, self._pax)
        self._extended = True

    def _extend(self, name: bytes, link: bytes, size: int, node: Node) -> tuple[bytes, bytes, int]:
        """Apply long names and PAX records; returns name, link name and size."""
        pax = self._pax or self._globals
        path = _one_name(self._long_name, pax.get(b"path", b""))
        target = _one_name(self._long_link, pax.get(b"linkpath", b""))
        self._pax, self._long_name, self._long_link = {}, b"", b""
        self._extended = bool(self._globals)
        if pax:
            if b"size" in pax:
                size = parse_decimal(pax[b"size"], "a size")
            if b"mtime" in pax:
                node.mtime = parse_decimal(pax[b"mtime"], "a time")
            if b"uid" in pax:
                node.uid = check_id(parse_decimal(pax[b"uid"], "a user id"))
            if b"gid" in pax:
                node.gid = check_id(parse_decimal(pax[b"gid"], "a group id"))
            if size < 0:
                raise LayerError(f"a size is negative: {size}")
            node.xattrs = parse_xattrs(pax)
            if node.kind == stat.S_IFREG and (
                b"GNU.sparse.map" in pax or b"GNU.sparse.major" in pax
            ):
                path, size = self._read_pax_sparse(pax, path, size, node)
        return path or name, target or link, size

    def _read_pax_sparse(
        self, pax: dict[bytes, bytes], path: bytes, size: int, node: Node
    ) -> tuple[bytes, int]:
        """Read a sparse map of version 0.0, 0.1 or 1.0; returns name and bytes stored."""
        real_size = pax.get(b"GNU.sparse.realsize") or pax.get(b"GNU.sparse.size", b"")
        node.size = parse_decimal(real_size, "the size of a sparse file")
        if pax.get(b"GNU.sparse.major", b"0") == b"0":
            extents = parse_sparse_list(pax.get(b"GNU.sparse.map", b""))
        elif (pax[b"GNU.sparse.major"], pax.get(b"GNU.sparse.minor")) == (b"1", b"0"):
            start = self.offset
            extents = read_sparse_blocks(lambda: self.take(BLOCK))
            size -= self.offset - start
        else:
            raise LayerError("a sparse file of an unknown version")
        self.extents = check_extents(extents, node.size, size)
        return pax.get(b"GNU.sparse.name") or path, size


def _one_name(long: bytes, pax: bytes) -> bytes:
    """Return the name that a GNU long name or a PAX record gives; programs differ on which wins."""
    if long and pax and long != pax:
        raise LayerError(f"a member has two names: {quoted(long)} and {quoted(pax)}")
    if b"\0" in pax:
        raise LayerError(f"a name contains a zero byte: {quoted(pax)}")
    return long or pax
