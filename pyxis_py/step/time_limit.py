"""A time limit for what takes seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from enroot_py import EnrootError
from pyxis_py.protocol.news import start_ticking, stop_ticking


@contextmanager
def time_limit(seconds: float, what: str) -> Iterator[None]:
    """Give up what happens in the `with` block after some time; 0 for no limit.

    Raises:
        EnrootError: when the time is over.
    """
    if not seconds:
        yield
        return
    deadline = time.monotonic() + seconds

    def look() -> None:
        if time.monotonic() > deadline:
            raise EnrootError(
                f"Importing {what} took longer than {seconds:g} s",
                hint="--container-import-timeout sets the limit",
            )

    start_ticking(look)
    try:
        yield
    finally:
        stop_ticking(look)
