"""End in order when told to: a batch system says SIGTERM before it kills.

For commands that may have a large unfinished folder to clear away, not for those that become a
container: there, signals are the container's. Off the start path.
"""

from __future__ import annotations

import signal
from types import FrameType


class Terminated(KeyboardInterrupt):
    """A signal says to end; goes the way of an interrupt from the keyboard.

    Attributes:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number


def end_in_order() -> None:
    """From now on, SIGTERM and SIGHUP raise Terminated; one that is ignored (nohup) stays so."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _raise)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Terminated(number)
