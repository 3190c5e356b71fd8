"""The lines of a shell script: without comments, joined where a shell joins them.

Quotes, substitutions and here-documents are followed from line to line, so that a quote in a
comment or in a here-document opens nothing. An assignment of several lines is given as a whole
beside its lines, as those are looked at one by one like any others.

Pure. Source: POSIX, Shell Command Language, 2.2, 2.3, 2.7.4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST = 500
"""Lines of an assignment; what is open for longer is something that this module mistook."""

_HERE_DOCUMENT = re.compile(r"<<(-?)[ \t]*(?:\"([^\"]+)\"|'([^']+)'|\\?([^\s;&|<>()\"'\\`]+))")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_BLANKS = " \t"
_BEFORE_COMMENTS = " \t;&|("  # and no `}` or `)`: an image may be `${REGISTRY}#name`
_BEFORE_WORDS = " \t;&|({`"
_CLOSING = {'"': '"', "'": "'", "$": "'", "(": ")", "`": "`", "{": "}"}


@dataclass(frozen=True, slots=True)
class ShellLine:
    """A line of a script.

    Attributes:
        number: of its first line in the script, counted from 1.
        text: without comments.
        assigned: where to look for assignments: the text, but for an assignment of several
            lines, which is with its last one as a whole.
        inner: whether it begins in a here-document or a quoted text; what is assigned there is
            not assigned in the script.
    """

    number: int
    text: str
    assigned: str
    inner: bool = False


class _Quotes:
    """What is open at a place of a script: quotes and parentheses, the innermost one last."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.documents: list[tuple[str, bool]] = []
        self.assignment = 0  # where the last one begins in the line without comments
        self._before_assignment = -1  # how many were open before the assignment that is read

    def read(self, line: str, offset: int) -> tuple[str, bool]:
        """Follow a line; return it without comments, and whether the next one continues it.

        Args:
            offset: length of the lines before that this one continues.
        """
        kept: list[str] = []
        carried = len(self.open) if self.quoted() else -1
        position = 0
        while position < len(line):
            before = line[position - 1] if position else " "
            if line[position] == "#" and not self.quoted() and before in _BEFORE_COMMENTS:
                break
            if line[position] == "#" and len(self.open) == carried and before in _BLANKS:
                # A text of several lines is, more often than not, a script in the script.
                end = line.find(_CLOSING[self.open[-1]], position)
                position = len(line) if end < 0 else end
                continue
            if line[position] == "\\" and self.open[-1:] != ["'"]:
                if position + 1 == len(line):
                    return "".join(kept), True
                length = 2
            else:
                none = self._before_assignment < 0
                length = self._step(line, position, before)
                if none and self._before_assignment >= 0:
                    self.assignment = offset + sum(map(len, kept))
            kept.append(line[position : position + length])
            position += length
            carried = carried if len(self.open) >= carried else -1
        if not self.within_assignment():
            self._before_assignment = -1
        return "".join(kept), False

    def quoted(self) -> bool:
        """Whether blanks and comments are text here."""
        return bool(self.open) and self.open[-1] in "\"'${"

    def _step(self, line: str, position: int, before: str) -> int:
        """Take in what stands at a position; return how long it is."""
        character, inner = line[position], self.open[-1] if self.open else ""
        if inner and character == _CLOSING[inner]:
            self.open.pop()
        elif inner in ("'", "$"):
            pass
        elif line.startswith(("$(", "${"), position):
            self.open.append(line[position + 1])
            return 2
        elif line.startswith("$'", position) and not self.quoted():
            self.open.append("$")
            return 2
        elif character in '"`' or (character == "'" and not (self.quoted() and '"' in self.open)):
            self.open.append(character)
        elif not self.quoted():
            return self._unquoted(line, position, before)
        return 1

    def _unquoted(self, line: str, position: int, before: str) -> int:
        if line[position] in " \t;&|" and len(self.open) <= self._before_assignment:
            self._before_assignment = -1
        if line[position] == "(":
            self.open.append("(")
        elif line[position] == "<":
            return self._here_document(line, position)
        elif before in _BEFORE_WORDS and self._before_assignment < 0:
            match = _ASSIGNMENT.match(line, position)
            if match:
                self._before_assignment = len(self.open)
                return len(match[0])
        return 1

    def _here_document(self, line: str, position: int) -> int:
        match = _HERE_DOCUMENT.match(line, position)
        if line.startswith("<<<", position):
            return 3
        if match is None:
            return 1
        self.documents.append((match[2] or match[3] or match[4], bool(match[1])))
        return len(match[0])

    def within_assignment(self) -> bool:
        """Whether what is open is part of a word that assigns something."""
        return 0 <= self._before_assignment < len(self.open)


class _Reader:
    def __init__(self, lines: list[str], first: int) -> None:
        self._lines = lines
        self._next = first
        self._quotes = _Quotes()
        self.found: list[ShellLine] = []

    def read(self) -> None:
        while self._next < len(self._lines):
            inner = self._quotes.quoted()
            number, text = self._joined(self._quotes, len(self._lines))
            if self._quotes.within_assignment():
                self._assignment(number, text)
            else:
                self.found.append(ShellLine(number, text, text, inner))
                self._here_documents(assigns=True)

    def _joined(self, quotes: _Quotes, end: int) -> tuple[int, str]:
        """Read a line and those that a backslash joins to it."""
        number, continued = self._next + 1, True
        parts: list[str] = []
        while continued and self._next < end:
            part, continued = quotes.read(self._lines[self._next], sum(map(len, parts)))
            self._next += 1
            parts.append(part)
        return number, "".join(parts)

    def _assignment(self, number: int, text: str) -> None:
        """Read the rest of an assignment; one that has no end is none."""
        after, found = self._next, len(self.found)
        begin = self._quotes.assignment
        whole = [text[begin:]]
        self.found.append(ShellLine(number, text, text[:begin]))
        self._here_documents(assigns=False)
        while self._quotes.within_assignment():
            if self._next >= min(len(self._lines), after + LONGEST):
                self._next, self._quotes = after, _Quotes()
                self.found[found:] = [ShellLine(number, text, text)]
                return
            line, part = self._joined(self._quotes, len(self._lines))
            whole.append(part)
            self.found.append(ShellLine(line, part, ""))
            self._here_documents(assigns=False)
        last = self.found[-1]
        self.found[-1] = ShellLine(last.number, last.text, " ".join(whole))

    def _here_documents(self, *, assigns: bool) -> None:
        """Read the lines of the here-documents that the last line begins, each by itself."""
        documents, self._quotes.documents = self._quotes.documents, []
        for delimiter, indented in documents:
            end = self._end_of_document(delimiter, indented)
            while self._next < end:
                number, text = self._joined(_Quotes(), end)
                self.found.append(ShellLine(number, text, text if assigns else "", inner=True))
            self._next += end >= 0

    def _end_of_document(self, delimiter: str, indented: bool) -> int:
        for index in range(self._next, len(self._lines)):
            line = self._lines[index]
            if (line.lstrip("\t") if indented else line) == delimiter:
                return index
        return -1


def shell_lines(text: str, first_line: int) -> list[ShellLine]:
    """Return the lines of a script from `first_line` (counted from 1; 0 for no body)."""
    if not first_line:
        return []
    reader = _Reader(text.splitlines(), first_line - 1)
    reader.read()
    return reader.found
