"""What variables of a script stand for, as far as its text tells: `IMAGE=nvcr.io#nvidia/pytorch`.

Nothing is executed: command substitutions and loops leave a variable unknown, and of several
assignments the last one before the line counts. Of an array, all of it is known or nothing.

Pure. Source: POSIX, Shell Command Language, 2.6.2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_COMMAND = r"\$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|`[^`]*`"
WORD_PART = rf"(?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|\\.|{_COMMAND}|[^\s;&|)<>\"'\\`])"
"""A part of a word of a shell: a quoted text, a command, or any other character."""
_ASSIGNMENT = re.compile(
    rf"(?:^|[\s;&({{])([A-Za-z_]\w*)(\+?)="
    rf"(?:\(((?:{WORD_PART}|\s)*)\)|({WORD_PART}*))(?P<rest>[\"'`]?)",
    re.ASCII,
)
_USE = re.compile(
    r"\"?\$\{([A-Za-z_]\w*)\[[@*]\]\}\"?|\$([A-Za-z_]\w*)|\$\{([A-Za-z_]\w*)\}", re.ASCII
)
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
        self._arrays: dict[str, str] = {}

    def copy(self) -> Assignments:
        """Return the same variables, to be changed apart from these."""
        copy = Assignments(self._values)
        copy._arrays = dict(self._arrays)
        return copy

    def note(self, line: str) -> None:
        """Take in the assignments of one line."""
        for name, default in _DEFAULT.findall(line):
            if name not in self._values:
                self._set(name, default)
        for match in _ASSIGNMENT.finditer(line):
            name, more, array, word, rest = match.groups()
            if array is not None:
                self._note_array(name, more, self.substitute(array))
                continue
            # A parenthesis or a quote that is not closed: whatever it is, it is not known.
            expanded = None if rest or word.startswith("(") else self.expand(word)
            before = self._values.pop(name, None) if more else ""
            self._values.pop(name, None)
            self._arrays.pop(name, None)
            if expanded is not None and before is not None:
                self._set(name, before + expanded)
        for name in (*_LOOP.findall(line), *(["PWD"] if _MOVE.search(line) else [])):
            self._values.pop(name, None)

    def _set(self, name: str, value: str) -> None:
        """Give a variable a value, which arrays that were made of it before do not have."""
        self._values[name] = value
        for array, text in list(self._arrays.items()):
            if any(name in match for match in _REFERENCE.findall(text)):
                del self._arrays[array]

    def _note_array(self, name: str, more: str, text: str) -> None:
        before = self._arrays.pop(name, None) if more else ""
        self._values.pop(name, None)
        if before is not None:
            self._arrays[name] = f"{before} {' '.join(text.split())}".strip()

    def substitute(self, line: str) -> str:
        """Return a line with the values of variables that are known, and the others as they are."""

        def replace(match: re.Match[str]) -> str:
            array, plain, braced = match.groups()
            value = self._arrays.get(array) if array else self._values.get(plain or braced)
            return match[0] if value is None else value

        return _USE.sub(replace, line)

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
