"""SIGTERM before a task has joined its container: what it dies of, but in good order.

Slurm sends it to a step that is cancelled, some seconds before SIGKILL. A task that waits for the
container, maybe for a long import, has a meeting place to leave; once it has joined it has none.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from types import FrameType
    from typing import NoReturn
else:
    import _signal  # `signal` itself imports enum


class Terminated(BaseException):
    """SIGTERM has come; no Exception, as it passes by whatever handles errors."""


def hold_back() -> None:
    """Have SIGTERM wait, and be raised as Terminated once `let_through` is called.

    Where it is ignored it stays so.
    """
    _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGTERM,))
    if _signal.getsignal(_signal.SIGTERM) is _signal.SIG_DFL:
        _signal.signal(_signal.SIGTERM, _raise)


def let_through() -> None:
    """End what `hold_back` has begun."""
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGTERM,))


def forget() -> None:
    """Die of SIGTERM at once again, as programs do."""
    if _signal.getsignal(_signal.SIGTERM) is _raise:
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)


def ignore() -> None:
    """Go on in spite of SIGTERM: what is left to do is to be done."""
    _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)


def die() -> NoReturn:
    """End by SIGTERM."""
    _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
    os.kill(os.getpid(), _signal.SIGTERM)
    os._exit(128 + _signal.SIGTERM)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Terminated
