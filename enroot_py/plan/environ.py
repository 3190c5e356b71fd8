"""Environment files (`/etc/environment`, `environ.d`, what hooks append to) and `--env`. Pure.

One variable a line, `NAME=value`; blanks before it, comments and lines of any other form are
skipped, and so are ENROOT_ names, which are reserved. A pair of quotes around the whole value is
taken away; nothing else is special. Where a file comes from an image or from `environ.d`, `${NAME}`
stands for a variable of the host's environment.

Some values cannot be written so: those with a line feed, and in substituted files those with a
`${`. They are annotated by a comment on the next line that holds the value as it is, a line feed
written as `\\012` and a backslash as `\\134`:

    GREETING=hello
    # enroot-exact: GREETING=hello\\012world

The annotation counts only if the line before it is `NAME=` and the value's first line, so that
editing that line by hand has its effect. The original skips the comment and gets the first line.
"""

from __future__ import annotations

from enroot_py.errors import InvalidEnvironmentError
from enroot_py.plan.fstab import substitute, unescape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NAME_START = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
_NAME = _NAME_START | frozenset("0123456789")
_EXACT = "# enroot-exact: "
_BLANKS = " \t\r\v\f"


def is_variable_name(name: str) -> bool:
    """Tell whether `name` can be the name of a shell variable."""
    return name[:1] in _NAME_START and name != "" and not set(name) - _NAME


def parse_environ(text: str, environ: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """Return the (name, value) pairs of an environment file, in order; a name may come twice.

    Args:
        text: the file's content.
        environ: what `${NAME}` refers to, an unset name being empty; None to leave it alone.

    Source: enroot 4.1.2 src/common.sh, envsubst() and envfmt().
    """
    pairs: list[tuple[str, str]] = []
    written = ""  # the last variable's line, as written
    for line in text.split("\n"):
        line = line.lstrip(_BLANKS)
        if line.startswith(_EXACT):
            name, _, value = line[len(_EXACT) :].partition("=")
            value = unescape(value)
            if pairs and written == f"{name}={value}".partition("\n")[0]:
                pairs[-1] = (name, value)
            continue
        name, equals, value = line.partition("=")
        if not equals or not is_variable_name(name) or name.startswith("ENROOT_"):
            continue
        written = line
        if environ is not None:
            value = substitute(value, environ)
        pairs.append((name, _unquote(value)))
    return tuple(pairs)


def _unquote(value: str) -> str:
    inner = value.rstrip(_BLANKS)
    if len(inner) > 1 and inner[0] in "\"'" and inner[-1] in "\"'":
        return inner[1:-1]
    return value


def format_environ(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the text of an environment file that parses (unsubstituted) to the same pairs."""
    lines = []
    for name, value in pairs:
        first = value.partition("\n")[0]
        if first != value:
            exact = value.replace("\\", "\\134").replace("\n", "\\012")
            lines += [f"{name}={first}\n", f"{_EXACT}{name}={exact}\n"]
        elif _unquote(value) != value:
            lines.append(f'{name}="{value}"\n')
        else:
            lines.append(f"{name}={value}\n")
    return "".join(lines)


def parse_assignment(text: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Parse what `--env` takes: NAME=value, or NAME for the host's value ("" if unset).

    The value is taken as it is, quotes and all.

    Raises:
        InvalidEnvironmentError: if there is no valid name.

    Source: enroot 4.1.2 src/runtime.sh, start() and _do_environ().
    """
    name, equals, value = text.partition("=")
    if not is_variable_name(name) or "\0" in value:
        raise InvalidEnvironmentError(f"Invalid variable: {text}", hint="expected NAME[=VALUE]")
    return name, value if equals else environ.get(name, "")
