"""What work that takes seconds needs and a start must not pay for: libraries, and a time limit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from enroot_py import EnrootError


def add_libraries() -> None:
    """Let an interpreter that was started without site-packages (-S) find them."""
    if sys.flags.no_site:
        import site

        site.main()


@contextmanager
def time_limit(seconds: float, what: str) -> Iterator[None]:
    """Give up what happens in the `with` block after some time; 0 for no limit.

    Raises:
        EnrootError: when the time is over.
    """
    if not seconds:
        yield
        return
    import signal

    def give_up(number: int, frame: FrameType | None) -> None:
        raise EnrootError(
            f"Importing {what} took longer than {seconds:g} s",
            hint="--container-import-timeout sets the limit",
        )

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
