"""The tree of an image, and the seam between what reads one and what writes one.

Sources (registry layers, an OCI layout, a daemon's export, a directory) build a tree of `Node`s and
hand the bytes of regular files to a `ContentSink` while they stream past; sinks (the squashfs
writer, the directory writer) keep the bytes, answer with a token, and write the tree at the end.
Bytes come first and the tree last because only then is it known which names a file has: a later,
lower layer may declare that a parent is a symbolic link, and a hard link may reach back to a file
that an upper layer replaced (docs/adr/0002-contents-then-tree.md).

Pure: no files, no system calls.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from enroot_py import log

OVERLAY_XATTRS = (b"trusted.overlay.", b"user.overlay.", b"user.fuseoverlayfs.")
"""Prefixes of the attributes by which overlay file systems mark what is hidden. No image has them:
they would hide files where it becomes a lower layer."""


@dataclass(frozen=True)
class Limits:
    """What the layers of one image may bring at most; 0 means any number.

    Attributes:
        max_bytes: bytes of all archives together, uncompressed.
        max_entries: entries of all archives together.
        max_ratio: how many bytes one byte of a layer may expand to, once it came to `ratio_floor`;
            of no interest where `max_bytes` says how large an image may be.
        ratio_floor: bytes of one layer below which its ratio is of no interest.
        max_sparse_bytes: apparent sizes of all sparse files together; a lastlog of a machine with
            large user numbers has more than a tebibyte.
    """

    max_bytes: int = 0
    max_entries: int = 5_000_000
    max_ratio: int = 200
    ratio_floor: int = 2 << 30
    max_sparse_bytes: int = 4 << 40


class ByteSource(Protocol):
    """A forward-only stream that gives exactly the bytes asked for."""

    def take(self, size: int) -> bytes:
        """Return exactly `size` bytes; raises LayerError if the stream ends before."""
        ...


class ContentSink(Protocol):
    """Keeps the bytes of regular files."""

    def add(
        self, source: ByteSource, size: int, extents: Sequence[tuple[int, int]] | None = None
    ) -> object:
        """Take the content of one regular file from `source`.

        Args:
            source: gives the file's bytes, or for a sparse file those of its extents in order.
            size: the file's apparent size in bytes, never 0.
            extents: for a sparse file its `(offset, length)` pairs, ascending, not overlapping,
                all within `size`; everything else reads as zeros. None for an ordinary file.

        Returns:
            A token to be stored as `Node.content`. Exactly the bytes of the file (for a sparse
            file: the sum of its extents' lengths) have been taken from `source`.
        """
        ...


class Node:
    """One inode. Hard links are several names for the same object.

    Attributes:
        kind: the file type as in st_mode: S_IFREG, S_IFDIR, S_IFLNK, S_IFCHR, S_IFBLK, S_IFIFO
            or S_IFSOCK.
        mode: permission bits, 0o0000 to 0o7777.
        uid, gid: owner and group as the source has them; sinks decide what becomes of them.
        mtime: seconds since 1970, may be negative.
        size: bytes of a regular file, else 0.
        target: bytes of a symbolic link's target, else b"".
        device: (major, minor) of a device node, else (0, 0).
        xattrs: name to value, names with their namespace (b"user.note"), or None for none.
        content: the sink's token for a regular file's bytes; None for an empty file.
        children: name to node of a directory, in order of arrival; None for anything else.
        implied: a directory that no source declared, but that something lies in.
    """

    __slots__ = (
        "children",
        "content",
        "device",
        "gid",
        "implied",
        "kind",
        "mode",
        "mtime",
        "size",
        "target",
        "uid",
        "xattrs",
    )

    def __init__(self, kind: int, mode: int, *, uid: int = 0, gid: int = 0, mtime: int = 0) -> None:
        self.kind = kind
        self.mode = mode
        self.uid = uid
        self.gid = gid
        self.mtime = mtime
        self.size = 0
        self.target = b""
        self.device = (0, 0)
        self.xattrs: dict[bytes, bytes] | None = None
        self.content: object = None
        self.children: dict[bytes, Node] | None = {} if kind == stat.S_IFDIR else None
        self.implied = False


def new_directory(*, mode: int = 0o755, mtime: int = 0, implied: bool = False) -> Node:
    """Return an empty directory owned by root."""
    node = Node(stat.S_IFDIR, mode, mtime=mtime)
    node.implied = implied
    return node


def kept_mode(node: Node, *, as_root: bool) -> int:
    """Return the permission bits with which a file is extracted.

    Owners can read everything, search and change directories, and execute what anybody may
    execute. An ordinary user's files lose set-user-ID and set-group-ID, which would lend his own
    identity to whoever can reach them; directories keep them. All other bits stay as they are.

    Args:
        as_root: the one who extracts is the superuser.

    Source: enroot 4.1.2 src/common.sh, common::fixperms; unsquashfs, which takes the bits away too.
    """
    if node.kind == stat.S_IFDIR:
        return node.mode | 0o700
    mode = node.mode if as_root else node.mode & ~(stat.S_ISUID | stat.S_ISGID)
    return mode | (0o500 if mode & 0o111 else 0o400)


def quoted(name: bytes) -> str:
    """Return a name or path for a message: on one line, harmless to a terminal, not too long."""
    text = os.fsdecode(name if len(name) <= 300 else name[:300] + b"...")
    return f"'{log.printable(text)}'"


def walk(root: Node) -> Iterator[tuple[bytes, Node]]:
    """Yield `(path, node)` of everything below `root`, parents first, names in byte order.

    Paths have no leading slash; the root itself is not among them. Never recurses, so that the
    depth of a tree is bounded by memory alone.
    """
    stack: list[tuple[bytes, Node]] = [(b"", root)]
    while stack:
        path, node = stack.pop()
        if path:
            yield path, node
        if node.children:
            prefix = path + b"/" if path else b""
            for name in sorted(node.children, reverse=True):
                stack.append((prefix + name, node.children[name]))
