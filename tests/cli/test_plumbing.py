"""The commands that hooks call: words, usage, messages and exit statuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from enroot_py.cli import plumbing
from enroot_py.cli.plumbing import MOUNT, NSENTER, SWITCHROOT, Words
from enroot_py.errors import LayerError, NotFoundError, UsageError
from enroot_py.operations.plumbing.environment import read_environment
from enroot_py.operations.plumbing.squash import squash_overlay
from enroot_py.operations.plumbing.whiteouts import convert_whiteouts

COMMANDS = ("mount", "nsenter", "switchroot", "aufs2ovlfs", "mksquashovlfs", "hook")


def call(command: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command as its entry point does."""
    program = f"import sys; from enroot_py.cli import plumbing; sys.exit(plumbing.{command}())"
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("words", [(), ("--help",), ("-h", "x", "y")], ids=str)
@pytest.mark.parametrize("command", COMMANDS)
def test_without_words_and_on_request_the_usage_is_shown(
    command: str, words: tuple[str, ...]
) -> None:
    done = call(command, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: ")


def test_every_command_has_an_entry_point() -> None:
    root = Path(__file__).resolve().parents[2]
    text = (root / "pyproject.toml").read_text()
    for command in COMMANDS:
        assert f'enroot-{command} = "enroot_py.cli.plumbing:{command}"' in text
        assert callable(getattr(plumbing, command))


@pytest.mark.parametrize(
    ("words", "rest", "root", "passno"),
    [
        (["f"], ["f"], "/", 0),
        (["--root", "/r", "--pass", "-1", "a", "b"], ["a", "b"], "/r", -1),
        (["--pass", "2", "--pass", "3", "--", "a"], ["--", "a"], "/", 3),
        (["a", "--root", "/r"], ["a", "--root", "/r"], "/", 0),
        (["--root"], ["--root"], "/", 0),
        (["--root=/r", "a"], ["--root=/r", "a"], "/", 0),
    ],
)
def test_options_end_at_the_first_other_word(
    words: list[str], rest: list[str], root: str, passno: int
) -> None:
    read = Words(words, MOUNT)
    assert (read.rest, read.text("--root", "/"), read.number("--pass", 0)) == (rest, root, passno)


@pytest.mark.parametrize("text", ["", "x", "1x", "2147483648", "-2147483649", "1.5"])
def test_a_number_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="--pass"):
        Words(["--pass", text, "f"], MOUNT).number("--pass", 0)


def test_flags_and_values_mix() -> None:
    read = Words(["--user", "--target", "7", "--pid", "cmd", "--net"], NSENTER)
    assert read.rest == ["cmd", "--net"]
    assert read.flag("--user")
    assert read.flag("--pid")
    assert not read.flag("--net")
    assert read.number("--target", 0, 1) == 7
    assert Words(["--login", "/r", "--login"], SWITCHROOT).rest == ["/r", "--login"]


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        ("mount", ["--pass", "x", "f"], "Invalid argument: --pass x"),
        ("mount", ["/no/such/fstab"], "Cannot read /no/such/fstab: No such file or directory"),
        ("mount", ["--root", "/no/such", "-"], "Cannot open the root /no/such"),
        ("nsenter", ["--target", "0", "true"], "Invalid argument: --target 0"),
        ("nsenter", ["--target", "4194304", "true"], "No such process: 4194304"),
        ("nsenter", ["--envfd", "2", "true"], "Invalid argument: --envfd 2"),
        ("nsenter", ["--envfile", "/no/such", "true"], "Cannot read the environment /no/such"),
        ("nsenter", ["--workdir", "/no/such", "true"], "Cannot open the folder /no/such"),
        ("switchroot", ["/no/such"], "Cannot open /no/such"),
        ("switchroot", ["--rcfile", "/no/such", "/"], "Cannot open /no/such"),
        ("aufs2ovlfs", ["/no/such"], "Cannot open the folder /no/such"),
        ("hook", ["no-such"], "No such built-in hook: no-such"),
        ("hook", ["shadow"], "ENROOT_ROOTFS is not set"),
    ],
)
def test_errors_are_one_line_and_status_1(command: str, words: list[str], message: str) -> None:
    done = call(command, *words)
    assert done.returncode == 1
    assert done.stderr.startswith(f"[ERROR] {message}")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("words", "status"), [(["/no/such"], 127), (["/etc/passwd"], 126)])
def test_a_command_that_cannot_be_run(words: list[str], status: int) -> None:
    assert call("nsenter", *words).returncode == status


def test_a_bad_entry_mounts_nothing(tmp_path: Path) -> None:
    done = call("mount", "--root", str(tmp_path), "-", stdin="/a /b none bind x\n")
    assert done.returncode == 1
    assert "standard input" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_closed_standard_input_is_named(tmp_path: Path) -> None:
    program = "import os; os.close(0); os.execvp(os.sys.executable, os.sys.argv[1:])"
    mount = "import sys; from enroot_py.cli import plumbing; sys.exit(plumbing.mount())"
    words = [sys.executable, "-c", mount, "--root", str(tmp_path), "-"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "standard input is closed" in done.stderr


def test_entries_of_another_pass_are_skipped(tmp_path: Path) -> None:
    done = call("mount", "--root", str(tmp_path), "-", stdin="/no /x none bind,x-create=dir 0 -1\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\nB=x=y\n", {"A": "1", "B": "x=y"}),
        ('A="q"\nENROOT_X=1\n', {"A": '"q"', "ENROOT_X": "1"}),
        ("junk\n =x\n1A=x\n#A=1\n", {}),
        ("A=1\nA=2", {"A": "2"}),
        ("A=\x001\n", {}),
    ],
)
def test_environments_are_taken_as_they_are(
    tmp_path: Path, text: str, expected: dict[str, str]
) -> None:
    path = tmp_path / "environ"
    path.write_text(text)
    assert read_environment(str(path)) == expected
    assert read_environment(os.open(path, os.O_RDONLY)) == expected


def test_the_environment_of_a_closed_descriptor() -> None:
    with pytest.raises(NotFoundError):
        read_environment(987)


def test_what_the_interpreter_set_is_not_passed_on() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from enroot_py.cli.plumbing import nsenter; nsenter()",
            "/usr/bin/env",
        ],
        env={"A": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "A=1\n"


@pytest.mark.parametrize("name", [".wh.", ".wh..", ".wh...", ".wh..wh.plnk", ".wh..wh..wh.x"])
def test_whiteouts_that_are_none_change_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / name).write_text("")
    with pytest.raises(LayerError, match="Unsupported whiteout"):
        convert_whiteouts(str(tmp_path))
    assert os.listdir(tmp_path / "d") == [name]


def test_a_relative_mount_point_is_refused() -> None:
    with pytest.raises(UsageError, match="MOUNTPOINT"):
        squash_overlay("/a:/b", "/tmp/x", (), mount_point="mnt")
