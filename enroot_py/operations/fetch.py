"""Fetch an image's layers, several at a time, while the first of them are flattened already.

Layers are begun in the order in which they will be wanted, topmost first. Small ones run side by
side up to the number of connections; of large ones only a few do, so that they arrive one after the
other and flattening never waits for all of them at once (docs/adr/0017-overlapped-import.md).
"""

from __future__ import annotations

import io
import os
import resource
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO

from enroot_py.errors import EnrootError
from enroot_py.image.digest import Digest
from enroot_py.image.manifest import Descriptor
from enroot_py.layers.entry import ContentSink, Limits, Node
from enroot_py.layers.merge import LayerMerger
from enroot_py.operations.progress import Progress


@dataclass(frozen=True, slots=True)
class HeldLayer:
    """A layer's bytes, verified: a part of an open file, the whole of it as a rule.

    Attributes:
        file: open for reading.
        start: offset of the first byte.
        size: bytes, if not as many as the layer's descriptor says: it is compressed otherwise.
    """

    file: BinaryIO
    start: int = 0
    size: int = 0


Obtain = Callable[[Descriptor, Callable[[int], None], Callable[[], bool]], HeldLayer]
"""Fetches and verifies one layer and opens it. The second argument is to be told now and then how
many bytes have arrived; it raises CalledOff when they are not wanted any more, which the third one
says."""

_LARGE_AT_ONCE = 3
_SMALL_BYTES = 128 << 20
_MOST_CONNECTIONS = 64


class CalledOff(EnrootError):
    """Another layer failed, or the user gave up: this one is not wanted any more."""


class LayerFetcher:
    """The layers of one image on their way. A context manager, which ends with its threads.

    Args:
        layers: topmost first; one that is there several times is fetched once.
        found: opened layers that need no fetching; closed with this object.
        obtain: fetches one; called from several threads.
        connections: how many at a time; 0 for as many as make sense.
        progress: is told what arrives.
        here: layers that are on this machine, and only verified.
    """

    def __init__(
        self,
        layers: Sequence[Descriptor],
        found: dict[Digest, HeldLayer],
        obtain: Obtain,
        *,
        connections: int,
        progress: Progress,
        here: Collection[Digest] = (),
    ) -> None:
        self._layers = tuple(layers)
        self._held = found
        self._obtain = obtain
        self._progress = progress
        self._missing = list(
            {layer.digest: layer for layer in layers if layer.digest not in found}.values()
        )
        self._changed = threading.Condition()
        self._waiting = [layer.digest for layer in self._missing]
        self._running: dict[Digest, int] = {}
        self._stopped = False
        self._futures: list[Future[None]] = []
        workers = min(connections or _MOST_CONNECTIONS, _MOST_CONNECTIONS, len(self._missing))
        self._pool = ThreadPoolExecutor(max(workers, 1), "layer")
        _allow_descriptors(len(layers))
        progress.begin(layers, self._missing, here=here)

    def __enter__(self) -> LayerFetcher:
        for layer in self._missing:
            future = self._pool.submit(self._fetch, layer)
            future.add_done_callback(self._notify)
            self._futures.append(future)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        # Somebody who wants it to end does not wait until a silent server's time is over.
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self._pool.shutdown(wait=not interrupted, cancel_futures=True)
        for held in self._held.values():
            held.file.close()

    def merge(self, sink: ContentSink, limits: Limits) -> Node:
        """Flatten the layers, each as soon as it is there; returns the tree.

        Raises:
            LayerError: if one is malformed, or they bring more than the limits allow.
            EnrootError: whatever kept a layer from arriving.
        """
        merger = LayerMerger(sink, limits=limits)
        count = len(self._layers)
        for at, layer in enumerate(self._layers):
            name = f"Layer {count - at} of {count} ({layer.digest.hex[:12]})"
            self.wait_for(layer)
            merger.add_layer(lambda layer=layer: self.open(layer), name)  # type: ignore[misc]
        return merger.finish()

    def wait_for(self, layer: Descriptor) -> None:
        """Return when a layer has arrived.

        Raises:
            EnrootError: whatever kept any layer from arriving, as soon as it is known.
        """
        with self._changed:
            while layer.digest not in self._held:
                self._raise_failure()
                self._changed.wait()

    def open(self, layer: Descriptor) -> BinaryIO:
        """Open a layer that has arrived, at its beginning; may be called again."""
        held = self._held[layer.digest]
        # A descriptor with an offset of its own, of a file that may not have a name any more.
        fd = os.open(f"/proc/self/fd/{held.file.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
        size = held.size or layer.size

        def report(count: int) -> None:
            self._progress.flattened(layer, count * layer.size // size if size else 0)

        return LayerFile(fd, held.start, size, report)

    def _raise_failure(self) -> None:
        for future in self._futures:
            if future.done() and not future.cancelled():
                future.result()

    def _notify(self, _: Future[None]) -> None:
        with self._changed:
            self._changed.notify_all()

    def _fetch(self, layer: Descriptor) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._may_begin(layer))
            if self._stopped:
                return
            self._waiting.remove(layer.digest)
            self._running[layer.digest] = layer.size
            self._changed.notify_all()
        try:
            held = self._obtain(
                layer, lambda count: self._report(layer, count), lambda: self._stopped
            )
        finally:
            with self._changed:
                del self._running[layer.digest]
                self._changed.notify_all()
        with self._changed:
            self._held[layer.digest] = held
        self._progress.arrived(layer)

    def _may_begin(self, layer: Descriptor) -> bool:
        if self._waiting[0] != layer.digest:
            return False
        under_way = sum(self._running.values())
        return len(self._running) < _LARGE_AT_ONCE or under_way < _SMALL_BYTES

    def _report(self, layer: Descriptor, count: int) -> None:
        if self._stopped:
            raise CalledOff(f"Not wanted any more: {layer.digest}")
        with self._changed:
            # What is left counts: a large layer that is nearly there makes room for the next.
            left = layer.size - count
            makes_room = self._running.get(layer.digest, 0) - left > _SMALL_BYTES // 8
            if makes_room:
                self._running[layer.digest] = left
                self._changed.notify_all()
        self._progress.received(layer, count)


class LayerFile(io.FileIO):
    """A part of a file, as a file that says how far it has been read. Owns its descriptor."""

    def __init__(self, fd: int, start: int, size: int, report: Callable[[int], None]) -> None:
        super().__init__(fd, "rb")
        self._left = size
        self._size = size
        self._report = report
        self.seek(start)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes of the part, b"" at its end."""
        wanted = self._left if size is None or size < 0 else min(size, self._left)
        data = super().read(wanted) or b""
        self._left -= len(data)
        self._report(self._size - self._left)
        return data


def _allow_descriptors(count: int) -> None:
    """Raise the soft limit on open files for an image with very many layers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + 256
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
