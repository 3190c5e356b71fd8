"""What a step in a container shares with its node and its job, as users have asked."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path

import pytest

from tests.slurm.doors import PLUGIN, WRAPPER, Door
from tests.slurm.images import make_image
from tests.slurm.rig import Rig

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.usefixtures("plugin"),
    pytest.mark.parametrize("door", [PLUGIN, WRAPPER], ids=lambda door: door.name),
]


def test_a_task_is_in_the_control_groups_of_its_step(rig: Rig, door: Door, image: str) -> None:
    """pyxis#72: whatever Slurm limits a step with counts in the container as well."""
    bare = groups_of_a_task(rig, "srun")
    assert groups_of_a_task(rig, *door.srun, image) == bare
    if "slurm_" in bare:
        assert "/job_N/step_N" in bare


def groups_of_a_task(rig: Rig, *words: str) -> str:
    """Where a task is while it runs, seen from the host, without the numbers of its job."""
    folder = rig.folder("groups")
    mount = [f"--container-mounts={folder}:{folder}"] if len(words) > 1 else []
    script = (
        f"echo $$ > {folder}/new; mv {folder}/new {folder}/pid; i=0;"
        f" until test -e {folder}/go || test $i -ge 300; do sleep 0.1; i=$((i+1)); done"
    )
    with rig.popen(*words, "-w", "node1", "-n1", *mount, "/bin/sh", "-c", script) as step:
        try:
            wait_for(folder / "pid")
            pid = (folder / "pid").read_text().strip()
            text = Path(f"/proc/{pid}/cgroup").read_text()
        finally:
            (folder / "go").touch()
            step.communicate(timeout=60)
    return re.sub(r"(job|step|task)_\d+", r"\1_N", text)


def test_tasks_know_their_host_as_the_host_does(rig: Rig, door: Door, image: str) -> None:
    """pyxis#114: libraries that find peers go by the names and the boot of the host."""
    files = ("/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/hostname")
    done = rig.run(*door.srun, "-w", "node1", image, "sh", "-c", f"cat {' '.join(files)}; hostname")
    expected = [*(Path(file).read_text().strip() for file in files), socket.gethostname()]
    assert done.stdout.splitlines() == expected, done.stderr


def test_files_of_variables_see_those_of_the_job(rig: Rig, door: Door, image: str) -> None:
    """pyxis#46, pyxis#134: those of the job, and none of the daemons."""
    folder = rig.folder("config") / "environ.d"
    folder.mkdir()
    (folder / "x.env").write_text("FROM_JOB=${MINE}\n")
    done = rig.run(*door.srun, "-w", "node1", image, "sh", "-c", "echo $FROM_JOB",
                   MINE="of the job", ENROOT_CONFIG_PATH=str(folder.parent))  # fmt: skip
    assert done.stdout == "of the job\n", done.stderr


def test_hosts_are_named_without_scontrol(rig: Rig, door: Door) -> None:
    """enroot#136: the hooks for PMI and PyTorch read lists of hosts themselves."""
    variables = b"PATH=/usr/bin:/bin\nPYTORCH_VERSION=2\n"
    torch = make_image(rig.shared / "torch.sqsh", more={"etc/environment": variables})
    rig.as_root(1, "mount", "--bind", "/dev/null", "/usr/bin/scontrol")
    try:
        done = rig.run(*door.srun, "--mpi=pmix", "-w", "node1,node2", "-N2", "-n2",
                       f"--container-image={torch}", "sh", "-c",
                       "echo $MASTER_ADDR $PMIX_RANK")  # fmt: skip
    finally:
        rig.as_root(1, "umount", "/usr/bin/scontrol")
    assert sorted(done.stdout.splitlines()) == ["node1 0", "node1 1"], done.stderr


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.05)
