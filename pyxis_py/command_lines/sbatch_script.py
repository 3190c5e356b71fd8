"""Read the `#SBATCH` lines of a batch script.

Directives stand before the first command; quotes and backslashes group words as in a shell, nothing
is expanded. A `#` that starts a word begins a comment; one inside a word (`nvcr.io#nvidia/…`) is
part of it, escaped or not, which is more than sbatch takes (it wants `\\#`) and never less.

Pure. Source: sbatch(1); Slurm 22.05 src/sbatch/opt.c.
"""

from __future__ import annotations

from enroot_py import UsageError
from pyxis_py.command_lines.slurm_options import (
    GivenOption,
    OptionError,
    SlurmOption,
    split_command_line,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple
else:
    from enroot_py import NamedTuple


class BatchScript(NamedTuple):
    """A batch script, read.

    Attributes:
        interpreter: the `#!` line without the mark, or "" where there is none.
        components: the options of each component of a heterogeneous job; one for any other job.
        body_line: number of the first line that is neither blank nor a comment; 0 for none.
        text: the whole script.
    """

    interpreter: str
    components: tuple[tuple[GivenOption, ...], ...]
    body_line: int
    text: str

    @property
    def options(self) -> tuple[GivenOption, ...]:
        """The options of the first component."""
        return self.components[0]


def check_script(text: str, *, origin: str, path: str = "") -> None:
    """See whether sbatch would take a text for a batch script.

    Args:
        path: the file with the text, as it was given; "" if it is none.

    Raises:
        UsageError: if not, naming it by `origin`.
    """
    if not text.strip():
        raise UsageError(f"{origin} is no batch script: it is empty")
    if not text.startswith("#!"):
        raise UsageError(
            f"{origin} is no batch script: its first line has to begin with #! and name a shell",
            hint="for example #!/bin/bash, with nothing before it",
        )
    if "\0" in text:
        raise UsageError(f"{origin} is no batch script: there is a null character in it")
    if "\r\n" in text:
        import shlex  # not for those whose script is in order

        raise UsageError(
            f"{origin} has line ends of DOS, which no shell takes",
            hint=f"sed -i 's/\\r$//' {shlex.quote(path)}" if path else "",
        )


def parse_script(text: str, options: Iterable[SlurmOption], *, origin: str) -> BatchScript:
    """Read a script.

    Args:
        text: the script.
        options: sbatch's table.
        origin: the script's name, for messages.

    Raises:
        UsageError: naming file and line, if a directive is malformed.
    """
    table = tuple(options)
    components: list[list[GivenOption]] = [[]]
    interpreter, body_line = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if number == 1 and line.startswith("#!"):
            interpreter = line[2:].strip()
            continue
        words = directive_words(line, origin=f"{origin}:{number}")
        if words is None:
            if line.strip() and not line.lstrip().startswith("#"):
                body_line = number
                break
            continue
        if words in (["hetjob"], ["packjob"]):
            components.append([])
            continue
        try:
            given, rest = split_command_line(words, table, command="sbatch")
        except OptionError as error:
            raise OptionError(f"{origin}:{number}: {error}", hint=error.hint) from error
        if rest:
            raise OptionError(f"{origin}:{number}: not an option: {rest[0]!r}")
        components[-1] += [option._replace(line=number) for option in given]
    return BatchScript(interpreter, tuple(map(tuple, components)), body_line, text)


def directive_words(line: str, *, origin: str) -> list[str] | None:
    """Return the words of a `#SBATCH` line, or None if the line is none.

    Raises:
        UsageError: if a quote is not closed.
    """
    if not line.startswith("#SBATCH") or (len(line) > 7 and not line[7].isspace()):
        return None
    words: list[str] = []
    word: str | None = None
    quote = ""
    characters = iter(line[7:])
    for character in characters:
        if character == "\\" and quote != "'":
            word = (word or "") + next(characters, "")
        elif quote:
            if character == quote:
                quote = ""
            else:
                word = (word or "") + character
        elif character in "'\"":
            quote, word = character, word or ""
        elif character.isspace():
            if word is not None:
                words.append(word)
            word = None
        elif character == "#" and word is None:
            break
        else:
            word = (word or "") + character
    if quote:
        raise UsageError(f"{origin}: a quote is not closed: {line.strip()}")
    if word is not None:
        words.append(word)
    return words
