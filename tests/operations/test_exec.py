"""Commands in running containers."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from enroot_py.enter import join
from enroot_py.enter.process import UNFINISHED
from tests.hooks.contexts import wait_until_asleep
from tests.hooks.sandbox import Sandbox, identity, sandbox_in
from tests.operations.starting import ignored_signals, running, status_field

pytestmark = pytest.mark.kernel

WAIT = ("sh", "-c", "cd /mnt; echo ready; exec cat")
KINDS = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with sandbox_in(tmp_path) as sandbox:
        yield sandbox


def run(sandbox: Sandbox, *words: str, **environ: str) -> str:
    done = sandbox.call("enroot", "exec", *words, **environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("options", [(), ("--root",), ("--pid", "--net", "--ipc", "--uts")])
def test_every_namespace_is_joined(sandbox: Sandbox, options: tuple[str, ...]) -> None:
    with running(sandbox, *options, "box", *WAIT) as process:
        script = "; ".join(f"readlink /proc/self/ns/{kind}" for kind in KINDS)
        joined = run(sandbox, str(process.pid), "sh", "-c", script).split()
        inner = process.pid
        if "--pid" in options:
            # The command's process is a child of the one that `start` leaves to wait.
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            inner = int(children)
        assert joined == [identity(inner, kind) for kind in KINDS]
        assert joined != [identity("self", kind) for kind in KINDS]


def test_a_pid_namespaces_processes_see_each_other(sandbox: Sandbox) -> None:
    with running(sandbox, "--pid", "box", *WAIT) as process:
        # The command has said its word, but may not have become the program that waits.
        (inner,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        wait_until_asleep(int(inner), "cat")
        script = "cat /proc/1/comm; kill -0 1 && echo there; echo $$"
        first, second, own = run(sandbox, str(process.pid), "sh", "-c", script).split()
        assert (first, second) == ("cat", "there")
        assert int(own) < 10


@pytest.mark.parametrize("options", [(), ("--root",), ("--pid",)])
def test_the_process_has_no_more_power_than_the_containers(
    sandbox: Sandbox, options: tuple[str, ...]
) -> None:
    with running(sandbox, *options, "box", *WAIT) as process:
        status = run(sandbox, str(process.pid), "cat", "/proc/self/status")
        theirs = sandbox.start(*options, "box", "cat", "/proc/self/status")
        for name in (
            "Uid",
            "CapInh",
            "CapPrm",
            "CapEff",
            "CapBnd",
            "CapAmb",
            "NoNewPrivs",
            "Seccomp",
        ):
            assert status_field(status, name) == status_field(theirs, name), name
        assert int(status_field(status, "SigIgn"), 16) == ignored_signals()
        (sandbox.rootfs / "bin/chown").symlink_to("busybox")
        assert run(sandbox, str(process.pid), "chown", "1:2", "/tmp") == ""


def test_a_container_with_a_minimal_dev_is_joined_again_and_again(sandbox: Sandbox) -> None:
    """enroot#26."""
    words = ("-m", "/dev/zero:/dev/extra:x-create=file,bind", "box", *WAIT)
    with running(sandbox, *words, ENROOT_RESTRICT_DEV="y") as process:
        for _ in range(2):
            script = "ls /dev; head -c 3 /dev/extra | wc -c"
            listed = run(sandbox, str(process.pid), "sh", "-c", script).split()
            assert {"null", "extra", "shm", "3"} <= set(listed)
            assert "fuse" not in listed


def test_environment_and_folder_are_the_targets(sandbox: Sandbox) -> None:
    value = 'two\nlines "x" $HOME'
    with running(sandbox, "-e", f"A={value}", "-e", "B=1", "box", *WAIT) as process:
        words = ("-e", "B=2", "--env", "MINE", "--env=C=3", str(process.pid))
        output = run(sandbox, *words, "cat", "/proc/self/environ", MINE="host", SECRET="x")
        variables = dict(item.split("=", 1) for item in output.split("\0") if item)
        expected = {"A": value, "B": "2", "MINE": "host", "C": "3"}
        assert {name: variables[name] for name in expected} == expected
        assert "SECRET" not in variables
        assert run(sandbox, str(process.pid), "readlink", "/proc/self/cwd") == "/mnt\n"
        assert run(sandbox, str(process.pid), "ls", "-A", "/").split()[0] == ".lock"


def test_a_folder_outside_of_the_container_is_not_entered(sandbox: Sandbox) -> None:
    """CVE-2024-21626: a working directory is entered only if a path leads to it inside."""
    with running(sandbox, "--rw", "box", "sh", "-c", "cd /mnt; echo ready; exec cat") as process:
        os.rmdir(sandbox.rootfs / "mnt")
        assert run(sandbox, str(process.pid), "readlink", "/proc/self/cwd") == "/\n"
        os.mkdir(sandbox.rootfs / "mnt")


def test_only_the_standard_descriptors_are_passed_on(sandbox: Sandbox, tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with running(sandbox, "box", *WAIT) as process:
            done = subprocess.run(
                [
                    str(sandbox.programs / "enroot"), "exec", str(process.pid),
                    "ls", "-l", "/proc/self/fd",
                ],
                env=sandbox.environ, pass_fds=(folder,), capture_output=True, text=True, check=True,
            )  # fmt: skip
            assert str(tmp_path) not in done.stdout
            numbers = [line.split()[-3] for line in done.stdout.splitlines() if "->" in line]
            assert numbers[:3] == ["0", "1", "2"] and len(numbers) <= 4
    finally:
        os.close(folder)


@pytest.mark.parametrize("options", [(), ("--pid",)])
def test_statuses_and_signals_pass_through(sandbox: Sandbox, options: tuple[str, ...]) -> None:
    with running(sandbox, *options, "box", *WAIT) as process:
        pid = str(process.pid)
        assert sandbox.call("enroot", "exec", pid, "sh", "-c", "exit 200").returncode == 200
        done = sandbox.call("enroot", "exec", pid, "sh", "-c", "kill -9 $$")
        assert done.returncode == -signal.SIGKILL
        for command, status in ((("nonexistent",), 127), (("/etc/passwd",), 126)):
            done = sandbox.call("enroot", "exec", pid, *command)
            assert done.returncode == status
            assert command[0] in done.stderr
        assert sandbox.call("enroot", "exec", pid, "cat", stdin="through").stdout == "through"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("4194304", "true"), "4194304"),
        (("1", "true"), "1"),
        (("SELF", "true"), "in no container"),
        (("-e", "1=2", "SELF", "true"), "1=2"),
    ],
)
def test_what_cannot_be_joined_is_named(
    sandbox: Sandbox, words: tuple[str, ...], message: str
) -> None:
    given = [str(os.getpid()) if word == "SELF" else word for word in words]
    done = sandbox.call("enroot", "exec", *given)
    assert done.returncode == 1
    assert message in done.stderr


@pytest.mark.parametrize("options", [(), ("--pid",)])
def test_a_container_that_is_being_set_up_is_waited_for(
    sandbox: Sandbox, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Joined earlier, a command would run among the host's files, with the host's variables."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    os.mkfifo(begun)
    os.mkfifo(go)
    sandbox.hook("50-slow.sh", f"#!/bin/sh\necho > {begun}\nread _ < {go}\n")
    enroot = str(sandbox.programs / "enroot")
    with subprocess.Popen(
        [enroot, "start", *options, "box", "sleep", "60"], env={**sandbox.environ, "SECRET": "x"}
    ) as process:
        try:
            begun.read_text()
            command = [enroot, "exec", str(process.pid), "sh", "-c", "echo $SECRET; ls -A /"]
            with subprocess.Popen(
                command, env=sandbox.environ, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            ) as joined:  # fmt: skip
                assert joined.stdout is not None and joined.stderr is not None
                assert "being set up" in joined.stderr.readline()
                go.write_text("\n")
                assert joined.stdout.read().splitlines()[:2] == ["", ".lock"]
        finally:
            process.kill()


def test_a_program_that_takes_the_name_of_a_start_can_be_joined(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "_PATIENCE_INSIDE", 20)
    script = f"printf {UNFINISHED} > /proc/self/comm; echo named; read _"
    command = ["busybox", "sh", "-c", script]
    with subprocess.Popen(
        [str(sandbox.programs / "enroot"), "start", "box", *command],
        env=sandbox.environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "named\n"
        assert Path(f"/proc/{process.pid}/comm").read_text().strip() == UNFINISHED
        join.wait_for_program(process.pid)
        process.kill()
