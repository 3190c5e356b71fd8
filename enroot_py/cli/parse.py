"""Read a command line by the table: enroot's rules, the same for every command.

Options come first; the first word that is none ends them, and so does `--`. An option with a value
is spelled `-o VALUE`, `--output VALUE` or `--output=VALUE`; an empty value is refused. Short
options are not joined and long ones not shortened: `-rc` might mean three things, so it means none.

Source: enroot 4.1.2 enroot.in, the loop at the top of every enroot::COMMAND().
"""

from __future__ import annotations

from enroot_py.cli.table import BY_NAME, GROUPS, Command, Option
from enroot_py.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class CommandLineError(UsageError):
    """The command line does not fit the table: the answer is an error and the usage text."""


class HelpWanted(BaseException):
    """`--help` stood where an option may stand. Not an error, so no handler of errors sees it."""


class Arguments:
    """A parsed command line: options by key, and the operands in order."""

    def __init__(self, options: dict[str, list[str]], operands: tuple[str, ...]) -> None:
        self._options = options
        self.operands = operands

    def flag(self, key: str) -> bool:
        """Tell whether a switch was given."""
        return key in self._options

    def text(self, key: str) -> str:
        """Return the value of an option, the last one where it was given twice, or ""."""
        values = self._options.get(key)
        return values[-1] if values else ""

    def texts(self, key: str) -> tuple[str, ...]:
        """Return every value of an option, in order."""
        return tuple(self._options.get(key, ()))


def find_command(words: Sequence[str]) -> tuple[Command, list[str]]:
    """Split a command line into its command and the rest.

    Raises:
        HelpWanted: if there are no words, or the first one asks for help.
        CommandLineError: if there is no such command.
    """
    if not words or words[0] in ("-h", "--help"):
        raise HelpWanted
    if words[0] == "--version":
        return BY_NAME["version"], []
    first, rest = words[0], list(words[1:])
    if first in GROUPS:
        if not rest or rest[0] in ("-h", "--help"):
            raise HelpWanted
        first, rest = f"{first} {rest[0]}", rest[1:]
    command = BY_NAME.get(first)
    if command is None:
        raise CommandLineError(f"No such command: {first}", hint=_nearest(first))
    return command, rest


def parse(command: Command, words: Sequence[str]) -> Arguments:
    """Parse the words after the command.

    Raises:
        HelpWanted: if an option asks for help.
        CommandLineError: naming the word at fault.
    """
    spellings = {name: option for option in command.options for name in option.names}
    options: dict[str, list[str]] = {}
    at = 0
    while at < len(words):
        word = words[at]
        if word in ("-h", "--help"):
            raise HelpWanted
        at += 1
        if word == "--":
            break
        if len(word) < 2 or word[0] != "-":
            at -= 1
            break
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        option = spellings.get(name)
        if option is None:
            raise CommandLineError(f"No such option: {name}", hint=_nearest_option(name, command))
        if not option.value:
            if equals:
                raise CommandLineError(f"Option {name} takes no value")
            options[option.key] = []
            continue
        if not equals:
            value = words[at] if at < len(words) else ""
            at += 1
        _add(options, option, name, value)
    return Arguments(options, _operands(command, tuple(words[at:])))


def _add(options: dict[str, list[str]], option: Option, name: str, value: str) -> None:
    if not value:
        raise CommandLineError(f"Option {name} needs a value: {option.value}")
    if option.repeat:
        options.setdefault(option.key, []).append(value)
    else:
        options[option.key] = [value]


def _operands(command: Command, operands: tuple[str, ...]) -> tuple[str, ...]:
    if len(operands) < command.least:
        raise CommandLineError(f"Missing argument: {command.operands}")
    if 0 <= command.most < len(operands):
        raise CommandLineError(
            f"Too many arguments: {operands[command.most]}",
            hint="options come before the first argument" if operands[-1][:1] == "-" else "",
        )
    return operands


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, BY_NAME, 1)
    return f"did you mean {near[0]}?" if near else "`enroot help` lists the commands"


def _nearest_option(name: str, command: Command) -> str:
    from difflib import get_close_matches

    names = [spelling for option in command.options for spelling in option.names]
    near = get_close_matches(name, names, 1)
    return f"did you mean {near[0]}?" if near else ""
