"""start, exec and batch: every option arrives, and statuses and signals pass through."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.hooks.sandbox import Sandbox


@pytest.fixture
def box(enroot: Command) -> Command:
    """A machine with one container, `box`, which cannot be started: it is empty."""
    (enroot.data / "box").mkdir(parents=True)
    (enroot.root / "conf").write_text("#ENROOT_UNSHARE_UTS y\n")
    (enroot.root / "rc").touch()
    return enroot


def plan(box: Command, *words: str) -> list[str]:
    done = box.run("start", "--dry-run", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "words, line",
    [
        (["-w"], "writable"),
        (["--rw"], "writable"),
        (["-r"], "is 0:0)"),
        (["--root"], "is 0:0)"),
        (["--pid"], ", pid"),
        (["--net"], ", net"),
        (["--ipc"], ", ipc"),
        (["--uts"], ", uts"),
        (["-m", "/a:/b"], "mount: /a on /b"),
        (["--mount=/a:/b"], "mount: /a on /b"),
        (["-e", "A=b c"], "environment: A=b c"),
        (["--env=A="], "environment: A="),
        (["-c", "conf"], "configuration script: conf"),
        (["--conf=conf"], ", uts"),
        (["--rc", "rc"], "command script: rc"),
        (["--gpus", "0"], "device: 0"),
        (["--device", "nvidia.com/gpu=1"], "device: nvidia.com/gpu=1"),
        (["--preserve-fds", "2"], "descriptors passed on: 0-2 3 4"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_option_of_start_arrives(box: Command, words: list[str], line: str) -> None:
    without, with_it = plan(box, "box"), plan(box, *words, "box")
    if words[0] in ("-r", "--root") and os.geteuid() == 0:
        without = []  # root is root without asking
    assert any(line in shown for shown in with_it), with_it
    assert not any(line in shown for shown in without)


def test_options_that_add_up_keep_their_order(box: Command) -> None:
    lines = plan(box, "-e", "A=1", "-e", "B=2", "-e", "A=3", "box", "true", "-x", "a b")
    variables = [line for line in lines if line.startswith(("environment: A", "environment: B"))]
    assert "environment: A=3" in variables and "environment: B=2" in variables
    assert [line for line in lines if line.startswith("word: ")] == [
        "word: true",
        "word: -x",
        "word: a b",
    ]


def test_a_dry_run_changes_nothing(box: Command) -> None:
    before = box.tree()
    plan(box, "-c", "conf", "--rw", "box", "true")
    assert box.tree() == before


@pytest.mark.kernel
@pytest.mark.parametrize(
    "words, status",
    [(["true"], 0), (["sh", "-c", "exit 7"], 7), (["nosuch"], 127), (["/etc"], 126)]
    + [(["sh", "-c", "kill -TERM $$"], -signal.SIGTERM)],
    ids=str,
)
@pytest.mark.parametrize("option", [[], ["--pid"]], ids=str)
def test_statuses_pass_through(
    tmp_path: Path, words: list[str], status: int, option: list[str]
) -> None:
    sandbox = Sandbox(tmp_path)
    if option and status == -signal.SIGTERM:
        # The first process of a PID namespace is spared signals of its own.
        words = ["sh", "-c", "sh -c 'kill -TERM $$'; exit $?"]
        status = 128 + signal.SIGTERM
    done = sandbox.call("enroot", "start", *option, "box", *words)
    assert done.returncode == status
    if status in (126, 127):
        assert done.stderr


@pytest.mark.kernel
def test_exec_joins_by_number_and_by_name(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    process = subprocess.Popen(
        [str(sandbox.programs / "enroot"), "start", "--uts", "-e", "A=b", "box", "sleep", "60"],
        env=sandbox.environ, start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        inside = os.readlink(f"/proc/{process.pid}/ns/uts")
        for target in (str(process.pid), "box"):
            done = sandbox.call("enroot", "exec", target, "readlink", "/proc/self/ns/uts")
            assert (done.returncode, done.stdout.strip()) == (0, inside), done.stderr
            done = sandbox.call("enroot", "exec", "-e", "C=d e", target, "sh", "-c", 'echo "$A$C"')
            assert done.stdout == "bd e\n"
            assert sandbox.call("enroot", "exec", target, "sh", "-c", "exit 9").returncode == 9
            assert sandbox.call("enroot", "exec", target, "nosuch").returncode == 127
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert sandbox.call("enroot", "exec", "box", "true").returncode == 1
