"""Manual pages, made from the table: roff text as man(7) describes it.

One page for the command itself and one for each of its commands: enroot(1), enroot-start(1),
enroot-cache-list(1).
"""

from __future__ import annotations

import os

from enroot_py.cli.table import BY_NAME, COMMANDS, GROUPS, Command, Option
from enroot_py.cli.texts.descriptions import DESCRIPTIONS
from enroot_py.cli.texts.variables import EXIT_STATUSES, FILES, VARIABLES
from enroot_py.errors import UsageError
from enroot_py.settings import VERSION

_HELP = Option("help", ("-h", "--help"), "Show the usage")


def manual_page(name: str) -> str:
    """Return the manual page of a command; of `enroot` itself for "".

    Raises:
        UsageError: if there is no such command.
    """
    if not name:
        return _main_page()
    if name not in BY_NAME:
        raise UsageError(f"No such command: {name}", hint="`enroot help` lists the commands")
    return _command_page(BY_NAME[name])


def write_manual(folder: str) -> list[str]:
    """Write every page to a folder, which is made if need be, and return the files' paths."""
    os.makedirs(folder, exist_ok=True)
    paths = []
    for name in ["", *BY_NAME]:
        paths.append(os.path.join(folder, _page_name(name) + ".1"))
        with open(paths[-1], "w", encoding="utf-8") as file:
            file.write(manual_page(name))
    return paths


def _main_page() -> str:
    lines = [*_header("", "start container images as unprivileged sandboxes")]
    lines += [".SH SYNOPSIS", r".B enroot", r"\fICOMMAND\fR [\fIARG\fR...]"]
    lines += [".SH DESCRIPTION"]
    lines += _paragraphs(
        "Imports container images from registries, turns them into squashfs images or root "
        "filesystems, and starts those as the user who calls, without any privilege. The command "
        f"and its files are those of Enroot {VERSION}."
    )
    lines += [".SH COMMANDS"]
    for command in COMMANDS:
        page = _escape(_page_name(command.name))
        lines += [".TP", rf"\fB{page}\fR(1)", _escape(command.summary + ".")]
    lines += _terms("EXIT STATUS", EXIT_STATUSES)
    lines += _terms("ENVIRONMENT", tuple((name, text) for name, text in VARIABLES.items()))
    lines += _terms("FILES", FILES)
    return "\n".join(lines) + "\n"


def _command_page(command: Command) -> str:
    description = DESCRIPTIONS[command.name]
    lines = [*_header(command.name, command.summary[:1].lower() + command.summary[1:])]
    lines += [".SH SYNOPSIS", rf".B enroot {_escape(command.name)}"]
    lines += [_italic("[options] [--] " + command.operands)]
    lines += [".SH DESCRIPTION", *_paragraphs(description.text), ".SH OPTIONS"]
    for option in (*command.options, _HELP):
        lines += [".TP", _spellings(option), _escape(option.help + ".")]
    title, rows = description.terms
    if rows:
        lines += _terms(title.upper(), rows)
    if description.examples:
        lines += [".SH EXAMPLES"]
        for line, says in description.examples:
            lines += [".TP", rf"\fB{_escape(line)}\fR", _escape(says[:1].upper() + says[1:] + ".")]
    if description.variables:
        chosen = tuple((name, VARIABLES[name]) for name in description.variables)
        lines += _terms("ENVIRONMENT", chosen)
    lines += [".SH SEE ALSO", r".BR enroot (1)"]
    return "\n".join(lines) + "\n"


def _page_name(name: str) -> str:
    return "-".join(["enroot", *name.split()])


def _header(name: str, summary: str) -> list[str]:
    page = _page_name(name)
    return [
        r".\" Made from enroot_py/cli/table.py. Do not edit.",
        f'.TH {page.upper()} 1 "" "Enroot {VERSION}" "User Commands"',
        ".SH NAME",
        rf"{_escape(page)} \- {_escape(summary)}",
    ]


def _spellings(option: Option) -> str:
    names = ", ".join(rf"\fB{_escape(name)}\fR" for name in option.names)
    return names + (f" {_italic(option.value)}" if option.value else "")


def _terms(title: str, rows: tuple[tuple[str, str], ...]) -> list[str]:
    lines = [f".SH {title}"]
    for term, text in rows:
        lines += [".TP", rf"\fB{_escape(term)}\fR", _escape(text)]
    return lines


def _paragraphs(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        lines += [".PP", _escape(paragraph)] if lines else [_escape(paragraph)]
    return lines


def _italic(text: str) -> str:
    return rf"\fI{_escape(text)}\fR" if text.strip() else ""


def _escape(text: str) -> str:
    """Escape what roff would take as its own: backslashes, dashes, dots and quotes that lead."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("`", r"\(ga").replace("'", r"\(aq")
    return rf"\&{text}" if text.startswith(".") else text


assert set(GROUPS) == {name.split()[0] for name in BY_NAME if " " in name}
