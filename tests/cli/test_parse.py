"""Command lines: enroot's rules for options, for every command of the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from enroot_py.cli.parse import CommandLineError, HelpWanted, find_command, parse
from enroot_py.cli.table import BY_NAME, COMMANDS, GROUPS, Command, Option

RECORDED: list[tuple[list[str], str]] = json.loads(
    Path(__file__).with_name("command_lines.json").read_text(encoding="utf-8")
)
"""Command lines, and whether the parser of enroot 4.1.2 takes them or shows a usage text."""

OPERANDS = ("one", "two", "three")


def outcome(words: list[str]) -> str:
    try:
        parse(BY_NAME[words[0]], words[1:])
    except HelpWanted:
        return "usage 0"
    except CommandLineError:
        return "usage 1"
    return "accepted"


SINCE_THEN = (["info", "extra"], ["info", "--", "--"], ["info", "-"])
"""Command lines that mean something here and were refused then."""


@pytest.mark.parametrize("name", sorted({words[0] for words, _ in RECORDED}))
def test_command_lines_are_taken_as_enroot_takes_them(name: str) -> None:
    recorded = [
        (words, expected)
        for words, expected in RECORDED
        if words[0] == name and words not in SINCE_THEN
    ]
    assert len(recorded) > 4
    assert [(words, outcome(words)) for words, _ in recorded] == recorded


OPTIONS = [
    (command, option, spelling)
    for command in COMMANDS
    for option in command.options
    for spelling in option.names
]


def identify(value: object) -> str:
    return value.name if isinstance(value, Command) else value if isinstance(value, str) else ""


@pytest.mark.parametrize("command, option, spelling", OPTIONS, ids=identify)
def test_every_spelling_of_every_option(command: Command, option: Option, spelling: str) -> None:
    operands = OPERANDS[: command.least]
    if not option.value:
        arguments = parse(command, [spelling, *operands])
        assert arguments.flag(option.key)
        assert arguments.operands == operands
        with pytest.raises(CommandLineError):
            parse(command, [f"{spelling}=y", *operands])
        return
    forms = [[spelling, "value"]]
    if spelling.startswith("--"):
        forms.append([f"{spelling}=value"])
    for form in forms:
        arguments = parse(command, [*form, *operands])
        assert arguments.text(option.key) == "value"
        assert arguments.operands == operands
    for wrong in ([spelling], [spelling, ""], [f"{spelling}=", *operands], [f"{spelling}value"]):
        with pytest.raises(CommandLineError):
            parse(command, wrong)


@pytest.mark.parametrize("command, option, spelling", OPTIONS, ids=identify)
def test_options_given_twice(command: Command, option: Option, spelling: str) -> None:
    if option.value:
        arguments = parse(command, [spelling, "a", spelling, "b", *OPERANDS[: command.least]])
        assert arguments.text(option.key) == "b"
        assert arguments.texts(option.key) == (("a", "b") if option.repeat else ("b",))


@pytest.mark.parametrize("command", COMMANDS, ids=identify)
def test_operands_are_counted(command: Command) -> None:
    if command.least:
        with pytest.raises(CommandLineError, match="Missing argument"):
            parse(command, OPERANDS[: command.least - 1])
    if command.most >= 0:
        with pytest.raises(CommandLineError, match="Too many arguments"):
            parse(command, ["x"] * (command.most + 1))
    else:
        assert len(parse(command, ["x"] * 9).operands) == 9


@pytest.mark.parametrize("command", COMMANDS, ids=identify)
def test_help_is_recognised_where_an_option_may_stand(command: Command) -> None:
    for word in ("-h", "--help"):
        with pytest.raises(HelpWanted):
            parse(command, [word])
    if command.most < 0:
        operands = [*OPERANDS[: max(1, command.least)], "--help"]
        assert parse(command, operands).operands == tuple(operands)
        assert parse(command, ["--", "--help", *operands]).operands == ("--help", *operands)


@pytest.mark.parametrize("command", COMMANDS, ids=identify)
def test_rows_hold_together(command: Command) -> None:
    spellings = [name for option in command.options for name in option.names]
    assert len(spellings) == len(set(spellings))
    assert not {"-h", "--help"} & set(spellings)
    assert all(len(name) == 2 if name[1] != "-" else len(name) > 3 for name in spellings)
    assert len({option.key for option in command.options}) == len(command.options)
    for text in (command.summary, *(option.help for option in command.options)):
        assert text[0].isupper() and not text.endswith(".")


@pytest.mark.parametrize(
    "words, name, rest",
    [
        (["start", "a", "-b"], "start", ["a", "-b"]),
        (["cache", "list", "--json"], "cache list", ["--json"]),
        (["--version"], "version", []),
        (["version", "x"], "version", ["x"]),
    ],
)
def test_commands_are_found(words: list[str], name: str, rest: list[str]) -> None:
    command, found = find_command(words)
    assert (command.name, found) == (name, rest)


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"], ["cache"], ["cache", "-h"]])
def test_without_a_command_the_answer_is_help(words: list[str]) -> None:
    with pytest.raises(HelpWanted):
        find_command(words)


@pytest.mark.parametrize(
    "words, hint",
    [
        (["strat"], "did you mean start?"),
        (["cache", "lst"], "did you mean cache list?"),
        (["xyzzy"], "enroot help"),
        (["-x"], "enroot help"),
        ([""], "enroot help"),
    ],
)
def test_unknown_commands_get_a_hint(words: list[str], hint: str) -> None:
    with pytest.raises(CommandLineError) as raised:
        find_command(words)
    assert hint in raised.value.hint


def test_an_unknown_option_gets_the_nearest_one() -> None:
    with pytest.raises(CommandLineError, match="--mout") as raised:
        parse(BY_NAME["start"], ["--mout", "a", "b"])
    assert raised.value.hint == "did you mean --mount?"


def test_an_option_behind_the_operands_is_explained() -> None:
    with pytest.raises(CommandLineError) as raised:
        parse(BY_NAME["import"], ["docker://x", "--force"])
    assert "before" in raised.value.hint


def test_groups_have_commands() -> None:
    for group in GROUPS:
        assert any(command.name.startswith(f"{group} ") for command in COMMANDS)
