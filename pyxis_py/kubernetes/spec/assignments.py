"""What variables of a script stand for, as far as its text tells: `IMAGE=nvcr.io#nvidia/pytorch`.

Nothing is executed: command substitutions, arrays and loops leave a variable unknown, and of
several assignments the last one before the line counts.

Pure. Source: POSIX, Shell Command Language, 2.6.2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

WORD_PART = r"(?:\"[^\"]*\"|'[^']*'|\\.|\$\([^()]*\)|[^\s;&|)<>\"'\\])"
"""A part of a word of a shell: a quoted text, a command, or any other character."""
_ASSIGNMENT = re.compile(rf"(?:^|[\s;&({{])([A-Za-z_]\w*)(\+?)=({WORD_PART}*)", re.ASCII)
_PART = re.compile(r"'([^']*)'|\"([^\"]*)\"|\\(.)|([^'\"\\]+)")
_REFERENCE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?([-=])([^{}$]*))?\})", re.ASCII)
_DEFAULT = re.compile(r":\s+\"?\$\{([A-Za-z_]\w*):?=([^{}$]*)\}", re.ASCII)
_LOOP = re.compile(
    r"(?:^|[\s;&])(?:for|select|read|mapfile)\s+(?:-\w+\s+)*([A-Za-z_]\w*)", re.ASCII
)
_HERE = re.compile(r"\$\(pwd\)|`pwd`")
_MOVE = re.compile(r"(?:^|[\s;&|({])(?:cd|pushd|popd)(?:$|[\s;&|)])")


class Assignments:
    """The variables that lines have set so far."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._values = dict(known)

    def note(self, line: str) -> None:
        """Take in the assignments of one line."""
        for name, default in _DEFAULT.findall(line):
            self._values.setdefault(name, default)
        for name, more, value in _ASSIGNMENT.findall(line):
            expanded = None if more or value.startswith("(") else self.expand(value)
            if expanded is None:
                self._values.pop(name, None)
            else:
                self._values[name] = expanded
        for name in (*_LOOP.findall(line), *(["PWD"] if _MOVE.search(line) else [])):
            self._values.pop(name, None)

    def expand(self, text: str) -> str | None:
        """Return a word without its quotes, with values for variables; None if one is unknown."""
        found = []
        for literal, quoted, escaped, plain in _PART.findall(text):
            if literal or escaped:
                found.append(literal or escaped)
            elif quoted or plain:
                part = self._replace(quoted or plain)
                if part is None:
                    return None
                found.append(part)
        return "".join(found)

    def _replace(self, text: str) -> str | None:
        unknown = []

        def replace(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            value = self._values.get(name, match[4] if match[3] else None)
            if value is None:
                unknown.append(name)
            return value or ""

        expanded = _REFERENCE.sub(replace, _HERE.sub("$PWD", text))
        return None if unknown or "$" in expanded or "`" in expanded else expanded
