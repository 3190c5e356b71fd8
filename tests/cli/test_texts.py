"""Man pages and completions: made from the table, complete, and understood by their readers."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

import pytest

from enroot_py.cli.table import BY_NAME, COMMANDS, GROUPS, Command
from enroot_py.cli.texts.completion import SHELLS, completion_script
from enroot_py.cli.texts.descriptions import DESCRIPTIONS
from enroot_py.cli.texts.manual import manual_page, write_manual
from enroot_py.cli.texts.variables import VARIABLES
from enroot_py.errors import UsageError
from tests.cli.command import ENROOT
from tests.cli.command import Command as Enroot

SHARE = Path(__file__).resolve().parents[2] / "share"
WORDS = [command.name for command in COMMANDS]


def plain(roff: str) -> str:
    """Undo the escapes of the manual pages' roff text."""
    text = re.sub(r"\\f[BIR]|\\&", "", roff)
    return text.replace(r"\-", "-").replace(r"\(aq", "'").replace(r"\(ga", "`").replace(r"\e", "\\")


def test_every_command_is_described() -> None:
    assert sorted(DESCRIPTIONS) == sorted(BY_NAME)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_descriptions_hold_together(command: Command) -> None:
    description = DESCRIPTIONS[command.name]
    assert description.text.endswith(".")
    assert set(description.variables) <= set(VARIABLES)
    for line, says in description.examples:
        assert "enroot" in line and not says.endswith(".")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_page_holds_what_the_row_holds(command: Command) -> None:
    page = plain(manual_page(command.name))
    assert page.isascii()
    assert page.splitlines()[0].startswith('.\\" Made from')
    assert f".B enroot {command.name}\n" in page
    assert f"[options] [--] {command.operands}".strip() in page
    for option in command.options:
        assert ", ".join(option.names) + (f" {option.value}" if option.value else "") in page
        assert option.help + "." in page
    for name in DESCRIPTIONS[command.name].variables:
        assert name in page and VARIABLES[name] in page


def test_the_main_page_lists_commands_and_settings() -> None:
    page = plain(manual_page(""))
    for command in COMMANDS:
        assert f"enroot-{command.name.replace(' ', '-')}(1)" in page
    for name in VARIABLES:
        assert name in page


def test_pages_are_written_for_every_command(tmp_path: Path) -> None:
    folder = tmp_path / "share/man1"
    paths = write_manual(str(folder))
    assert sorted(map(os.path.basename, paths)) == sorted(os.listdir(folder))
    assert sorted(os.listdir(folder)) == sorted(
        ["enroot.1", *(f"enroot-{name.replace(' ', '-')}.1" for name in WORDS)]
    )
    assert (folder / "enroot-cache-list.1").read_text() == manual_page("cache list")


def test_a_page_is_shown_on_a_terminal_where_man_is_installed(tmp_path: Path) -> None:
    shown = on_a_terminal(tmp_path)
    assert shown.startswith('.\\"')
    program = tmp_path / "man"
    program.write_text("#!/bin/sh\necho shown by man $*; head -n 2 | tail -n 1\n")
    program.chmod(0o755)
    shown = on_a_terminal(tmp_path)
    assert shown.startswith("shown by man -l -")
    assert ".TH ENROOT-DIGEST" in shown


def on_a_terminal(path: Path) -> str:
    """Return the beginning of what `enroot man digest` prints there, with this PATH before."""
    master, slave = pty.openpty()
    with os.fdopen(master, "rb", buffering=0) as screen:
        process = subprocess.Popen(
            [ENROOT, "man", "digest"],
            env={"PATH": f"{path}:/usr/bin:/bin" if os.listdir(path) else "/no/such"},
            stdin=slave, stdout=slave, stderr=slave,
        )  # fmt: skip
        os.close(slave)
        text = b""
        try:
            while chunk := screen.read(1 << 16):
                text += chunk
        except OSError:
            pass  # how Linux says that nobody has the terminal open any more
        assert process.wait(30) == 0
    return text.decode().replace("\r", "")


def test_the_files_that_are_shipped_are_current() -> None:
    expected = {
        SHARE / "bash-completion/completions/enroot": completion_script("bash"),
        SHARE / "zsh/site-functions/_enroot": completion_script("zsh"),
        SHARE / "fish/vendor_completions.d/enroot.fish": completion_script("fish"),
    }
    for name in ["", *WORDS]:
        path = SHARE / "man/man1" / ("-".join(["enroot", *name.split()]) + ".1")
        expected[path] = manual_page(name)
    for path, text in expected.items():
        assert path.read_text() == text, f"{path.name}: run `make texts` and commit the result"
    assert set((SHARE / "man/man1").iterdir()) <= set(expected)


def test_unknown_pages_and_shells_are_refused(enroot: Enroot) -> None:
    with pytest.raises(UsageError):
        manual_page("nosuch")
    with pytest.raises(UsageError):
        completion_script("csh")
    assert enroot.run("man", "nosuch").returncode == 1
    assert enroot.run("completion", "csh").returncode == 1
    assert enroot.run("man", "cache", "list").stdout == manual_page("cache list")
    assert enroot.run("completion", "bash").stdout == completion_script("bash")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_knows_every_spelling(shell: str) -> None:
    script = completion_script(shell)
    assert not re.search(r"@[A-Z]+@", script)
    for command in COMMANDS:
        for option in command.options:
            for name in option.names:
                shown = name.lstrip("-") if shell == "fish" else name
                assert re.search(rf"(?<![\w-]){re.escape(shown)}(?![\w-])", script), name


CASES = [
    # words so far, the last one being completed; what is offered among others; what is not
    (["st"], ["start"], ["list"]),
    ([""], ["start", "cache", "version"], ["prune"]),
    (["cache", ""], ["list", "prune", "limit"], ["start"]),
    (["cache", "list", "-"], ["--json"], ["--fancy"]),
    (["list", "-"], ["--fancy", "--json"], ["--force"]),
    (["start", "--r"], ["--rc", "--root", "--rw"], ["--net"]),
    (["start", ""], ["alpha", "beta", "image.sqsh"], ["bash"]),
    (["start", "--root", "a"], ["alpha"], ["beta"]),
    (["start", "-m", "no"], ["notes.txt"], ["alpha"]),
    (["start", "-e", "A=B", "a"], ["alpha"], []),
    (["start", "alpha", "--ro"], [], ["--root"]),
    (["remove", "alpha", "b"], ["beta"], ["alpha"]),
    (["import", "-a", "x"], ["x86_64"], ["notes.txt"]),
    (["completion", ""], ["bash", "zsh", "fish"], ["notes.txt"]),
    (["help", "i"], ["import", "info"], ["start"]),
]

BASH = """
source "$1"
shift
COMP_WORDS=(enroot "$@")
COMP_CWORD=$#
_enroot enroot "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""

FISH = """
source $argv[1]
complete -C (string join -- ' ' enroot $argv[2..-1])
"""

ZSH = r"""
PROMPT= ; autoload -U compinit; compinit -u -D; source {script}
compadd() {{
    if [[ ${{@[1,(i)(-|--)]}} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
    local -a hits
    builtin compadd -A hits "$@"
    print -rl -- $hits >> {answer}
    builtin compadd "$@"
}}
capture() {{ _main_complete; print END >> {answer} }}
zle -C capture list-choices capture; bindkey '^D' capture
"""


def offered(shell: str, words: list[str], enroot: Enroot, script: Path) -> list[str]:
    """Return the words that a shell offers in place of the last one."""
    for name in ("alpha", "beta"):
        (enroot.data / name).mkdir(parents=True)
    work = enroot.root / "work"
    work.mkdir()
    (work / "image.sqsh").touch()
    (work / "notes.txt").touch()
    script.write_text(completion_script(shell))
    environ = {
        **enroot.environ,
        "PATH": f"{ENROOT.parent}:{enroot.environ['PATH']}",
        "TERM": "dumb",
    }
    if shell == "zsh":
        return offered_by_zsh(words, script, work, environ)
    command = {
        "bash": ["bash", "--norc", "-c", BASH, "bash"],
        "fish": ["fish", "--no-config", "-c", FISH, "--"],
    }[shell]
    done = subprocess.run(
        [*command, str(script), *words],
        cwd=work, env=environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr == "", done.stderr
    return [re.split(r"[\t/]", line)[0] for line in done.stdout.splitlines()]


def offered_by_zsh(
    words: list[str], script: Path, work: Path, environ: dict[str, str]
) -> list[str]:
    """zsh completes on a terminal alone: type the words there, and have it note its matches."""
    answer = script.with_suffix(".answer")
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        ["zsh", "-f", "-i"],
        cwd=work, env=environ, stdin=follower, stdout=follower, stderr=follower,
        start_new_session=True,
    )  # fmt: skip
    os.close(follower)
    try:
        os.write(leader, ZSH.format(script=script, answer=answer).encode())
        # Its prompt, and not output of a command: by then the terminal passes ^D on as a key.
        os.write(leader, b"PROMPT=REA''DY\n")
        deadline = time.monotonic() + 120
        seen = b""
        while b"READY" not in seen:
            seen += read_some(leader, deadline)
        os.write(leader, b"enroot " + " ".join(words).encode() + b"\x04")
        while not (answer.exists() and answer.read_text().endswith("END\n")):
            read_some(leader, deadline)
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    return answer.read_text().split()


def read_some(fd: int, deadline: float) -> bytes:
    assert time.monotonic() < deadline, "the shell does not answer"
    ready, _, _ = select.select([fd], [], [], 0.05)
    return os.read(fd, 65536) if ready else b""


@pytest.mark.parametrize("words, wanted, unwanted", CASES, ids=lambda value: " ".join(value))
def test_bash_completes(
    enroot: Enroot, tmp_path: Path, words: list[str], wanted: list[str], unwanted: list[str]
) -> None:
    found = offered("bash", words, enroot, tmp_path / "script")
    assert set(wanted) <= set(found)
    assert not set(unwanted) & set(found)


def test_bash_completes_behind_an_equals_sign(enroot: Enroot, tmp_path: Path) -> None:
    # As readline splits it: the equals sign is a word.
    found = offered("bash", ["import", "--arch", "=", "aa"], enroot, tmp_path / "script")
    assert found == ["aarch64"]


@pytest.mark.shells
@pytest.mark.parametrize("shell", ["fish", "zsh"])
@pytest.mark.parametrize("words, wanted, unwanted", CASES, ids=lambda value: " ".join(value))
def test_other_shells_complete(
    enroot: Enroot, tmp_path: Path, shell: str, words: list[str],
    wanted: list[str], unwanted: list[str],
) -> None:  # fmt: skip
    found = offered(shell, words, enroot, tmp_path / "script")
    assert set(wanted) <= set(found)
    assert not set(unwanted) & set(found)


@pytest.mark.shells
@pytest.mark.parametrize("name", ["", *WORDS])
def test_roff_understands_every_page(name: str) -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww"],
        input=manual_page(name).encode(), capture_output=True, check=True,
    )  # fmt: skip
    assert done.stderr == b""
    assert b"DESCRIPTION" in re.sub(rb".\x08", b"", done.stdout)


def test_groups_are_known_to_every_script() -> None:
    for shell in SHELLS:
        for group in GROUPS:
            assert group in completion_script(shell)
