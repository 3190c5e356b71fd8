"""What Python does to a process that becomes another program, undone.

Where the locale is C it sets LC_CTYPE (PEP 538); it ignores SIGPIPE and SIGXFSZ, which exec passes
on; and it turns SIGINT into an exception, which users see as a traceback.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal  # `signal` itself imports enum

_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")


def forget_interpreter() -> None:
    """Have the environment as it was given, and die of SIGINT as other programs do."""
    forget_locale()
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def forget_locale() -> None:
    """Have the environment as it was given."""
    if os.environ.get("LC_CTYPE") not in _COERCED:
        return
    try:
        # The kernel's copy of what the process began with: setenv does not reach it.
        with open("/proc/self/environ", "rb") as file:
            block = file.read()
    except OSError:
        return
    del os.environ["LC_CTYPE"]
    for entry in block.split(b"\0"):
        if entry.startswith(b"LC_CTYPE="):
            os.environ["LC_CTYPE"] = os.fsdecode(entry.partition(b"=")[2])


def restore_interrupt() -> None:
    """Have SIGINT as an exception again: for what has to clean up behind itself."""
    if _signal.getsignal(_signal.SIGINT) is _signal.SIG_DFL:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def restore_pipes() -> None:
    """Leave to the program that is executed next what closed pipes and too large files do to it."""
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
