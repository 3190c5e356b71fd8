"""Results go to stdout, from here alone: lines, tables, JSON; and questions to the terminal.

Names and remote texts are escaped, so that nobody's file name drives a terminal; JSON holds them as
they are.
"""

from __future__ import annotations

import sys

from enroot_py.errors import UsageError
from enroot_py.log import error as log_error
from enroot_py.log import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from enroot_py.errors import EnrootError


def write_line(text: str) -> None:
    """Write one line; control characters in it are escaped."""
    write_text(printable(text) + "\n")


def write_text(text: str) -> None:
    """Write text as it is. Characters that the locale cannot show come out as `\\xNN` escapes."""
    if sys.stdout is None:
        return
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def write_table(rows: Sequence[Sequence[str]], *, indent: str = "") -> None:
    """Write rows in columns as wide as their widest cell, two blanks apart.

    Rows may be short. The last column is not padded, and no line ends in blanks.

    Source: util-linux 2.38, `column -t`.
    """
    shown = [[printable(cell) for cell in row] for row in rows]
    columns = max((len(row) for row in shown), default=0)
    widths = [max(len(row[at]) for row in shown if at < len(row)) for at in range(columns)]
    for row in shown:
        cells = [cell.ljust(widths[at]) for at, cell in enumerate(row)]
        write_text((indent + "  ".join(cells)).rstrip() + "\n")


def write_json(value: object) -> None:
    """Write one JSON document, indented, in ASCII."""
    import json

    write_text(json.dumps(value, indent=2) + "\n")


def report(error: EnrootError) -> None:
    """Show an error and its hint on stderr."""
    log_error(str(error))
    if error.hint:
        write_message(f"        {printable(error.hint)}\n")


def write_message(text: str) -> None:
    """Write to stderr; where that fails, the exit status has to do."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        pass


def confirm(question: str) -> bool:
    """Read an answer from stdin: yes is `y` or `Y`. The question is shown if that is a terminal.

    Raises:
        UsageError: at the end of the input: there is nobody to answer.

    Source: enroot 4.1.2 runtime.sh, runtime::remove().
    """
    if sys.stdin is not None and sys.stdin.isatty():
        write_message(f"{printable(question)} [y/N] ")
    answer = sys.stdin.readline() if sys.stdin is not None else ""
    if not answer:
        raise UsageError(f"No answer to: {question}", hint="--force does not ask")
    return answer.strip() in ("y", "Y")
