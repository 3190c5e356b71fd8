"""Listing containers, and the processes in them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from enroot_py.errors import InvalidNameError, NotFoundError, UsageError
from enroot_py.linux.processes import namespace, start_time
from enroot_py.operations.containers import UNKNOWN, ContainerStatus, containers, find_running
from enroot_py.settings import Settings, load_settings
from tests.hooks.contexts import wait_until_asleep
from tests.hooks.sandbox import Sandbox, make_rootfs

COLUMNS = ["NAME", "PID", "COMM", "STATE", "STARTED", "TIME", "MNTNS", "USERNS", "COMMAND"]


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


def settings_of(sandbox: Sandbox) -> Settings:
    return load_settings(sandbox.environ)


def by_name(sandbox: Sandbox) -> dict[str, ContainerStatus]:
    return {found.name: found for found in containers(settings=settings_of(sandbox))}


@contextmanager
def running(sandbox: Sandbox, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A container that has said that it runs; gone afterwards."""
    process = subprocess.Popen(
        [str(sandbox.programs / "enroot"), "start", *words],
        env=sandbox.environ, cwd="/", stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n", "the container did not start"
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


UP = ("sh", "-c", "echo up; exec sleep 60")


def test_without_a_data_folder_there_are_none(tmp_path: Path) -> None:
    settings = load_settings({"HOME": str(tmp_path), "ENROOT_DATA_PATH": str(tmp_path / "none")})
    # Containers of other data folders that run on this machine are "<unknown>" ones.
    assert [found for found in containers(settings=settings) if found.name != "<unknown>"] == []
    assert os.listdir(tmp_path) == []


def test_folders_are_containers_and_nothing_runs(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "dangling").symlink_to("nowhere")
    settings = load_settings({"HOME": "/", "ENROOT_DATA_PATH": str(tmp_path)})
    found = [one for one in containers(settings=settings) if one.name != "<unknown>"]
    assert [container.name for container in found] == ["a", "b", "link"]
    assert all(container.processes == () for container in found)


def test_a_name_that_does_not_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "idle").mkdir()
    settings = load_settings({"HOME": "/", "ENROOT_DATA_PATH": str(tmp_path)})
    with pytest.raises(NotFoundError, match="not running"):
        find_running("idle", settings=settings)
    with pytest.raises(NotFoundError, match="No such container") as raised:
        find_running("idel", settings=settings)
    assert "idle" in raised.value.hint
    with pytest.raises(InvalidNameError):
        find_running("../idle", settings=settings)


@pytest.mark.kernel
def test_the_process_that_was_started_stands_for_the_container(sandbox: Sandbox) -> None:
    make_rootfs(sandbox.rootfs.with_name("idle"))
    script = "sleep 61 & echo up; wait"
    with running(sandbox, "box", "sh", "-c", script) as process:
        found = by_name(sandbox)
        assert find_running("box", settings=settings_of(sandbox)) == process.pid
    assert sorted({*found} - {UNKNOWN}) == ["box", "idle"]
    assert found["idle"].processes == ()
    (box,) = found["box"].processes
    assert (box.pid, box.comm, box.command) == (process.pid, "sh", ("sh", "-c", script))
    assert 0 <= box.age < 60
    assert box.mnt_namespace not in (0, namespace("self", "mnt"))
    assert box.user_namespace not in (0, namespace("self", "user"))


@pytest.mark.kernel
def test_a_container_started_twice_has_two_processes(sandbox: Sandbox) -> None:
    with running(sandbox, "box", *UP) as first, running(sandbox, "box", *UP) as second:
        found = by_name(sandbox)
        assert {*found} - {UNKNOWN} == {"box"}
        pids = [process.pid for process in found["box"].processes]
        assert pids == sorted([first.pid, second.pid])
        with pytest.raises(UsageError, match="2 times") as raised:
            find_running("box", settings=settings_of(sandbox))
        assert str(first.pid) in raised.value.hint and str(second.pid) in raised.value.hint


@pytest.mark.kernel
def test_with_a_pid_namespace_the_process_inside_is_listed(sandbox: Sandbox) -> None:
    with running(sandbox, "--pid", "box", *UP) as process:
        pid = find_running("box", settings=settings_of(sandbox))
        assert pid != process.pid
        assert namespace(pid, "pid") != namespace("self", "pid")
        done = sandbox.call("enroot", "exec", "box", "readlink", "/proc/self/ns/pid")
        assert done.stdout.strip() == f"pid:[{namespace(pid, 'pid')}]"


@pytest.mark.kernel
def test_a_container_that_was_replaced_runs_without_a_name(sandbox: Sandbox) -> None:
    with running(sandbox, "box", *UP) as process:
        sandbox.rootfs.rename(sandbox.rootfs.with_name(".gone"))
        make_rootfs(sandbox.rootfs)
        found = by_name(sandbox)
    assert found["box"].processes == ()
    assert process.pid in [entry.pid for entry in found[UNKNOWN].processes]


@pytest.mark.kernel
def test_names_are_found_below_an_overlay(sandbox: Sandbox) -> None:
    """As on network file systems, the path in mountinfo is not the path on the host there."""
    script = """
        mount -t tmpfs tmpfs "$1"
        mkdir "$1/upper" "$1/work" "$1/merged"
        mount -t overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work,userxattr" x "$1/merged"
        export XDG_DATA_HOME="$1/merged"
        "$3" start box sh -c 'echo up; exec sleep 60' > "$1/up" &
        until grep -q up "$1/up"; do sleep 0.05; done
        "$3" list --json
        kill $!
    """
    stage = sandbox.folder / "stage"
    stage.mkdir()
    enroot = str(sandbox.programs / "enroot")
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-euc", script, "sh", str(stage), str(sandbox.folder / "data")]
        + [enroot],
        env=sandbox.environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    found = {entry["name"]: entry for entry in json.loads(done.stdout)}
    assert len(found["box"]["processes"]) == 1, done.stderr


@pytest.mark.kernel
def test_the_table_has_enroots_columns(sandbox: Sandbox) -> None:
    make_rootfs(sandbox.rootfs.with_name("idle"))
    with running(sandbox, "box", *UP) as first, running(sandbox, "box", *UP) as second:
        for process in (first, second):
            wait_until_asleep(process.pid, "sleep")
        near = {first.pid: minutes_near(first.pid), second.pid: minutes_near(second.pid)}
        table = sandbox.call("enroot", "list", "-f").stdout
        stat = subprocess.run(
            ["ps", "-o", "pid=,stat=,stime=,mntns=,userns=", "-p", f"{first.pid},{second.pid}"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    lines = table.splitlines()
    assert lines[0].split() == COLUMNS
    # As NVIDIA's pyxis reads them: a name, and behind blanks a pid or nothing.
    names = [line.split()[0] for line in lines[1:] if not line.startswith(" ")]
    assert [name for name in names if name != UNKNOWN] == ["box", "idle"]
    assert lines[-1] == "idle"
    assert lines[-2].startswith(" ")
    # Columns begin where their headings do.
    starts = [lines[0].index(name) for name in COLUMNS]
    ends = [*starts[1:], None]
    rows = [[line[a:b].strip() for a, b in zip(starts, ends, strict=True)] for line in lines[-3:-1]]
    for row, expected in zip(rows, sorted(stat.splitlines()), strict=True):
        pid, state, started, mnt, user = expected.split()
        assert (row[1], row[3], row[6], row[7]) == (pid, state, mnt, user)
        assert row[4] == started or {row[4], started} <= near[int(pid)]
        assert row[2] == "sleep" and row[8] == "sleep 60"
        minutes, seconds = row[5].split(":")
        assert int(minutes) < 2 and 0 <= int(seconds) < 60


def minutes_near(pid: int) -> set[str]:
    """Return the minutes that a process may be said to have started in: ps rounds to seconds."""
    ticks = start_time(pid)
    assert ticks is not None
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    second = time.time() - age
    return {time.strftime("%H:%M", time.localtime(second + off)) for off in (-1, 0, 1)}


@pytest.mark.kernel
def test_listing_never_fails_while_containers_come_and_go(sandbox: Sandbox) -> None:
    script = "while :; do enroot start box true; enroot start box sh -c 'sleep 0.01'; done"
    environ = {**sandbox.environ, "PATH": f"{sandbox.programs}:{sandbox.environ['PATH']}"}
    loops = [
        subprocess.Popen(["sh", "-c", script], env=environ, start_new_session=True)
        for _ in range(2)
    ]
    try:
        started = time.monotonic()
        seen = 0
        while (spent := time.monotonic() - started) < 4 or (not seen and spent < 120):
            found = by_name(sandbox)
            assert "box" in found
            seen += len(found["box"].processes)
            done = sandbox.call("enroot", "list", "--fancy")
            assert (done.returncode, done.stderr) == (0, "")
        assert seen, "no container was ever seen running"
    finally:
        for loop in loops:
            os.killpg(loop.pid, signal.SIGKILL)
            loop.wait()


@pytest.mark.kernel
def test_json_names_the_slurm_step(sandbox: Sandbox) -> None:
    with running(sandbox, "-e", "SLURM_JOB_ID=42", "-e", "SLURM_STEP_ID=3", "box", *UP) as up:
        wait_until_asleep(up.pid, "sleep")
        entries = json.loads(sandbox.call("enroot", "list", "--json").stdout)
    (box,) = (entry for entry in entries if entry["name"] != UNKNOWN)
    (process,) = box["processes"]
    assert box["path"] == str(sandbox.rootfs)
    assert process["command"] == ["sleep", "60"]
    assert (process["slurm_job"], process["slurm_step"]) == ("42", "3")
