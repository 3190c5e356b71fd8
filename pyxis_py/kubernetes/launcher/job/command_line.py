"""Command lines as getopt_long cuts them: options with their values, and the words behind them.

Pure. Source: getopt(3), getopt_long; the first word that is no option ends the options (`+`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Option(NamedTuple):
    """One option.

    Attributes:
        name: long name without dashes.
        short: its letter, or "".
        argument: "none", "required" or "optional" (behind `=` only).
        use: "used", "ignored" or "refused".
        why: for ignored and refused ones, the reason.
        variable: variables that stand for it, the strongest first.
    """

    name: str
    short: str = ""
    argument: str = "required"
    use: str = "used"
    why: str = ""
    variables: tuple[str, ...] = ()


class CommandLineError(Exception):
    """A command line that cannot be understood, or asks for what there is not."""


class UnreadableError(CommandLineError):
    """Options that getopt_long(3) would not read."""


class Cut(NamedTuple):
    """Options in their order as (name, value), and the remaining words."""

    given: list[tuple[str, str]]
    words: list[str]


def cut(
    argv: Sequence[str],
    options: Iterable[Option],
    aliases: Mapping[str, str] | None = None,
    *,
    mixed: bool = False,
) -> Cut:
    """Cut a command line.

    Args:
        mixed: whether options may follow other words, as scancel and squeue allow.

    Raises:
        CommandLineError: for an option that is unknown, ambiguous, or lacks its value.
    """
    longs = {option.name: option for option in options}
    shorts = {option.short: option for option in longs.values() if option.short}
    given: list[tuple[str, str]] = []
    words: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return Cut(given, words + rest)
        if word.startswith("--"):
            given.append(_long(word[2:], rest, longs, aliases or {}))
        elif word.startswith("-") and len(word) > 1:
            given += _cluster(word[1:], rest, shorts)
        elif mixed:
            words.append(word)
        else:
            return Cut(given, [word, *rest])
    return Cut(given, words)


def _long(
    text: str, rest: list[str], longs: Mapping[str, Option], aliases: Mapping[str, str]
) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    option = longs.get(aliases.get(name, name)) or _abbreviated(name, longs)
    if option.argument == "none":
        if equals:
            raise UnreadableError(f"--{option.name} takes no value")
        return option.name, ""
    if equals or option.argument == "optional":
        return option.name, value
    if not rest:
        raise UnreadableError(f"--{option.name} needs a value")
    return option.name, rest.pop(0)


def _abbreviated(name: str, longs: Mapping[str, Option]) -> Option:
    found = [option for other, option in longs.items() if name and other.startswith(name)]
    if not found:
        raise UnreadableError(f"unknown option --{name}")
    if len(found) > 1:
        names = ", ".join(sorted(f"--{option.name}" for option in found))
        raise UnreadableError(f"--{name} may be any of {names}")
    return found[0]


def _cluster(letters: str, rest: list[str], shorts: Mapping[str, Option]) -> list[tuple[str, str]]:
    given = []
    while letters:
        letter, letters = letters[0], letters[1:]
        option = shorts.get(letter)
        if option is None:
            raise UnreadableError(f"unknown option -{letter}")
        value = ""
        if option.argument != "none":
            value, letters = letters, ""
            if option.argument == "required" and not value:
                if not rest:
                    raise UnreadableError(f"-{letter} needs a value")
                value = rest.pop(0)
        given.append((option.name, value))
    return given


def parse_count(text: str, option: str, *, least: int = 1) -> int:
    """Return a number of things.

    Raises:
        CommandLineError: unless it is a plain number from `least` to a billion.
    """
    if not text.isdecimal() or not text.isascii() or not least <= int(text) < 10**9:
        raise CommandLineError(f"{option}: not a number from {least} on: {text!r}")
    return int(text)


def quantity(count: int, noun: str) -> str:
    """Return `1 node`, `2 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def parse_time(text: str, option: str) -> int | None:
    """Return the seconds of `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M`, `D-H:M:S`; None for no limit.

    Raises:
        CommandLineError: if it is none of them.
    """
    if text.upper() in ("UNLIMITED", "INFINITE", "-1"):
        return None
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    numbers = ([days] if dash else []) + parts
    if not all(part.isdecimal() and part.isascii() and len(part) < 10 for part in numbers):
        raise CommandLineError(f"{option}: not a time: {text!r}")
    values = [int(part) for part in parts]
    if dash and len(values) <= 3:
        hours, minutes, seconds = (*values, 0, 0)[:3]
    elif not dash and len(values) == 3:
        hours, minutes, seconds = values
    elif not dash and len(values) <= 2:
        hours = 0
        minutes, seconds = (*values, 0)[:2]
    else:
        raise CommandLineError(f"{option}: not a time: {text!r}")
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
