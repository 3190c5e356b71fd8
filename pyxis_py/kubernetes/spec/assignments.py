"""What variables of a script stand for, as far as its text tells: `IMAGE=nvcr.io#nvidia/pytorch`.

Nothing is executed: command substitutions, arrays and loops leave a variable unknown, and of
several assignments the last one before the line counts.

Pure. Source: POSIX, Shell Command Language, 2.6.2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_ASSIGNMENT = re.compile(
    r"""(?:^|[\s;&])([A-Za-z_]\w*)=("[^"`]*"|'[^']*'|[^\s;&|()<>`'"]*)(?=$|[\s;&])""", re.ASCII
)
_REFERENCE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?([-=])([^{}$]*))?\})", re.ASCII)
_DEFAULT = re.compile(r":\s+\"?\$\{([A-Za-z_]\w*):?=([^{}$]*)\}", re.ASCII)


class Assignments:
    """The variables that lines have set so far."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._values = dict(known)

    def note(self, line: str) -> None:
        """Take in the assignments of one line."""
        for name, default in _DEFAULT.findall(line):
            self._values.setdefault(name, default)
        for name, value in _ASSIGNMENT.findall(line):
            expanded = self.expand(value) if not value.startswith("'") else value[1:-1]
            if expanded is None:
                self._values.pop(name, None)
            else:
                self._values[name] = expanded

    def expand(self, text: str) -> str | None:
        """Return a word without its quotes, with values for variables; None if one is unknown."""
        if text.startswith("'"):
            return text.strip("'")
        unknown = []

        def replace(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            value = self._values.get(name, match[4] if match[3] else None)
            if value is None:
                unknown.append(name)
            return value or ""

        expanded = _REFERENCE.sub(replace, text.replace('"', ""))
        return None if unknown or "$" in expanded or "`" in expanded else expanded
