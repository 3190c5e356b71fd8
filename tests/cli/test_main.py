"""The console script: statuses, streams, help, and what a failure looks like."""

from __future__ import annotations

import os
import pty
import pwd
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from enroot_py.cli import main as main_module
from enroot_py.cli.table import BY_NAME, COMMANDS, GROUPS
from enroot_py.errors import CommandError, EnrootError, NotFoundError, SpaceError
from enroot_py.settings import VERSION
from tests.cli.command import ENROOT, Command

NAMES = [command.name for command in COMMANDS]


def test_version_is_the_one_it_equals(enroot: Command) -> None:
    for words in (["version"], ["--version"]):
        done = enroot.run(*words)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{VERSION}\n", "")


@pytest.mark.parametrize(
    "words", [["help"], ["--help"], ["-h"], ["help", "start"], ["start", "--help"]], ids=" ".join
)
def test_help_that_was_asked_for(enroot: Command, words: list[str]) -> None:
    done = enroot.run(*words)
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: enroot ")
    assert done.stderr == ""


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "Missing command"),
        (["cache"], "Missing command"),
        (["nosuch"], "No such command: nosuch"),
        (["cache", "nosuch"], "No such command: cache nosuch"),
        (["-x"], "-x"),
        (["import"], "Missing argument: URI"),
        (["import", "-o", "", "x"], "Option -o needs a value"),
        (["import", "--nosuch", "x"], "No such option: --nosuch"),
        (["import", "a", "b"], "Too many arguments: b"),
        (["start"], "Missing argument"),
        (["start", "-rw", "x"], "No such option: -rw"),
        (["exec", "1"], "Missing argument"),
        (["batch"], "Missing argument"),
        (["list", "--x"], "No such option: --x"),
        (["help", "nosuch"], "No such command: nosuch"),
    ],
    ids=str,
)
def test_usage_errors(enroot: Command, words: list[str], message: str) -> None:
    done = enroot.run(*words)
    assert done.returncode == 1
    assert done.stdout.startswith("Usage: enroot ")
    first = done.stderr.splitlines()[0]
    assert first.startswith("[ERROR] ") and message in first


def test_usage_texts_show_every_option_and_command(enroot: Command) -> None:
    whole = enroot.run("help").stdout
    for name in NAMES:
        assert re.search(rf"^  {name.split()[0]} ", whole, re.MULTILINE), name
    for group in GROUPS:
        text = enroot.run(group, "--help").stdout
        for name in NAMES:
            if name.startswith(group + " "):
                assert re.search(rf"^  {name.split()[1]} ", text, re.MULTILINE), name
    for name in ("start", "import", "bundle", "cache list"):
        command = BY_NAME[name]
        text = enroot.run(*name.split(), "--help").stdout
        assert text.splitlines()[0].strip() == (
            f"Usage: enroot {name} [options] [--] {command.operands}".strip()
        )
        for option in command.options:
            assert ", ".join(option.names) in text


@pytest.mark.parametrize("command", ["list", "version"])
def test_words_that_enroot_ignores_are_mentioned(enroot: Command, command: str) -> None:
    done = enroot.run(command, "extra")
    assert done.returncode == 0
    assert done.stderr.startswith("[WARN] ") and "extra" in done.stderr


@pytest.mark.parametrize(
    "words",
    [["--help"], ["help"], ["version"], ["list"], ["list", "-f"], ["list", "--json"], ["info"]]
    + [["start", "--help"], ["import"], ["nosuch"], ["man", "start"], ["completion", "bash"]],
    ids=" ".join,
)
def test_looking_creates_nothing(enroot: Command, words: list[str]) -> None:
    enroot.run(*words)
    assert enroot.tree() == []


@pytest.mark.parametrize("words", [["version"], ["list"], ["list", "-f"], ["info"]], ids=" ".join)
def test_without_any_variable_the_users_database_says_where_home_is(words: list[str]) -> None:
    """pyxis#101."""
    done = subprocess.run([ENROOT, *words], env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if words == ["info"]:
        assert f"{pwd.getpwuid(os.getuid()).pw_dir}/.local/share/enroot" in done.stdout


@pytest.mark.parametrize("words", [["--help"], ["version"], ["list"], ["list", "-f"]], ids=" ".join)
def test_looking_works_with_paths_that_cannot_be(enroot: Command, words: list[str]) -> None:
    nowhere = {
        f"ENROOT_{name}_PATH": f"/proc/nowhere/{name}"
        for name in ("CACHE", "DATA", "RUNTIME", "TEMP", "CONFIG")
    }
    done = enroot.run(*words, environ={**nowhere, "HOME": "/proc/nowhere"})
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_bad_setting_is_one_line_and_a_hint(enroot: Command) -> None:
    done = enroot.run("list", environ={"ENROOT_MAX_PROCESSORS": "many"})
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "[ERROR] Invalid value of ENROOT_MAX_PROCESSORS: 'many'",
        "        expected a number, 0 or more",
    ]


def test_start_warns_of_options_behind_the_name(enroot: Command) -> None:
    done = enroot.run("start", "nosuch", "--env", "A=B")
    assert done.returncode == 1
    assert "[WARN] --env is passed to the container" in done.stderr


@pytest.mark.parametrize("number", ["x", "-1", "1.5", "²"])
def test_a_number_of_descriptors_is_checked(enroot: Command, number: str) -> None:
    done = enroot.run("start", "--preserve-fds", number, "nosuch")
    assert done.returncode == 1
    assert "Invalid number" in done.stderr


def test_colour_is_for_terminals_alone(enroot: Command) -> None:
    def stderr_on_terminal(**environ: str) -> bytes:
        leader, follower = pty.openpty()
        subprocess.run(
            [str(ENROOT), "nosuch"],
            env={**enroot.environ, "TERM": "xterm", **environ},
            stdout=subprocess.DEVNULL,
            stderr=follower,
            check=False,
        )
        os.close(follower)
        seen = b""
        with suppress(OSError):  # the end: nobody has the other side any more
            while data := os.read(leader, 4096):
                seen += data
        os.close(leader)
        return seen

    assert b"\x1b[31m[ERROR]\x1b[0m No such command" in stderr_on_terminal()
    assert b"\x1b" not in stderr_on_terminal(NO_COLOR="1")
    assert b"\x1b" not in stderr_on_terminal(TERM="dumb")
    assert "\x1b" not in enroot.run("nosuch", environ={"TERM": "xterm"}).stderr


@pytest.mark.parametrize("words", [["man", "start"], ["--help"], ["list", "-f"], ["start", "-h"]])
def test_nobody_reading_the_output_is_no_error(enroot: Command, words: list[str]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [str(ENROOT), *words],
        env=enroot.environ,
        stdout=write_end,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_full_disk_behind_stdout_is_reported(enroot: Command) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [str(ENROOT), "version"],
            env=enroot.environ,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"[ERROR] No space left on device")


@pytest.mark.parametrize("closed", [1, 2])
def test_closed_streams_do_no_harm(enroot: Command, closed: int) -> None:
    script = f"exec {closed}>&-; {ENROOT} version"
    done = subprocess.run(["sh", "-c", script], env=enroot.environ, check=False)
    assert done.returncode == 0


def test_an_interrupt_ends_it_quietly(enroot: Command) -> None:
    (enroot.data / "work").mkdir(parents=True)
    process = enroot.start(["remove", "work"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for_read(process.pid)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (130, "")
    assert (enroot.data / "work").is_dir()


def wait_for_read(pid: int) -> None:
    """Wait until a process sleeps in a read of its standard input."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if Path(f"/proc/{pid}/wchan").read_text() in ("pipe_read", "anon_pipe_read"):
            return
        time.sleep(0.02)
    pytest.fail("it never waited for an answer")


@pytest.mark.parametrize(
    "error, status, lines",
    [
        (NotFoundError("No x", hint="try y"), 1, ["[ERROR] No x", "        try y"]),
        (CommandError("No command"), 127, ["[ERROR] No command"]),
        (SpaceError("Full\n\x1b[2J"), 1, [r"[ERROR] Full\n\x1b[2J"]),
        (
            PermissionError(13, "Permission denied", "/x"),
            1,
            [
                "[ERROR] Permission denied: /x",
                "        `enroot doctor` checks the permissions of every ENROOT_*_PATH",
            ],
        ),
        (
            MemoryError(),
            1,
            [
                "[ERROR] Cannot allocate memory",
                "        a memory limit of the session or the job may be too small",
            ],
        ),
        (
            RuntimeError("can't start new thread"),
            1,
            [
                "[ERROR] Cannot start a thread",
                "        a limit on processes (ulimit -u) or on a cgroup may be too small",
            ],
        ),
        (KeyboardInterrupt(), 130, []),
    ],
    ids=repr,
)
def test_whatever_is_raised_ends_in_a_line_and_a_status(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    status: int,
    lines: list[str],
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(main_module, "run_command", fail)
    monkeypatch.setattr(main_module, "_abandon_stdout", lambda: None)
    assert main_module.main(["version"]) == status
    assert capsys.readouterr().err.splitlines() == lines


@pytest.mark.parametrize("error", [ZeroDivisionError(), RuntimeError("odd")], ids=repr)
def test_a_fault_of_the_program_is_not_hidden(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(main_module, "run_command", fail)
    with pytest.raises(type(error)):
        main_module.main(["version"])


@pytest.mark.parametrize(
    "words", [["start", "nosuch"], ["exec", "4194311", "true"], ["list"], ["version"]], ids=" ".join
)
def test_commands_in_a_hurry_load_little(enroot: Command, words: list[str]) -> None:
    script = (
        "import sys; before = set(sys.modules)\n"
        "from enroot_py.cli.main import main\n"
        "main(sys.argv[1:])\n"
        "print(*sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        env=enroot.environ, cwd=enroot.root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    loaded = {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()}
    slow = {"argparse", "click", "collections", "dataclasses", "enum", "functools", "json"}
    slow |= {"logging", "pathlib", "re", "requests", "subprocess", "tempfile", "typing", "urllib"}
    assert not loaded & slow
    assert "enroot_py" in loaded


def test_every_handler_exists() -> None:
    for command in COMMANDS:
        module, _, function = command.handler.partition(":")
        __import__(module)
        assert callable(getattr(sys.modules[module], function)), command.name


def test_errors_have_statuses_that_shells_understand() -> None:
    assert EnrootError.exit_code == 1
    assert CommandError.exit_code == 127
