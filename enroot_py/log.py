"""Messages of the library, in enroot's form: `[INFO] text`.

The library is silent unless a sink is set; the command line sets one that writes to stderr.
Not for results: those go to stdout, from `cli/` alone.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

INFO, WARN, ERROR = "INFO", "WARN", "ERROR"

_COLOURS = {INFO: "\x1b[94m", WARN: "\x1b[33m", ERROR: "\x1b[31m"}
_sink: Callable[[str, str], None] | None = None
_warned: set[str] = set()


def set_sink(sink: Callable[[str, str], None] | None) -> None:
    """Send every message to `sink(level, text)`; None makes the library silent again."""
    global _sink
    _sink = sink


def info(text: str) -> None:
    """Report progress."""
    if _sink is not None:
        _sink(INFO, text)


def warn(text: str) -> None:
    """Report something that the user should know and that does not stop the work."""
    if _sink is not None:
        _sink(WARN, text)


def warn_once(cause: str, text: str) -> None:
    """Warn, but only the first time that `cause` comes up in this process."""
    if cause not in _warned:
        _warned.add(cause)
        warn(text)


def error(text: str) -> None:
    """Report why the work stopped; only the command line calls this."""
    if _sink is not None:
        _sink(ERROR, text)


def printable(text: str) -> str:
    """Escape control characters, so that names and remote texts cannot drive the terminal.

    Line feeds and tabs are escaped too: a message stays one line. Lone surrogates (bytes that were
    not UTF-8) come out as `\\xNN`.
    """
    if text.isprintable():
        return text
    return "".join(map(_escape, text))


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def format_line(level: str, text: str, *, colour: bool) -> str:
    """Return the line for one message, without a trailing newline."""
    mark = f"{_COLOURS[level]}[{level}]\x1b[0m" if colour else f"[{level}]"
    return f"{mark} {printable(text)}"
