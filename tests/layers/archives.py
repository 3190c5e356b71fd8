"""Tar archives made by hand, down to the last byte, and a sink that keeps contents in memory."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Sequence
from typing import BinaryIO

import zstandard

from enroot_py.layers.entry import ByteSource, Limits, Node, walk
from enroot_py.layers.merge import LayerMerger

BLOCK = 512
END = bytes(2 * BLOCK)

FILE, LINK, SYMLINK, CHAR, BLOCK_DEVICE, DIRECTORY, FIFO = b"0", b"1", b"2", b"3", b"4", b"5", b"6"


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % BLOCK)


def header(
    name: bytes,
    size: int = 0,
    kind: bytes = FILE,
    *,
    mode: int = 0o644,
    uid: bytes = b"0000000\0",
    gid: bytes = b"0000000\0",
    mtime: int | bytes = 0,
    link: bytes = b"",
    magic: bytes = b"ustar\x0000",
    prefix: bytes = b"",
    size_field: bytes | None = None,
    patch: tuple[int, bytes] | None = None,
) -> bytes:
    """One header block; `size_field` and `patch` (offset, bytes) override what it would hold."""
    block = bytearray(BLOCK)
    fields = (
        (0, name),
        (100, b"%07o\0" % mode),
        (108, uid),
        (116, gid),
        (124, b"%011o\0" % size if size_field is None else size_field),
        (136, mtime if isinstance(mtime, bytes) else b"%011o\0" % mtime),
        (148, b" " * 8),
        (156, kind),
        (157, link),
        (257, magic),
        (345, prefix),
    )
    for offset, value in fields if patch is None else (*fields, patch):
        block[offset : offset + len(value)] = value
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def pax_record(key: bytes, value: bytes) -> bytes:
    length = len(key) + len(value) + 3
    total = length + len(str(length))
    total = length + len(str(total))
    return b"%d %s=%s\n" % (total, key, value)


def pax(*records: tuple[bytes, bytes], kind: bytes = b"x") -> bytes:
    data = b"".join(pax_record(key, value) for key, value in records)
    return header(b"PaxHeader", len(data), kind) + padded(data)


def long_name(name: bytes, kind: bytes = b"L") -> bytes:
    return header(b"././@LongLink", len(name) + 1, kind) + padded(name + b"\0")


def file(name: bytes, data: bytes = b"", **fields: object) -> bytes:
    return header(name, len(data), **fields) + padded(data)  # type: ignore[arg-type]


def directory(name: bytes, mode: int = 0o755, **fields: object) -> bytes:
    return header(name, 0, DIRECTORY, mode=mode, **fields)  # type: ignore[arg-type]


def symlink(name: bytes, target: bytes, **fields: object) -> bytes:
    return header(name, 0, SYMLINK, mode=0o777, link=target, **fields)  # type: ignore[arg-type]


def hard_link(name: bytes, target: bytes, **fields: object) -> bytes:
    return header(name, 0, LINK, link=target, **fields)  # type: ignore[arg-type]


def archive(*members: bytes) -> bytes:
    return b"".join(members) + END


def opener(data: bytes) -> Callable[[], BinaryIO]:
    return lambda: io.BytesIO(data)


def gzipped(data: bytes) -> bytes:
    return gzip.compress(data, 1, mtime=0)


def zstandard_frame(data: bytes, **options: object) -> bytes:
    return zstandard.ZstdCompressor(level=1, **options).compress(data)  # type: ignore[arg-type]


class MemorySink:
    """Keeps contents as bytes, holes filled with zeros; counts what it was given."""

    def __init__(self) -> None:
        self.added = 0
        self.extents: list[list[tuple[int, int]]] = []

    def add(
        self, source: ByteSource, size: int, extents: Sequence[tuple[int, int]] | None = None
    ) -> object:
        assert size > 0
        self.added += size
        if extents is None:
            return source.take(size)
        self.extents.append(list(extents))
        content = bytearray(size)
        for offset, length in extents:
            content[offset : offset + length] = source.take(length)
        return bytes(content)


def merge(*layers: bytes, limits: Limits | None = None, sink: MemorySink | None = None) -> Node:
    """Merge layers given base layer first, as manifests list them."""
    merger = LayerMerger(sink or MemorySink(), limits=limits)
    for number in reversed(range(len(layers))):
        merger.add_layer(opener(layers[number]), f"layer {number}")
    return merger.finish()


def contents(root: Node) -> dict[bytes, object]:
    """Files as their bytes, links as `-> target`, directories as None, all by path."""
    found: dict[bytes, object] = {}
    for path, node in walk(root):
        if node.children is not None:
            found[path] = None
        elif node.target:
            found[path] = b"-> " + node.target
        else:
            found[path] = node.content or b""
    return found
