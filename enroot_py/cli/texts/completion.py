"""Completion scripts for bash, zsh and fish, made from the table.

The scripts know options and commands by themselves; they start `enroot list` only to complete a
container's name. Options are offered up to the first operand, as the command line is read. What of
a script does not depend on the table is in `completion.bash`, `.zsh` and `.fish` beside this file.
"""

from __future__ import annotations

import os

from enroot_py.cli.table import COMMANDS, GROUPS, Command, Option
from enroot_py.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
_WORDS = {"arch": ("x86_64", "aarch64", "ppc64le", "amd64", "arm64"), "shell": SHELLS}
_HELP = Option("help", ("-h", "--help"), "Show the usage")


def completion_script(shell: str) -> str:
    """Return the completion script for a shell.

    Raises:
        UsageError: if it is none of SHELLS.
    """
    if shell not in SHELLS:
        raise UsageError(f"No completion for {shell}", hint=f"there is {', '.join(SHELLS)}")
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()
    return script.replace("@NOTE@", f"Made by `enroot completion {shell}` from its command table.")


def _template(shell: str) -> str:
    path = os.path.join(os.path.dirname(__file__), f"completion.{shell}")
    with open(path, encoding="utf-8") as file:
        return file.read()


def _words_after(group: str) -> dict[str, str]:
    """The words that may follow `enroot`, or `enroot GROUP`, and what they stand for."""
    prefix = f"{group} " if group else ""
    words = {}
    for command in COMMANDS:
        if command.name.startswith(prefix):
            word = command.name.removeprefix(prefix).split()[0]
            words[word] = GROUPS.get(word, command.summary) if not group else command.summary
    return words


def _options(command: Command) -> tuple[Option, ...]:
    return (*command.options, _HELP)


def _offered(kind: str) -> str:
    """The words to offer for a kind of value that is no file; "" where there are none."""
    return " ".join(_words_after("") if kind == "name" else _WORDS.get(kind, ()))


def _bash() -> str:
    options, values, operands = [], [], []
    for command in COMMANDS:
        names = [name for option in _options(command) for name in option.names]
        options.append(f'    ["{command.name}"]="{" ".join(names)} --"')
        for option in command.options:
            if option.value:
                kind = option.kind or "text"
                values += [f'    ["{command.name} {name}"]={kind}' for name in option.names]
        operands.append(f'    ["{command.name}"]="{" ".join(command.kinds) or "none"}"')
    return (
        _template("bash")
        .replace("@OPTIONS@", "\n".join(options))
        .replace("@VALUES@", "\n".join(values))
        .replace("@OPERANDS@", "\n".join(operands))
        .replace("@WORDS@", _group_table('    ["{}"]="{}"'))
        .replace("@ARCH@", _offered("arch"))
        .replace("@SHELL@", _offered("shell"))
        .replace("@NAME@", _offered("name"))
    )


def _group_table(form: str) -> str:
    return "\n".join(
        form.format(group or "-", " ".join(_words_after(group))) for group in ("", *GROUPS)
    )


def _zsh() -> str:
    cases = []
    for command in COMMANDS:
        cases.append(f"    ({_quote(command.name)})")
        specs = [spec for option in _options(command) for spec in _zsh_option(option)]
        kinds = command.kinds
        for index, kind in enumerate(kinds, 1):
            place = "*" if index == len(kinds) and command.most < 0 else str(index)
            specs.append(_quote(f"{place}: :{_zsh_action(kind)}"))
        cases.append("        _arguments -S -A '-*' \\")
        cases.append(" \\\n".join(f"            {spec}" for spec in specs))
        cases.append("        ;;")
    groups = [f"    ({group})\n{_zsh_describe(group, 8)}\n        ;;" for group in GROUPS]
    return (
        _template("zsh")
        .replace("@COMMANDS@", _zsh_describe("", 8))
        .replace("@GROUPS@", "\n".join(groups))
        .replace("@PATTERN@", "|".join(GROUPS))
        .replace("@CASES@", "\n".join(cases))
    )


def _zsh_describe(group: str, indent: int) -> str:
    blanks = " " * indent
    words = [
        _quote(f"{word}:{summary.replace(':', ' ')}")
        for word, summary in _words_after(group).items()
    ]
    listed = "\n".join(f"{blanks}    {word}" for word in words)
    return f"{blanks}commands=(\n{listed}\n{blanks})\n{blanks}_describe command commands"


def _zsh_option(option: Option) -> list[str]:
    text = option.help.replace("[", "(").replace("]", ")").replace(":", " ")
    repeat = "*" if option.repeat else f"({' '.join(option.names)})"
    specs = []
    for name in option.names:
        equals = "=" if option.value and name.startswith("--") else ""
        value = f":{option.value}:{_zsh_action(option.kind)}" if option.value else ""
        specs.append(_quote(f"{repeat}{name}{equals}[{text}]{value}"))
    return specs


def _zsh_action(kind: str) -> str:
    actions = {
        "file": "_files",
        "folder": "_files -/",
        "image": "_files -g '*.(sqsh|sqfs|squashfs|sfs)'",
        "container": "_enroot_containers",
        "container|image": "_enroot_containers_and_images",
        "command": "_command_names -e",
    }
    words = _offered(kind)
    return f"({words})" if words else actions.get(kind, " ")


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish() -> str:
    valued = [
        f"    {_quote(f'{command.name} {name}')}"
        for command in COMMANDS
        for option in command.options
        for name in option.names
        if option.value
    ]
    text = _template("fish").replace("@VALUED@", " \\\n".join(valued))
    lines = [text.replace("@GROUPS@", " ".join(GROUPS))]
    for group in ("", *GROUPS):
        for word, summary in _words_after(group).items():
            condition = _quote(f"__enroot_at '{group}'") if group else "'__enroot_at \"\"'"
            lines.append(f"complete -c enroot -n {condition} -a {word} -d {_quote(summary)}")
    for command in COMMANDS:
        for option in _options(command):
            lines.append(_fish_option(command, option))
        for index, kind in enumerate(command.kinds, 1):
            last = index == len(command.kinds) and command.most < 0
            condition = f"__enroot_operand '{command.name}' {index}{' more' if last else ''}"
            lines.append(f"complete -c enroot -n {_quote(condition)} {_fish_action(kind)}".rstrip())
    return "\n".join(lines) + "\n"


def _fish_option(command: Command, option: Option) -> str:
    names = [
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
    ]
    files = "file" in option.kind or "image" in option.kind
    value = (
        f" {'-r' if files else '-x'} {_fish_action(option.kind)}".rstrip() if option.value else ""
    )
    condition = _quote(f"__enroot_operand '{command.name}' 1")
    return f"complete -c enroot -n {condition} {' '.join(names)}{value} -d {_quote(option.help)}"


def _fish_action(kind: str) -> str:
    words = _offered(kind)
    if words:
        return f"-a {_quote(words)}"
    return {
        "container": "-a '(enroot list 2>/dev/null)'",
        "container|image": "-a '(enroot list 2>/dev/null)' -F",
        "command": "-a '(__fish_complete_command)'",
        "file": "-F",
        "folder": "-a '(__fish_complete_directories)'",
        "image": "-F",
    }.get(kind, "")
