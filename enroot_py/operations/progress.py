"""How an import goes, for whoever waits: bars on a terminal, lines elsewhere.

The library never writes to a terminal unless its caller passes a `TerminalProgress`; by default it
says a line for each layer through `log`, which is silent without a sink.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from enroot_py import log
from enroot_py.image.digest import Digest
from enroot_py.image.manifest import Descriptor
from enroot_py.store.file_system import format_size

if TYPE_CHECKING:
    from rich.progress import TaskID


class Progress:
    """Is told how an import goes. A context manager; this one says a line for each layer.

    Methods may be called from several threads.
    """

    def __init__(self) -> None:
        self._missing: set[Digest] = set()
        self._here: frozenset[Digest] = frozenset()
        self._lock = threading.Lock()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def begin(
        self,
        layers: Sequence[Descriptor],
        missing: Sequence[Descriptor],
        *,
        here: Collection[Digest] = (),
    ) -> None:
        """The image's layers are known.

        Args:
            layers: all of them.
            missing: those to be fetched or verified.
            here: those that are on this machine, and only to be verified.
        """
        count = len({layer.digest for layer in layers})
        with self._lock:
            self._missing = {layer.digest for layer in missing}
            self._here = frozenset(here)
        for verb, local in (("Downloading", False), ("Verifying", True)):
            part = [layer for layer in missing if (layer.digest in here) == local]
            if part:
                size = format_size(sum(layer.size for layer in part))
                log.info(f"{verb} {len(part)} of {count} layers ({size})")
        if layers and not missing:
            log.info("Found all layers in the cache")

    def received(self, layer: Descriptor, count: int) -> None:
        """Of a layer, `count` bytes have arrived so far; fewer than before if it starts anew."""

    def arrived(self, layer: Descriptor) -> None:
        """A layer is complete and verified."""
        with self._lock:
            self._missing.discard(layer.digest)
            left = len(self._missing)
        still = f", {left} to go" if left else ""
        done = "Verified" if layer.digest in self._here else "Downloaded"
        log.info(f"{done} {_short(layer)} ({format_size(layer.size)}){still}")

    def flattened(self, layer: Descriptor, count: int) -> None:
        """Of a layer, `count` of its compressed bytes have been flattened so far."""

    def stage(self, text: str) -> None:
        """Another part of the work begins."""
        log.info(text)

    def close(self) -> None:
        """Nothing more will be told."""


class TerminalProgress(Progress):
    """Shows a bar for each layer that is on its way, and one for the flattening."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        # 44 ms that only somebody at a terminal pays.
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
        from rich.progress import Progress as Bars

        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            console=Console(file=stream),
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._flattened: dict[str, int] = {}
        self._flattening: TaskID | None = None
        self._stage = ""

    def begin(
        self,
        layers: Sequence[Descriptor],
        missing: Sequence[Descriptor],
        *,
        here: Collection[Digest] = (),
    ) -> None:
        """Show an idle bar for the flattening; layers get theirs when they begin to arrive."""
        super().begin(layers, missing, here=here)
        self._flattening = self._bars.add_task(
            "flattening".ljust(12), total=sum(layer.size for layer in layers) or None
        )
        self._bars.start()

    def received(self, layer: Descriptor, count: int) -> None:
        """Move the layer's bar."""
        key = str(layer.digest)
        with self._lock:
            if key not in self._tasks:
                self._tasks[key] = self._bars.add_task(_short(layer), total=layer.size)
        self._bars.update(self._tasks[key], completed=count)

    def arrived(self, layer: Descriptor) -> None:
        """Take the layer's bar away."""
        with self._lock:
            task = self._tasks.pop(str(layer.digest), None)
        if task is not None:
            self._bars.remove_task(task)

    def flattened(self, layer: Descriptor, count: int) -> None:
        """Move the bar of the flattening."""
        self._flattened[str(layer.digest)] = count
        if self._flattening is not None:
            self._bars.update(self._flattening, completed=sum(self._flattened.values()))

    def close(self) -> None:
        """Take all bars away."""
        self._bars.stop()


def open_progress(stream: TextIO | None = None) -> Progress:
    """Return the progress for a stream, stderr by default: bars if it is a terminal, else lines."""
    stream = sys.stderr if stream is None else stream
    if stream is not None and stream.isatty():
        return TerminalProgress(stream)
    return Progress()


def _short(layer: Descriptor) -> str:
    return layer.digest.hex[:12]
