"""Processes of a pod: how they start and how they end."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyxis_py.kubernetes.launcher.node import processes
from pyxis_py.kubernetes.launcher.node.processes import (
    Processes,
    Program,
    _environment,
    find_processes,
    kill_processes,
    signal_group,
)
from pyxis_py.kubernetes.launcher.wire.loop import Loop

PATH = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def loop() -> Iterator[Loop]:
    before = {number: signal.getsignal(number) for number in (signal.SIGCHLD, signal.SIGTERM)}
    found = Loop()
    yield found
    found.close()
    for number, handler in before.items():
        signal.signal(number, handler)


NULL = os.open(os.devnull, os.O_RDWR)


def program(*argv: str, **changes: object) -> Program:
    fields: dict[str, object] = {
        "argv": argv, "environ": PATH, "directory": "/", "umask": 0o22, "stdio": (NULL, NULL, NULL),
        "limits": {}, **changes,
    }  # fmt: skip
    return Program(**fields)  # type: ignore[arg-type]


def test_a_signal_right_after_the_start_is_the_child_s_own(loop: Loop) -> None:
    """Between fork and exec the child still has the parent's handlers, and no group."""
    processes = Processes(loop)
    ours: list[str] = []
    loop.on_signal(signal.SIGTERM, lambda: ours.append("SIGTERM"))
    statuses: list[int] = []

    def ended(status: int) -> None:
        statuses.append(status)
        if len(statuses) == 100:
            loop.call_later(0.05, loop.stop)

    for _ in range(100):
        assert signal_group(processes.start(program("sleep", "60"), ended), signal.SIGTERM)
    loop.call_later(100, loop.stop)
    loop.run()
    assert [os.WTERMSIG(status) for status in statuses] == [signal.SIGTERM] * 100
    assert ours == []


def run(loop: Loop, found: Program) -> int:
    processes = Processes(loop)
    statuses: list[int] = []

    def ended(status: int) -> None:
        statuses.append(status)
        loop.stop()

    processes.start(found, ended)
    loop.call_later(100, loop.stop)
    loop.run()
    return statuses[0]


@pytest.mark.parametrize(
    ("argv", "code"),
    [(["nosuchprogram"], 2), (["/etc/passwd"], 13), (["/etc/passwd/x"], 20), (["true"], 0)],
)
def test_what_cannot_be_executed_exits_with_the_error_s_number(
    loop: Loop, argv: list[str], code: int
) -> None:
    assert os.WEXITSTATUS(run(loop, program(*argv))) == code


def test_a_task_has_its_folder_limits_umask_and_session(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    script = "pwd; umask; ulimit -S -n; [ $(ps -o sid= -p $$) = $$ ] && echo leader; echo $A"
    out = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    found = program(
        "bash", "-c", script, directory=str(tmp_path / "work"), umask=0o27, stdio=(NULL, out, out),
        limits={"NOFILE": 100, "CORE": -1}, environ={**PATH, "A": "b"},
    )  # fmt: skip
    assert run(loop, found) == 0
    os.close(out)
    assert (tmp_path / "out").read_text() == f"{tmp_path}/work\n0027\n100\nleader\nb\n"


def test_processes_are_found_by_session_and_by_all_marks() -> None:
    code = "import time; time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", code], env={"MARK_A": "1", "MARK_B": "2"}, start_new_session=True
    ) as process:
        try:
            assert find_processes({}, [process.pid]) == [process.pid]
            assert find_processes({"MARK_A": "1", "MARK_B": "2"}, []) == [process.pid]
            assert find_processes({"MARK_A": "1", "MARK_B": "3"}, []) == []
            assert find_processes({}, []) == []
        finally:
            process.kill()


def test_a_process_that_executes_a_program_just_now_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of it /proc knows no variables, for a tenth of the time of this chain."""
    monkeypatch.setattr(processes, "EXEC_LIMIT", 10.0)  # where others have the processors
    chain = tmp_path / "chain"
    chain.write_text('exec sh "$0"\n')
    with subprocess.Popen(["sh", chain], env={"MARK": str(tmp_path), **PATH}) as process:
        try:
            for _ in range(200):
                assert find_processes({"MARK": str(tmp_path)}, []) == [process.pid]
        finally:
            process.kill()


def test_a_program_without_variables_is_not_waited_for() -> None:
    """It would be without end here."""
    with subprocess.Popen(["sleep", "60"], env={}) as process:
        try:
            assert _environment(process.pid, math.inf) == {b""}
        finally:
            process.kill()


def test_what_flees_by_forking_is_killed_as_well(tmp_path: Path) -> None:
    """Each runner starts the next in a session of its own and ends; the 200th comes through."""
    runner = tmp_path / "runner"
    runner.write_text(
        'sleep 0.005; [ "$1" -lt 200 ] || exec touch "$0.end"; setsid sh "$0" $(($1 + 1)) & exit\n'
    )
    subprocess.run(["sh", runner, "0"], env={"MARK": str(tmp_path), **PATH}, check=True)
    kill_processes({"MARK": str(tmp_path)}, [])
    deadline = time.monotonic() + 100
    while find_processes({"MARK": str(tmp_path)}, []) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not (tmp_path / "runner.end").exists()
