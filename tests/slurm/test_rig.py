"""The cluster itself: without it nothing that the other tests say means anything.

What steps leave behind has to be seen, and the cluster may leave nothing behind itself.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyxis_py.plugin.build import LIBRARY
from pyxis_py.protocol.keeper_process import KEEPER
from tests.slurm.plugin import plugin_line
from tests.slurm.rig import NODES, Rig

pytestmark = pytest.mark.slurm

LOGIN = 0

# The program as a keeper becomes it; it reads from descriptor 5.
_LINGERING = """
import os
from pyxis_py.step.container import memory_program
from pyxis_py.step.pause import waiting_program
program = memory_program("keeper", waiting_program(os.uname().machine))
os.dup2(0, 5)
os.execve(f"/proc/self/fd/{program}", ["pyxis-keeper"], {})
"""
_LEFT_PROCESSES = {
    # What reads its request, which never ends.
    "keeper.py": ("python", "-I", "-S", KEEPER, "finish"),
    "pyxis-keeper": ("python", "-c", _LINGERING),
    "squashfuse": ("squashfuse", "-f", "{shared}/image.sqsh", "{folder}"),
}


def test_steps_run_on_all_nodes_as_the_user(rig: Rig) -> None:
    done = rig.run("srun", f"-N{NODES}", "sh", "-c", "echo $SLURMD_NODENAME $(id -un)")
    expected = {f"node{number} {rig.user.pw_name}" for number in range(1, NODES + 1)}
    assert set(done.stdout.splitlines()) == expected, done.stderr


def test_nodes_have_their_own_folders(rig: Rig) -> None:
    done = rig.run(
        "srun", "-w", "node1,node2", "sh", "-c",
        f"echo > {rig.base}/local/mark-$SLURMD_NODENAME",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for number in (1, 2):
        names = [path.name for path in rig.node(number).glob("mark-*")]
        assert names == [f"mark-node{number}"]


@contextmanager
def running(rig: Rig, node: int, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Have a process of the user's on a machine, past Slurm, with a request that never ends."""
    request_fd, other_fd = os.pipe()
    # The descriptor numbers of a keeper, whose request is 3.
    shell = ("sh", "-c", 'exec "$@" 3<&0', "sh", *words)
    process = subprocess.Popen(
        rig.as_user(shell, node=node), env=rig.environ(), stdin=request_fd,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(request_fd)
    try:
        yield process
    finally:
        # Before it catches the signal squashfuse would leave its mount behind.
        deadline = time.monotonic() + 60
        while "squashfuse" in words and not catches_sigterm(process):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        os.close(other_fd)
        process.wait(timeout=60)


def catches_sigterm(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has a handler of SIGTERM, or has ended."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return process.poll() is not None or bool(caught >> (signal.SIGTERM - 1) & 1)


def wait_for_remains(rig: Rig, mark: str) -> list[str]:
    """Wait until something is seen that the mark is in; return all that is seen then."""
    deadline = time.monotonic() + 60
    # One look and not two: a process that becomes another program has no words for a moment.
    while True:
        seen = rig.remains(within=0)
        if any(mark in line for line in seen):
            return seen
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)


@pytest.mark.parametrize("node", [LOGIN, 2])
@pytest.mark.parametrize("kind", _LEFT_PROCESSES)
def test_processes_outside_a_container_are_seen(rig: Rig, kind: str, node: int) -> None:
    folder = rig.folder("left")
    words = [word.format(shared=rig.shared, folder=folder) if "{" in word and "\n" not in word
             else word for word in _LEFT_PROCESSES[kind]]  # fmt: skip
    with running(rig, node, *words) as process:
        seen = wait_for_remains(rig, kind)
        assert any(line.startswith(f"process {process.pid}: ") for line in seen), seen
    assert rig.remains() == []


def test_any_process_of_the_users_on_a_node_is_seen(rig: Rig) -> None:
    with running(rig, 3, "sleep", "600"):
        wait_for_remains(rig, "sleep 600")
    assert rig.remains() == []


def test_processes_inside_a_container_are_seen(rig: Rig) -> None:
    words = ("enroot", "start", f"{rig.shared}/image.sqsh", "sleep", "601")
    with running(rig, 2, *words):
        wait_for_remains(rig, " overlay ")
        seen = wait_for_remains(rig, ": sleep 601")
    assert any("squashfuse -f" in line for line in seen), seen
    assert rig.remains() == []


@pytest.mark.parametrize("name", ["71.0.5f3a9c01", "71.0.cache", "rc.local.4711"])
def test_what_a_step_leaves_in_the_runtime_folder_is_seen(rig: Rig, name: str) -> None:
    folder = f"/tmp/pyxis-{rig.user.pw_uid}"
    try:
        for words in (
            ("mkdir", "-p", "-m", "700", folder),
            ("touch", f"{folder}/rc.local"),  # which stays
            ("mkdir", f"{folder}/{name}"),
        ):
            subprocess.run(rig.as_user(words, node=3), check=True)
        assert rig.remains(within=0) == [f"node3:{folder}/{name}"]
    finally:
        rig.as_root(3, "rm", "-rf", folder)
    assert rig.remains() == []


def test_mounts_that_stay_are_seen(rig: Rig) -> None:
    folder = rig.folder("left")
    rig.as_root(4, "mount", "--bind", str(folder), str(folder))
    try:
        (seen,) = rig.remains(within=0)
        assert seen.startswith(f"mount in node4: {folder} ")
    finally:
        rig.as_root(4, "umount", str(folder))
    with running(rig, LOGIN, "squashfuse", "-f", f"{rig.shared}/image.sqsh", str(folder)):
        seen = next(line for line in wait_for_remains(rig, "mount in") if "mount in" in line)
        assert seen.startswith(f"mount in login: {folder} ")
    assert rig.remains() == []


def test_mounts_of_a_namespace_that_only_root_holds_are_seen(rig: Rig) -> None:
    folder = rig.folder("left")
    mount = f"mount -t overlay -o lowerdir={folder}:/srv left {folder} && exec sleep 602"
    words = ["unshare", "-m", "--propagation", "private", "sh", "-c", mount]
    with subprocess.Popen(words) as process:
        try:
            (seen,) = wait_for_remains(rig, f"mount in process {process.pid}: {folder}")
            assert " overlay left " in seen
        finally:
            process.terminate()
    assert rig.remains() == []


def test_a_stopped_cluster_is_gone_with_what_ran_on_it(rig: Rig) -> None:
    rig.wait_until_idle()
    other = Rig(nodes=1, prefix="spare")
    try:
        shutil.copy(rig.base / LIBRARY, other.base / LIBRARY)
        shutil.copy(rig.shared / "image.sqsh", other.base / "image.sqsh")
        other.start(plugstack=plugin_line(other))
        (other.base / "plugstack.conf").write_text(plugin_line(other))
        ready = other.shared / "ready"
        flags = (f"--container-image={other.base}/image.sqsh", f"--container-mounts={other.shared}")
        script = f"touch {ready}; exec sleep 603"
        with other.popen("srun", *flags, "sh", "-c", script) as step:
            deadline = time.monotonic() + 60
            while not ready.exists():
                assert time.monotonic() < deadline and step.poll() is None
                time.sleep(0.05)
            try:
                alive = other.survivors(within=0)
                other.stop()
                step.communicate(timeout=180)  # it may look for its controller for long
            finally:
                step.kill()  # which would wait for its step for ever
    finally:
        other.stop()
    for what in (str(other.base), "slurmctld", "slurmd", "slurmstepd", "munged", "squashfuse"):
        assert any(what in line for line in alive), (what, alive)
    assert other.survivors() == []
    assert rig.remains() == []
    assert not any(Path("/sys/fs/cgroup").glob("*/slurm_spare*"))
    assert rig.run("srun", f"-N{NODES}", "echo", "up").stdout == "up\n" * NODES
