"""Fetch an image's layers, several at a time, while the first of them are flattened already.

Layers are begun in the order in which they will be wanted, topmost first. Small ones run side by
side up to the number of connections; of large ones only a few do, so that they arrive one after the
other and flattening never waits for all of them at once (docs/adr/0017-overlapped-import.md).
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import BinaryIO

from enroot_py.errors import EnrootError
from enroot_py.image.digest import Digest
from enroot_py.image.manifest import Descriptor
from enroot_py.operations.progress import Progress

Obtain = Callable[[Descriptor, Callable[[int], None]], BinaryIO]
"""Fetches and verifies one layer and opens it. Its second argument is to be told every now and then
how many bytes have arrived; it raises CalledOff when they are not wanted any more."""

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
    """

    def __init__(
        self,
        layers: Sequence[Descriptor],
        found: dict[Digest, BinaryIO],
        obtain: Obtain,
        *,
        connections: int,
        progress: Progress,
    ) -> None:
        self._files = found
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
        progress.begin(layers, self._missing)

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
        self._pool.shutdown(cancel_futures=True)
        for file in self._files.values():
            file.close()

    def is_called_off(self) -> bool:
        """Say whether nobody wants the rest any more."""
        return self._stopped

    def open(self, layer: Descriptor) -> BinaryIO:
        """Wait for a layer and open it, at its beginning; may be called again.

        Raises:
            EnrootError: whatever kept any layer from arriving, as soon as it is known.
        """
        with self._changed:
            while layer.digest not in self._files:
                self._raise_failure()
                self._changed.wait()
            held = self._files[layer.digest]
        # A descriptor with an offset of its own, of a file that may not have a name any more.
        fd = os.open(f"/proc/self/fd/{held.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
        return open(fd, "rb", buffering=0)

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
            file = self._obtain(layer, lambda count: self._report(layer, count))
        finally:
            with self._changed:
                del self._running[layer.digest]
                self._changed.notify_all()
        with self._changed:
            self._files[layer.digest] = file
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


def _allow_descriptors(count: int) -> None:
    """Raise the soft limit on open files for an image with very many layers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + 256
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
