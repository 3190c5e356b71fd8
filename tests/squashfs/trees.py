"""Trees for images: made by hand, at random, and compared entry by entry."""

from __future__ import annotations

import hashlib
import os
import random
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from enroot_py.layers.entry import ContentSink, Node, new_directory, walk
from enroot_py.squashfs.options import SquashfsOptions, parse_squash_options
from enroot_py.squashfs.reader import SquashfsImage
from enroot_py.squashfs.writer import SquashfsWriter

KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


class Source:
    """Bytes as a `ByteSource` that knows what is left."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def take(self, size: int) -> bytes:
        assert size <= self.left
        self._position += size
        return self._data[self._position - size : self._position]


@dataclass(frozen=True)
class Item:
    """One name of a tree; `link` makes it a second name of an earlier one."""

    path: bytes
    kind: int = stat.S_IFREG
    mode: int = 0o644
    mtime: int = 1_700_000_000
    content: bytes = b""
    extents: tuple[tuple[int, int], ...] | None = None
    target: bytes = b""
    device: tuple[int, int] = (0, 0)
    xattrs: tuple[tuple[bytes, bytes], ...] = ()
    link: bytes = b""


CAPABILITY = bytes.fromhex("0100000200040000000000000000000000000000")
"""The attribute that `setcap cap_net_bind_service=ep` writes."""

Facts = dict[bytes, tuple[object, ...]]
"""For each path: kind, mode, time, size, content's digest, target, device, attributes, names."""


def build(items: Sequence[Item], sink: ContentSink) -> Node:
    """Give the contents of `items` to a sink and return their tree; parents come first."""
    root = new_directory(mtime=1)
    nodes = {b"": root}
    for item in items:
        parent, _, name = item.path.rpartition(b"/")
        children = nodes[parent].children
        assert children is not None
        if item.link:
            node = nodes[item.link]
        else:
            node = Node(item.kind, item.mode, mtime=item.mtime)
            node.target, node.device = item.target, item.device
            node.xattrs = dict(item.xattrs) or None
            node.size = len(item.content)
            if item.content:
                source = Source(_stored(item))
                node.content = sink.add(source, node.size, item.extents)
                assert not source.left
        nodes[item.path] = node
        children[name] = node
    return root


def _stored(item: Item) -> bytes:
    if item.extents is None:
        return item.content
    return b"".join(item.content[at : at + size] for at, size in item.extents)


def write_image(
    path: Path,
    items: Sequence[Item],
    options: SquashfsOptions | str = "",
    *,
    processors: int = 2,
    mkfs_time: int = 0,
) -> Path:
    """Write an image of `items`; options may be in mksquashfs's words."""
    if isinstance(options, str):
        options = parse_squash_options(options) if options else SquashfsOptions()
    with (
        open(path, "w+b", buffering=0) as file,
        SquashfsWriter(file, options, processors=processors, mkfs_time=mkfs_time) as writer,
    ):
        size = writer.finish(build(items, writer))
    assert size == path.stat().st_size
    return path


def facts_of_items(items: Sequence[Item]) -> Facts:
    """What an image of `items` must hold."""
    by_path = {item.path: item for item in items}
    names: dict[bytes, list[bytes]] = {}
    for item in items:
        names.setdefault(item.link or item.path, []).append(item.path)
    return {
        item.path: _facts(
            by_path[item.link or item.path],
            by_path[item.link or item.path].content,
            names[item.link or item.path],
        )
        for item in items
    }


def facts_of_image(path: Path) -> Facts:
    """What our reader finds in an image."""
    with SquashfsImage(str(path)) as image:
        names: dict[int, list[bytes]] = {}
        for name, node in image.walk():
            names.setdefault(id(node), []).append(name)
        return {
            name: _facts(node, read_all(image, node), names[id(node)])
            for name, node in image.walk()
        }


def read_all(image: SquashfsImage, node: Node) -> bytes:
    """A file's content, holes filled in."""
    if node.kind != stat.S_IFREG:
        return b""
    pieces = image.read_content(node.content, node.size)
    return b"".join(piece if isinstance(piece, bytes) else bytes(piece) for piece in pieces)


def _facts(entry: Node | Item, content: bytes, names: list[bytes]) -> tuple[object, ...]:
    mode = 0o777 if entry.kind == stat.S_IFLNK else entry.mode
    return (
        KINDS[entry.kind],
        oct(mode),
        min(max(entry.mtime, 0), 2**32 - 1),
        len(content),
        hashlib.sha256(content).hexdigest(),
        entry.target,
        entry.device,
        sorted(dict(entry.xattrs or {}).items()),
        sorted(names),
    )


def facts_of_folder(path: Path, *, xattrs: bool = True) -> Facts:
    """What lies in a folder on disk, for comparing with what another tool makes of an image."""
    names: dict[tuple[int, int], list[bytes]] = {}
    found: list[tuple[bytes, os.stat_result]] = []
    for name, full in _walk_folder(os.fsencode(path), b""):
        status = os.lstat(full)
        found.append((name, status))
        key = (status.st_dev, status.st_ino)
        if stat.S_ISDIR(status.st_mode):
            key = (-1, len(found))
        names.setdefault(key, []).append(name)
    by_name = {name: sorted(group) for group in names.values() for name in group}
    return {
        name: _folder_facts(os.fsencode(path) + b"/" + name, status, by_name[name], xattrs)
        for name, status in found
    }


def _walk_folder(base: bytes, path: bytes) -> Iterator[tuple[bytes, bytes]]:
    with os.scandir(base + b"/" + path) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            name = path + b"/" + entry.name if path else entry.name
            yield name, entry.path
            if entry.is_dir(follow_symlinks=False):
                yield from _walk_folder(base, name)


def _folder_facts(
    full: bytes, status: os.stat_result, names: list[bytes], xattrs: bool
) -> tuple[object, ...]:
    kind = stat.S_IFMT(status.st_mode)
    content = b""
    if kind == stat.S_IFREG:
        with open(full, "rb") as file:
            content = file.read()
    device = (0, 0)
    if kind in (stat.S_IFCHR, stat.S_IFBLK):
        device = (os.major(status.st_rdev), os.minor(status.st_rdev))
    found = []
    if xattrs:
        found = [
            (os.fsencode(name), os.getxattr(full, name, follow_symlinks=False))
            for name in os.listxattr(full, follow_symlinks=False)
        ]
    return (
        KINDS[kind],
        oct(stat.S_IMODE(status.st_mode)),
        status.st_mtime_ns // 10**9,
        len(content),
        hashlib.sha256(content).hexdigest(),
        os.readlink(full) if kind == stat.S_IFLNK else b"",
        device,
        sorted(found),
        names,
    )


def random_items(seed: int, *, count: int = 120, block_size: int = 131072) -> list[Item]:
    """A tree with everything that the format knows, the same for the same seed."""
    rng = random.Random(seed)
    folders = [b""]
    items: list[Item] = []
    contents = [b"x", rng.randbytes(rng.randrange(1, 5000))]
    for number in range(count):
        parent = rng.choice(folders)
        path = (parent + b"/" if parent else b"") + _random_name(rng, number)
        mode = rng.choice([0o644, 0o755, 0o4755, 0o2711, 0o1777, 0, 0o400, 0o7777])
        common = {"mode": mode, "mtime": rng.choice([0, 1, 2**31, 2**32 - 1, 1_600_000_000])}
        kind = rng.randrange(14)
        if kind < 3:
            folders.append(path)
            items.append(Item(path, stat.S_IFDIR, **common, xattrs=_random_xattrs(rng)))
        elif kind < 9:
            content = _random_content(rng, contents, block_size)
            items.append(Item(path, **common, content=content, xattrs=_random_xattrs(rng)))
        elif kind == 9 and any(item.kind != stat.S_IFDIR and not item.link for item in items):
            first = rng.choice([i for i in items if i.kind != stat.S_IFDIR and not i.link])
            items.append(Item(path, link=first.path, kind=first.kind))
        elif kind == 10:
            target = rng.randbytes(rng.randrange(1, 300)).replace(b"\0", b"/")
            items.append(Item(path, stat.S_IFLNK, mtime=common["mtime"], target=target))
        elif kind == 11:
            device = (rng.randrange(4096), rng.randrange(1 << 20))
            items.append(
                Item(path, rng.choice([stat.S_IFCHR, stat.S_IFBLK]), **common, device=device)
            )
        else:
            items.append(Item(path, rng.choice([stat.S_IFIFO, stat.S_IFSOCK]), **common))
    return items


def _random_name(rng: random.Random, number: int) -> bytes:
    length = rng.choice([1, 3, 12, 40, 246])
    name = rng.randbytes(length).replace(b"\0", b"a").replace(b"/", b"b")
    # A number keeps them apart, whatever the rest.
    return b"%d-" % number + name


def _random_xattrs(rng: random.Random) -> tuple[tuple[bytes, bytes], ...]:
    if rng.random() < 0.8:
        return ()
    values = [b"", b"short", b"a value that is stored once for all" * 3, rng.randbytes(40)]
    names = rng.sample([b"user.a", b"user.long.name", b"trusted.t", b"security.capability"], 2)
    return tuple(
        (name, CAPABILITY if name.startswith(b"security") else rng.choice(values)) for name in names
    )


def _random_content(rng: random.Random, earlier: list[bytes], block_size: int) -> bytes:
    choice = rng.random()
    if choice < 0.25:
        return rng.choice(earlier)
    if choice < 0.35:
        return b""
    size = rng.choice([3, 700, block_size - 1, block_size, block_size + 1, 3 * block_size + 77])
    data = rng.randbytes(size) if rng.random() < 0.5 else bytes([rng.randrange(256)]) * size
    if choice < 0.6:
        # Blocks of zeros at the beginning, in the middle or at the end.
        at = rng.randrange(max(1, len(data) // 2))
        data = data[:at] + bytes(rng.randrange(3 * block_size)) + data[at:]
    earlier.append(data)
    return data


def count_nodes(root: Node) -> int:
    """Entries below the root."""
    return sum(1 for _ in walk(root))
