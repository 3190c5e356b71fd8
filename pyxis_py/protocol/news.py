"""Tell whoever waits for a step what it is waiting for, where that takes long.

A step of a cluster may have hundreds of nodes that all do the same: one of them speaks for all, the
others only where they take much longer.

Ticks come from a timer's signal and not from a thread: a container is started by fork.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` itself imports enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from pyxis_py.job import JobFacts

_TICK = 0.25  # seconds
_PATIENCE = 3.0  # seconds of silence
_PATIENCE_OF_OTHERS = 30.0  # seconds, on all nodes but the first
_LATER = (10.0, 20.0, 30.0, 60.0)  # seconds between further lines; the last one repeats
_LONGEST = 300  # characters of a line

_calls: list[Callable[[], None]] = []


def start_ticking(call: Callable[[], None]) -> None:
    """Call something four times a second, in the main thread, until `stop_ticking`."""
    _calls.append(call)
    if len(_calls) == 1:
        _signal.signal(_signal.SIGALRM, _tick)
        _signal.setitimer(_signal.ITIMER_REAL, _TICK, _TICK)


def stop_ticking(call: Callable[[], None]) -> None:
    """Do not call it any more."""
    _calls.remove(call)
    if not _calls:
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)


def _tick(number: int, frame: FrameType | None) -> None:
    for call in tuple(_calls):
        call()


class News:
    """What a step is waiting for. To be closed."""

    def __init__(self, send: Callable[[str], None], *, where: str = "", patience: float) -> None:
        """Say nothing as yet.

        Args:
            send: takes a line.
            where: goes before each line.
            patience: seconds that a stage may take without a line.
        """
        self._send, self._where, self._patience = send, where, patience
        self._stage = self._detail = ""
        self._due = self._patience
        self._elapsed = 0.0
        self._said = 0
        start_ticking(self._look)

    def stage(self, text: str) -> None:
        """A further part of the work begins."""
        self._stage, self._detail = text, ""
        self._due, self._elapsed, self._said = self._patience, 0.0, 0

    def detail(self, text: str) -> None:
        """How far it is."""
        self._detail = text

    def close(self) -> None:
        """The work is done."""
        stop_ticking(self._look)

    def _look(self) -> None:
        self._elapsed += _TICK
        if not self._stage or self._elapsed < self._due:
            return
        self._due += _LATER[min(self._said, len(_LATER) - 1)]
        self._said += 1
        text = f"{self._where}still {self._stage}"
        self._send(_plain(f"{text}: {self._detail}" if self._detail else text))


def _plain(text: str) -> str:
    """One line that cannot drive a terminal: parts of it are what a registry says."""
    return "".join(c if c.isprintable() else "?" for c in text[:_LONGEST])


def news_of_step(job: JobFacts, send: Callable[[str], None]) -> News:
    """Return the news of a step on this node."""
    several = job.tasks > job.local_tasks
    first = job.environ.get("SLURM_NODEID", "0") == "0"
    node = job.environ.get("SLURMD_NODENAME", "")
    return News(
        send,
        where=f"{node}: " if several and node else "",
        patience=_PATIENCE if first else _PATIENCE_OF_OTHERS,
    )
