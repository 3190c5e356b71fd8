"""The command script of an image, `/etc/rc`, read without a shell. Pure.

The script is for `/bin/sh`, and where there is one it is simply run. Images without any shell have
one all the same, since importing an image writes it; `parse_rc` then tells what it would have done.

What the script of an image is made of, in this order (`layers/image_files.py` writes it, and
NVIDIA's original writes much the same):

1. comments: provenance, then labels;
2. `mkdir -p WORKDIR` and `cd WORKDIR`, with what belongs to them (`2> /dev/null`, `|| exit 1`,
   `unset OLDPWD`);
3. the reading of `/etc/rc.local`, if that file is not empty (left out where there is no shell);
4. `if [ $# -gt 0 ]; then exec ENTRYPOINT… "$@" else exec ENTRYPOINT… CMD… fi`.

Words are quoted as a shell wants them: '…', "…" without expansions, $'…' as bash's `@Q` writes
them, and backslashes. A script with anything else in it is somebody's own, and is not understood.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

_WORD, _RAW, _OPERATOR = "word", "raw", "operator"
_ARGUMENTS = (_RAW, '"$@"')
_ESCAPES = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r"}
_ESCAPES.update({"t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?"})
_DIGITS = {"x": (16, 2), "u": (16, 4), "U": (16, 8)}
_READ_LOCAL = ["if [ -s /etc/rc.local ] ; then", ". /etc/rc.local", "fi"]
_EXECUTE = ["if [ $# -gt 0 ] ; then", "exec", "else", "exec", "fi"]
_AFTER_MKDIR = ("", "2 > /dev/null")
_AFTER_CD = ("", "|| exit 1", "&& unset OLDPWD || exit 1")


_EXPANSION = "\0"  # stands for a quoted part that a shell would expand; no script has a NUL


class RcScript(NamedTuple):
    """What a command script does.

    Attributes:
        workdir: directory inside the rootfs in which the command runs.
        entrypoint: words in front of the command.
        cmd: the command where none is given.
    """

    workdir: str
    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...]


class _UnknownError(Exception):
    """The script is not one of ours."""


def parse_rc(text: bytes) -> RcScript | None:
    """Return what an image's command script does; None if it is not of the form above.

    Bytes that are not UTF-8 come out as lone surrogates, as `os.fsdecode` does it.

    Source: enroot 4.1.2 src/docker.sh, docker::configure(), for the form of NVIDIA's.
    """
    try:
        return _interpret(_Lexer(text.decode("utf-8", "surrogateescape")).lines())
    except _UnknownError:
        return None


def _interpret(lines: list[list[tuple[str, str]]]) -> RcScript:
    workdir = "/"
    words: list[list[tuple[str, str]]] = []
    outline = []
    for line in lines:
        texts = [text for _, text in line]
        if texts[0] == "exec":
            words.append(line[1:])
            outline.append("exec")
        elif texts[:2] == ["mkdir", "-p"] and _follows(line, 2, _AFTER_MKDIR):
            pass
        elif texts[0] == "cd" and _follows(line, 1, _AFTER_CD):
            workdir = texts[1]
        elif texts != ["unset", "OLDPWD"]:
            outline.append(" ".join(texts))
    if outline[:3] == _READ_LOCAL:
        del outline[:3]
    if outline != _EXECUTE or words[0][-1:] != [_ARGUMENTS]:
        raise _UnknownError
    entrypoint, everything = words[0][:-1], words[1]
    if everything[: len(entrypoint)] != entrypoint or any(kind != _WORD for kind, _ in everything):
        raise _UnknownError
    cmd = everything[len(entrypoint) :]
    return RcScript(workdir, tuple(text for _, text in entrypoint), tuple(text for _, text in cmd))


def _follows(line: list[tuple[str, str]], at: int, endings: tuple[str, ...]) -> bool:
    """Tell whether a path is at index `at` of a line, and then one of some endings."""
    rest = " ".join(text for _, text in line[at + 1 :])
    return line[at : at + 1] != [] and line[at][0] == _WORD and rest in endings


class _Lexer:
    """Cuts a script into lines of words; what a shell would expand is left as it is written."""

    def __init__(self, text: str) -> None:
        self._text = text + "\n"
        self._at = 0

    def lines(self) -> list[list[tuple[str, str]]]:
        """Return the lines that are not empty, each a list of `(kind, text)`."""
        lines: list[list[tuple[str, str]]] = [[]]
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter == "\n":
                lines.append([])
                self._at += 1
            elif letter in " \t":
                self._at += 1
            elif letter == "#":
                self._at = self._text.index("\n", self._at)
            elif letter in "&|;<>":
                end = self._at
                while self._text[end] == letter:
                    end += 1
                lines[-1].append((_OPERATOR, self._text[self._at : end]))
                self._at = end
            else:
                lines[-1].append(self._word())
        return [line for line in lines if line]

    def _word(self) -> tuple[str, str]:
        start = self._at
        kind = _WORD
        pieces = []
        while (letter := self._text[self._at]) not in " \t\n&|;<>":
            self._at += 1
            if letter == "'":
                pieces.append(self._until("'"))
            elif letter == '"':
                pieces.append(self._double_quoted())
            elif letter == "\\":
                pieces.append(self._next())
            elif letter == "$" and self._text[self._at] == "'":
                self._at += 1
                pieces.append(self._ansi_quoted())
            elif letter in "$`()*?~{":
                kind = _RAW
            else:
                pieces.append(letter)
            if pieces and pieces[-1] == _EXPANSION:
                kind = _RAW
        if kind == _RAW:
            return _RAW, self._text[start : self._at]
        return _WORD, "".join(pieces)

    def _next(self) -> str:
        if self._at >= len(self._text) - 1:
            raise _UnknownError
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, quote: str) -> str:
        end = self._text.find(quote, self._at)
        if end < 0:
            raise _UnknownError
        text = self._text[self._at : end]
        self._at = end + 1
        return text

    def _double_quoted(self) -> str:
        pieces = []
        expands = False
        while (letter := self._next()) != '"':
            if letter == "\\":
                escaped = self._next()
                letter = (
                    escaped if escaped in '$`"\\' else "" if escaped == "\n" else "\\" + escaped
                )
            elif letter in "$`":
                expands = True
            pieces.append(letter)
        return _EXPANSION if expands else "".join(pieces)

    def _ansi_quoted(self) -> str:
        pieces = []
        while (letter := self._next()) != "'":
            if letter == "\\":
                letter = self._ansi_escape()
            pieces.append(letter)
        text = "".join(pieces)
        # Octal and hexadecimal escapes stand for bytes, which may only together be a character.
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")

    def _ansi_escape(self) -> str:
        letter = self._next()
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        base, most = _DIGITS.get(letter, (8, 3))
        start = self._at if letter in _DIGITS else self._at - 1
        end = start
        digits = "01234567" if base == 8 else "0123456789abcdefABCDEF"
        while end < start + most and self._text[end] in digits:
            end += 1
        if end == start:
            raise _UnknownError
        self._at = end
        value = int(self._text[start:end], base)
        if letter in "uU" or value < 128:
            return chr(value)
        return chr(0xDC00 + value)
