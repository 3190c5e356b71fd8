"""The `enroot` command: find the command, run it, and turn errors into a line and an exit status.

The only place that catches. Commands that programs start in a loop are dispatched straight from the
table; whatever needs a usage text or is not in a hurry goes through click (`application.py`).

Exit statuses: 0 done; 1 an error; 126 and 127 a container's command that cannot be run; 129, 130
and 143 told to end by SIGHUP, SIGINT and SIGTERM; 141 nobody reads the output any more.
"""

from __future__ import annotations

import os
import sys

from enroot_py import log
from enroot_py.cli.output import report, write_message
from enroot_py.cli.parse import CommandLineError, HelpWanted, find_command, parse
from enroot_py.errors import EnrootError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from enroot_py.cli.parse import Arguments
    from enroot_py.cli.table import Command

INTERRUPTED, BROKEN_PIPE = 130, 141


def main(words: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status; never raises an EnrootError.

    Args:
        words: the words after the program's name; those of the process if None.
    """
    log.set_sink(_show)
    try:
        _open_standard_streams()
        status = _dispatch(sys.argv[1:] if words is None else words)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except EnrootError as error:
        return _fail(error)
    except KeyboardInterrupt as error:
        number = getattr(error, "number", 0)  # see termination.py
        status = 128 + number if number else INTERRUPTED
        _leave_threads_behind(status)
        return status
    except BrokenPipeError:
        _abandon_stdout()
        return BROKEN_PIPE
    except (OSError, MemoryError, RuntimeError) as error:
        from enroot_py.cli.system_errors import explain, system_error

        refused = system_error(error)
        if refused is None:
            raise
        _abandon_stdout()
        return _fail(explain(refused))


def _leave_threads_behind(status: int) -> None:
    """End at once if threads are left: downloads, of which one may wait for a silent server.

    What they work on is unfinished files, which the next command clears away.
    """
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(status)


def _open_standard_streams() -> None:
    """Give closed standard streams /dev/null, lest some file of ours gets their number."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _abandon_stdout() -> None:
    """Let what is still buffered vanish: Python flushes stdout once more on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 1)


def run_command(command: Command, arguments: Arguments) -> int:
    """Run a command's handler and return its exit status."""
    if not command.direct:
        from enroot_py.cli.termination import end_in_order

        end_in_order()
    module_name, _, function = command.handler.partition(":")
    # `__import__` returns the module itself when it is given a list of names to look for in it.
    module = __import__(module_name, fromlist=[function])
    handler: Callable[[Arguments], int] = getattr(module, function)
    return handler(arguments)


def _dispatch(words: Sequence[str]) -> int:
    try:
        command, rest = find_command(words)
        arguments = parse(command, rest) if command.direct else None
    except (HelpWanted, CommandLineError):
        arguments = None  # click finds the same once more, and has the usage text for it
    if arguments is None:
        from enroot_py.cli.application import read_command_line

        parsed = read_command_line(words)
        if parsed is None:
            return 0
        command, arguments = parsed
    return run_command(command, arguments)


def _fail(error: EnrootError) -> int:
    report(error)
    return error.exit_code


def _show(level: str, text: str) -> None:
    write_message(log.format_line(level, text, colour=_wants_colour()) + "\n")


def _wants_colour() -> bool:
    environ = os.environ
    if environ.get("NO_COLOR") or environ.get("TERM", "dumb") == "dumb":
        return False
    return sys.stderr is not None and sys.stderr.isatty()
