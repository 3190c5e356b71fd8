"""An event loop for one thread: descriptors, timers and signals.

asyncio would do, but importing it takes longer than a whole `srun` should; and PID 1 of a pod has
to reap children that it never heard of, which asyncio's child watchers do not expect.
"""

from __future__ import annotations

import heapq
import itertools
import os
import selectors
import signal
import time
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    Callback = Callable[[], None]


class Timer:
    """Something that happens later, unless it is cancelled."""

    __slots__ = ("callback", "cancelled", "due")

    def __init__(self, due: float, callback: Callback) -> None:
        self.due = due
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Let it not happen."""
        self.cancelled = True


class Loop:
    """Descriptors that are ready, timers that are due, signals that came: one callback each.

    Attributes:
        stopped: whether `stop` was called; `run` returns then.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._selector = selectors.DefaultSelector()
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._signals: dict[int, Callback] = {}
        self._wakeup: tuple[int, int] | None = None

    def on_readable(self, fd: int, callback: Callback | None) -> None:
        """Call back while `fd` can be read (or is at its end); None to stop that."""
        self._watch(self._readers, fd, callback)

    def on_writable(self, fd: int, callback: Callback | None) -> None:
        """Call back while `fd` can be written; None to stop that."""
        self._watch(self._writers, fd, callback)

    def _watch(self, table: dict[int, Callback], fd: int, callback: Callback | None) -> None:
        before = self._mask(fd)
        if callback is None:
            table.pop(fd, None)
        else:
            table[fd] = callback
        after = self._mask(fd)
        if before and after:
            self._selector.modify(fd, after)
        elif after:
            self._selector.register(fd, after)
        elif before:
            self._selector.unregister(fd)

    def _mask(self, fd: int) -> int:
        read = selectors.EVENT_READ if fd in self._readers else 0
        return read | (selectors.EVENT_WRITE if fd in self._writers else 0)

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """Call back once, `seconds` from now."""
        timer = Timer(time.monotonic() + seconds, callback)
        heapq.heappush(self._timers, (timer.due, next(self._order), timer))
        return timer

    def on_signal(self, number: int, callback: Callback) -> None:
        """Call back, outside of any handler, after a signal came."""
        if self._wakeup is None:
            self._wakeup = os.pipe()
            for fd in self._wakeup:
                os.set_blocking(fd, False)
            signal.set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False)
            self.on_readable(self._wakeup[0], self._take_signals)
        self._signals[number] = callback
        signal.signal(number, _noted)
        # Calls that a signal interrupts are restarted; the loop hears of it through the pipe.
        signal.siginterrupt(number, False)

    def _take_signals(self) -> None:
        assert self._wakeup is not None
        try:
            numbers = os.read(self._wakeup[0], 4096)
        except BlockingIOError:
            return
        for number in dict.fromkeys(numbers):
            callback = self._signals.get(number)
            if callback is not None:
                callback()

    def run(self) -> None:
        """Call back what is due until `stop`."""
        while not self.stopped:
            for key, mask in self._selector.select(self._patience()):
                # A callback may have closed what stands behind it in the list.
                if mask & selectors.EVENT_READ:
                    self._readers.get(key.fd, _nothing)()
                if mask & selectors.EVENT_WRITE:
                    self._writers.get(key.fd, _nothing)()
            self._run_timers()

    def _patience(self) -> float | None:
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return max(0.0, self._timers[0][0] - time.monotonic())

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now and not self.stopped:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                timer.callback()

    def stop(self) -> None:
        """Let `run` return."""
        self.stopped = True

    def close(self) -> None:
        """Give signals and descriptors of the loop back."""
        if self._wakeup is not None:
            signal.set_wakeup_fd(-1)
            for fd in self._wakeup:
                os.close(fd)
        self._selector.close()


def _noted(number: int, frame: object) -> None:
    """The signal is in the wakeup pipe already."""


def _nothing() -> None:
    """Stands for a callback that another one took away."""


def leave(status: int) -> NoReturn:
    """End the process with `status`, after what was printed has gone out."""
    import sys

    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # whoever read it has gone
        pass
    os._exit(status)
