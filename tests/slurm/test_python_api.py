"""`pyxis_py.launch` from a user's program on a cluster without the plugin."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.rig import Rig
from tests.slurm.watching import meet

pytestmark = pytest.mark.slurm

WHERE = "echo $SLURMD_NODENAME $SLURM_PROCID $SLURM_NTASKS $(readlink /proc/self/ns/mnt) $(cat {})"
MEET = meet("/met", "$SLURM_NTASKS")


def launch(
    rig: Rig, command: list[str], arguments: str = "", *, image: str = "image.sqsh", **more: str
) -> subprocess.CompletedProcess[str]:
    """Have a program of the user's call `launch` and end with the status that it returns."""
    call = f"pyxis_py.launch({command!r}, image={f'{rig.shared}/{image}'!r}, {arguments})"
    return rig.run(sys.executable, "-c", f"import os, pyxis_py, sys; sys.exit({call})", **more)


@pytest.fixture
def name(rig: Rig) -> Iterator[str]:
    """The name of a container on node1 that is removed afterwards."""
    yield "api"
    rig.run("srun", "-w", "node1", "enroot", "remove", "-f", "pyxis_api")
    assert rig.remains() == []


def test_tasks_on_four_nodes_share_a_container_a_node(rig: Rig) -> None:
    folder = rig.folder("noted")
    (folder / "note").write_text("from the host\n")
    done = launch(
        rig, ["sh", "-c", f"{WHERE.format('/etc/mark /noted/note')}; {MEET}"],
        f"mounts=['{folder}:/noted:ro', '{rig.folder('met')}:/met'], nodes=4, tasks_per_node=2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.split(maxsplit=4) for line in done.stdout.splitlines()]
    assert sorted(int(line[1]) for line in lines) == list(range(8))
    assert {(line[2], line[4]) for line in lines} == {("8", "image from the host")}
    namespaces = defaultdict(list)
    for node, _, _, namespace, _ in lines:
        namespaces[node].append(namespace)
    assert sorted(namespaces) == ["node1", "node2", "node3", "node4"]
    # Numbers of namespaces tell nothing apart between nodes: these are on one machine, though.
    assert [len(set(each)) for each in namespaces.values()] == [1] * 4
    assert len({each[0] for each in namespaces.values()}) == 4
    assert rig.remains() == []


@pytest.mark.parametrize(
    ("end", "status"),
    [("exit 9", 9), ("kill -KILL $$", 137), ("exec /nosuch", 127), ("exit 0", 0)],
)
def test_the_status_is_that_of_the_task_that_fails(rig: Rig, end: str, status: int) -> None:
    script = f"[ $SLURM_PROCID = 3 ] || exit 0; {end}"
    done = launch(rig, ["sh", "-c", script], "nodes=2, tasks_per_node=2")
    assert done.returncode == status, done.stderr


def test_an_image_that_is_not_there(rig: Rig) -> None:
    done = launch(rig, ["true"], "nodes=2", image="nosuch.sqsh")
    assert done.returncode == 1
    assert f"{rig.shared}/nosuch.sqsh" in done.stderr
    assert "Traceback" not in done.stderr


def test_further_options_variables_and_switches(rig: Rig) -> None:
    script = (
        "echo $IN_IMAGE $WHOSE $GIVEN $(id -u) $(pwd); touch /new 2> /dev/null || echo read-only"
    )
    done = launch(
        rig, ["sh", "-c", script],
        "srun_options=['--label', '-w', 'node2'], env=['WHOSE'], workdir='/opt',"
        " environ={**os.environ, 'WHOSE': 'job', 'GIVEN': 'given'}, remap_root=True,"
        " writable=False",
    )  # fmt: skip
    assert done.stdout == "0: yes job given 0 /opt\n0: read-only\n", done.stderr


def test_names_and_saved_images(rig: Rig, name: str) -> None:
    """The first launch makes a container, the second one saves it, the third starts from that."""
    there = f"srun_options=['-w', 'node1'], name='{name}'"
    first = launch(rig, ["sh", "-c", "echo kept > /kept"], f"{there}, writable=True")
    assert first.returncode == 0, first.stderr
    second = launch(rig, ["cat", "/kept"], f"{there}, save='{rig.shared}/api.sqsh'")
    assert second.stdout == "kept\n", second.stderr
    third = launch(rig, ["cat", "/kept"], "nodes=2", image="api.sqsh")
    assert third.stdout == "kept\n" * 2, third.stderr


def test_what_launch_command_returns_runs_in_a_job_script(rig: Rig) -> None:
    program = (
        "import pyxis_py, shlex; print(shlex.join(pyxis_py.launch_command("
        f"['sh', '-c', {WHERE.format('/etc/mark') + '; ' + MEET!r}],"
        f" image='{rig.shared}/image.sqsh', mounts=['{rig.folder('met')}:/met'],"
        " nodes=2, tasks_per_node=2)))"
    )
    words = rig.run(sys.executable, "-c", program).stdout
    folder = rig.folder("jobs")
    (folder / "job").write_text(f"#!/bin/sh\n{words}")
    done = rig.run(
        "sbatch", "--wait", "-N2", "--ntasks-per-node=2", "-o", f"{folder}/out", f"{folder}/job"
    )
    text = (folder / "out").read_text()
    assert done.returncode == 0, done.stderr + text
    lines = [line.split() for line in text.splitlines()]
    assert sorted(line[1] for line in lines) == ["0", "1", "2", "3"], text
    assert sorted(line[0] for line in lines) == ["node1", "node1", "node2", "node2"]
    assert {line[4] for line in lines} == {"image"}
    assert len({line[3] for line in lines}) == 2


def test_the_jobs_files_are_no_modules_of_the_launcher(rig: Rig) -> None:
    """A job's folder may have a queue.py, a signal.py, and so on."""
    folder = rig.folder("modules")
    for module in ("enroot_py", "signal", "shlex", "json", "subprocess"):
        Path(folder, f"{module}.py").write_text("raise SystemExit('the wrong module')\n")
    words = rig.run(
        sys.executable, "-c",
        "import json, pyxis_py; print(json.dumps(pyxis_py.launch_command(['cat', '/etc/mark'],"
        f" image='{rig.shared}/image.sqsh')))",
    )  # fmt: skip
    done = rig.run(*json.loads(words.stdout), cwd=folder)
    assert (done.returncode, done.stdout) == (0, "image\n"), done.stderr
