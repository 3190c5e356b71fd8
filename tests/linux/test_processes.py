"""Facts about processes, in the forms of ps."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from enroot_py.linux.processes import (
    format_age,
    format_started,
    namespace,
    parse_slurm_step,
    process_ids,
    read_environ,
    read_process,
    start_time,
)

NOWHERE = 2**22 + 7  # above any pid_max


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "00:00"), (59.9, "00:59"), (60, "01:00"), (3599, "59:59"), (3600, "01:00:00")]
    + [
        (86399, "23:59:59"),
        (86400, "1-00:00:00"),
        (90061, "1-01:01:01"),
        (8640000, "100-00:00:00"),
    ],
)
def test_ages_are_shown_as_ps_does(seconds: float, text: str) -> None:
    assert format_age(seconds) == text


@pytest.mark.parametrize(
    "age, text",
    [(0, "12:30"), (3600, "11:30"), (86400, "Jun14"), (40 * 86400, "May06"), (300 * 86400, "2023")],
)
def test_starts_are_shown_as_ps_does(age: float, text: str) -> None:
    now = time.mktime((2024, 6, 15, 12, 30, 0, 0, 0, -1))
    assert format_started(age, now) == text


@pytest.mark.parametrize(
    "cgroup, environ, expected",
    [
        (b"0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n", b"", ("7", "0")),
        (b"4:cpuset:/slurm/uid_1000/job_7/step_batch\n1:name=x:/y\n", b"", ("7", "batch")),
        (b"0::/slurm/uid_1000/job_7\n", b"SLURM_STEP_ID=3\0", ("7", "")),
        (b"0::/user.slice\n", b"A=b\0SLURM_JOB_ID=9\0SLURM_STEP_ID=1\0", ("9", "1")),
        (b"0::/user.slice\n", b"SLURM_JOB_ID=9\0", ("9", "")),
        (b"0::/step_1/other\n", b"", ("", "")),
        (b"", b"", ("", "")),
        (b"", b"SLURM_JOB_ID\0\xff\xfe\0", ("", "")),
    ],
)
def test_the_step_is_found(cgroup: bytes, environ: bytes, expected: tuple[str, str]) -> None:
    assert parse_slurm_step(cgroup, environ) == expected


def test_this_process_is_known() -> None:
    process = read_process(os.getpid())
    assert process is not None
    assert process.pid == os.getpid() and process.pid in process_ids()
    assert process.state[0] == "R"
    assert process.mnt_namespace == namespace("self", "mnt") == os.stat("/proc/self/ns/mnt").st_ino
    assert process.age >= 0
    assert process.command[0]


def test_what_is_gone_has_no_facts() -> None:
    assert read_process(NOWHERE) is None
    assert start_time(NOWHERE) is None
    assert namespace(NOWHERE, "mnt") == 0


@pytest.mark.parametrize("name", ["plain", "par) S (en", "two words", "new\nline"])
def test_names_that_look_like_fields_do_no_harm(name: str) -> None:
    script = (
        "import sys, time\n"
        "open('/proc/self/comm', 'w').write(sys.argv[1])\n"
        "print('up', flush=True); time.sleep(60)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, name], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
        deadline = time.monotonic() + 60
        process = read_process(child.pid)
        while process is not None and process.state[0] == "R" and time.monotonic() < deadline:
            process = read_process(child.pid)
        assert process is not None
        # "N" beside them where the tests run with less priority.
        assert (process.comm, set(process.state) - {"N"}) == (name, {"S", "s"})
        assert process.command[-1] == name
    finally:
        child.kill()
        child.communicate()


def test_a_zombie_is_called_defunct() -> None:
    child = subprocess.Popen(["true"])
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        process = read_process(child.pid)
        assert process is not None
        assert (process.state[0], process.command) == ("Z", ("[true]", "<defunct>"))
    finally:
        child.wait()


def test_variables_are_read_also_while_a_program_is_executed(tmp_path: Path) -> None:
    """In the middle of it /proc knows none, for a tenth of the time of this chain."""
    chain = tmp_path / "chain"
    chain.write_text('exec sh "$0"\n')
    with subprocess.Popen(["sh", chain], env={"ITS": "1", "PATH": "/usr/bin:/bin"}) as process:
        try:
            deadline = time.monotonic() + 60  # not of processors for others' work
            found = {
                b"ITS=1" in read_environ(process.pid, deadline=deadline).split(b"\0")
                for _ in range(500)
            }
        finally:
            process.kill()
    assert found == {True}


def test_what_has_no_variables_is_not_waited_for() -> None:
    """It would be without end here."""
    with subprocess.Popen(["sleep", "60"], env={}) as process:
        try:
            assert read_environ(process.pid, deadline=math.inf) == b""
        finally:
            process.kill()
    assert read_environ(process.pid) == read_environ(NOWHERE) == b""
