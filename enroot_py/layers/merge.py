"""Flatten layers into one tree, each read once, topmost first.

Topmost first, because then most of what upper layers replaced or removed is known while a lower
layer streams past, and its bytes are skipped without a copy. That knowledge goes by the paths as
they are written and may err; therefore nothing is decided from it but which bytes to keep. What
the members do is recorded, and when all layers are in, replayed bottom to top on a tree with the
full rules (tree.py). Bytes that turn out to be wanted after all (of a replaced file that has a hard
link, say) are fetched by reading that layer once more. See docs/adr/0002-contents-then-tree.md.

Pure: the layers come as functions that open them.
"""

from __future__ import annotations

import gc
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

from enroot_py import log
from enroot_py.errors import LayerError, LimitError
from enroot_py.layers.entry import ContentSink, Limits, Node, quoted
from enroot_py.layers.tar_stream import TarStream, open_archive
from enroot_py.layers.tree import Tree
from enroot_py.layers.whiteout import (
    PREFIX,
    Operation,
    Shadow,
    is_reserved_directory,
    split_path,
    whiteout,
)

_DEVICES = (stat.S_IFCHR, stat.S_IFBLK)


class _Skipped(NamedTuple):
    """Stands for the content of a file whose bytes were skipped: a member of a layer."""

    layer: int
    member: int


class _Layer(NamedTuple):
    open: Callable[[], BinaryIO]
    name: str
    operations: list[Operation]


class LayerMerger:
    """Merges the layers of one image.

    Args:
        sink: takes the bytes of regular files as they stream past.
        limits: what all layers together may bring.
    """

    def __init__(self, sink: ContentSink, *, limits: Limits | None = None) -> None:
        self._sink = sink
        self._limits = limits or Limits()
        self._layers: list[_Layer] = []
        self._shadow = Shadow()
        self._entries = self._bytes = self._sparse_bytes = 0
        self._devices: set[bytes] = set()

    def add_layer(self, open_layer: Callable[[], BinaryIO], name: str) -> None:
        """Read one layer: the topmost one first, the lowest one last.

        Args:
            open_layer: opens the layer; called again if bytes that were skipped are needed.
            name: what messages call the layer.

        Raises:
            LayerError: the layer is malformed, or a path leads out of the image.
            LimitError: the layers bring more than the limits allow.
        """
        if self._layers:
            self._shadow.add(self._layers[-1].operations)
        layer = _Layer(open_layer, name, [])
        self._layers.append(layer)
        with open_archive(open_layer, name, self._limits, earlier=self._bytes) as archive:
            try:
                with _collector_paused():
                    self._record(archive, layer)
            except LayerError as error:
                raise _in_layer(error, name) from None
            self._bytes += archive.offset

    def finish(self) -> Node:
        """Build the tree of all layers and return its root.

        Raises:
            LayerError: a path cannot be resolved, or a hard link has no target.
        """
        if self._devices:
            log.warn(
                f"Left out device nodes ({len(self._devices)}): an ordinary user cannot make "
                f"them; the first was {quoted(min(self._devices))}"
            )
        tree = Tree()
        for layer in reversed(self._layers):
            try:
                with _collector_paused():
                    self._replay(layer.operations, tree)
            except LayerError as error:
                raise _in_layer(error, layer.name) from None
        self._fetch_skipped(tree.root)
        return tree.root

    def _record(self, archive: TarStream, layer: _Layer) -> None:
        """Note what a layer's members do, and keep the contents that are not hidden."""
        shadow, sink, record = self._shadow, self._sink, layer.operations.append
        allowed = (self._limits.max_entries or sys.maxsize) - self._entries
        parent: bytes | None = None
        ignored = covered = False
        hidden: set[bytes] = set()
        member = 0
        for member, (path, what, _) in enumerate(archive.members(), 1):
            directory, base = split_path(path)
            # Neighbours in an archive mostly share their directory: the same object is kept for
            # all of them, and what is to be known of it is looked up once.
            if directory != parent:
                parent = directory
                ignored = _is_left_out(parent + b"/") or is_reserved_directory(parent)
                covered, hidden = shadow.covers(parent), shadow.names(parent)
            if member > allowed:
                raise LimitError(
                    f"the layers have more than {self._limits.max_entries} entries",
                    hint="raise ENROOT_MAX_IMAGE_ENTRIES if this image can be trusted",
                )
            if ignored:
                continue
            if base[:4] == PREFIX:
                if (operation := whiteout(parent, base)) is not None:
                    record(operation)
                continue
            if isinstance(what, Node):
                if what.size:
                    if archive.extents is not None:
                        self._count_sparse(what.size)
                    if covered or base in hidden:
                        what.content = _Skipped(len(self._layers) - 1, member)
                    else:
                        what.content = sink.add(archive, what.size, archive.extents)
                elif what.kind in _DEVICES:
                    self._devices.add(_join(parent, base))
                    continue
            record((parent, base, what if isinstance(what, Node) else _join(*split_path(what))))
        self._entries += member

    def _replay(self, operations: list[Operation], tree: Tree) -> None:
        """Apply what a layer's members do, in their order; empties the list."""
        tree.begin_layer(whiteouts=any(what is None for _, _, what in operations))
        place = tree.place
        operations.reverse()
        while operations:
            parent, base, what = operations.pop()
            if isinstance(what, Node):
                place(parent, base, what)
            elif what is None:
                tree.remove(parent, base)
            elif not (tree.link(parent, base, what) or what in self._devices or _is_left_out(what)):
                raise LayerError(
                    f"{quoted(_join(parent, base))} is a hard link to a file that is not there: "
                    f"{quoted(what)}"
                )

    def _fetch_skipped(self, root: Node) -> None:
        """Read again the layers that have bytes which are needed, contrary to expectation."""
        wanted: dict[int, dict[int, Node]] = {}
        pending = [root]
        while pending:
            node = pending.pop()
            if node.children:
                pending += node.children.values()
            elif type(node.content) is _Skipped:
                wanted.setdefault(node.content.layer, {})[node.content.member] = node
        for number, nodes in sorted(wanted.items()):
            layer = self._layers[number]
            with open_archive(layer.open, layer.name, self._limits) as archive:
                for member, (_, what, _) in enumerate(archive.members(), 1):
                    if member in nodes:
                        node = nodes.pop(member)
                        if not isinstance(what, Node) or what.size != node.size:
                            raise LayerError(f"{layer.name}: the layer changed between two reads")
                        node.content = self._sink.add(archive, node.size, archive.extents)
                    if not nodes:
                        break
            if nodes:
                raise LayerError(f"{layer.name}: the layer changed between two reads")

    def _count_sparse(self, size: int) -> None:
        self._sparse_bytes += size
        if self._sparse_bytes > self._limits.max_sparse_bytes > 0:
            raise LimitError(
                f"the sparse files of this image pretend to more than "
                f"{self._limits.max_sparse_bytes} bytes"
            )


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep the garbage collector from looking at all records, again and again, while they pile up.

    They form no cycles, and at a million entries that would be a fifth of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _is_left_out(path: bytes) -> bool:
    """Tell whether a path is below `/dev`, of which no image has anything."""
    return path.startswith(b"dev/")


def _join(parent: bytes, base: bytes) -> bytes:
    return parent + b"/" + base if parent else base


def _in_layer(error: LayerError, name: str) -> LayerError:
    """Return the error with the layer's name in front, if it isn't there yet."""
    text = str(error)
    return type(error)(text if text.startswith(name) else f"{name}: {text}", hint=error.hint)
