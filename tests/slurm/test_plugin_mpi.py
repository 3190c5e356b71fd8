"""MPI inside containers: ranks of several nodes find each other, tasks of a node share memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.slurm.doors import PLUGIN, WRAPPER, Door
from tests.slurm.mpi_image import PROGRAM, make_mpi_image
from tests.slurm.rig import NODES, Rig

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("plugin")]


@pytest.fixture(scope="module")
def image(rig: Rig) -> Path:
    """An image with OpenMPI in it."""
    return make_mpi_image(rig.shared / "mpi.sqsh")


@pytest.mark.parametrize("door", [PLUGIN, WRAPPER], ids=lambda door: door.name)
def test_sixteen_ranks_on_four_nodes_compute_together(rig: Rig, door: Door, image: Path) -> None:
    done = rig.run(
        *door.srun, "--mpi=pmix", "-N4", "-n16", "--ntasks-per-node=4",
        f"--container-image={image}", PROGRAM,
        OMPI_MCA_btl="^openib", OMPI_MCA_orte_base_help_aggregate="0",
    )  # fmt: skip
    expected = [
        f"{rank} of 16: 120 {rank + 1 if rank else 16} {1000 + (rank ^ 1)}" for rank in range(16)
    ]
    assert sorted(done.stdout.splitlines()) == sorted(expected), done.stderr


@pytest.mark.parametrize("door", [PLUGIN, WRAPPER], ids=lambda door: door.name)
def test_sixteen_tasks_have_one_mount_and_one_set_of_namespaces_a_node(
    rig: Rig, door: Door, image: Path
) -> None:
    folder = rig.folder(f"mounts-{door.name}")
    kinds = ("user", "mnt", "cgroup", "ipc", "net", "uts", "pid")
    script = (
        f"echo $SLURMD_NODENAME $(for n in {' '.join(kinds)}; do readlink /proc/self/ns/$n; done)"
        " $(stat -c %d /); touch /shared/at-$SLURM_PROCID; i=0;"
        " until test -e /shared/go || test $i -ge 600; do sleep 0.1; i=$((i+1)); done"
    )
    words = ("-N4", "-n16", "--ntasks-per-node=4", f"--container-image={image}")
    mount = f"--container-mounts={folder}:/shared"
    with rig.popen(*door.srun, *words, mount, "sh", "-c", script) as step:
        try:
            _wait_for(lambda: len(list(folder.glob("at-*"))) == 16)
            servers = _servers(image)
        finally:
            (folder / "go").touch()
            out, err = step.communicate(timeout=60)
    assert len(out.splitlines()) == 16, err
    assert len(set(out.splitlines())) == NODES, out  # all four of a node say the same
    assert len(servers) == len(set(servers)) == NODES, servers
    shared = {line.split(maxsplit=4)[4].rsplit(maxsplit=1)[0] for line in out.splitlines()}
    assert shared == {" ".join(os.readlink(f"/proc/self/ns/{kind}") for kind in kinds[3:])}
    assert rig.remains() == []


def _servers(image: Path) -> list[str]:
    """The machine (its mount namespace) of every process that serves an image."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            fds = set()
            for path in Path(f"/proc/{process}/fd").iterdir():
                with suppress(FileNotFoundError):  # closed since
                    fds.add(os.readlink(path))
            if str(image) in fds and any(path.endswith("/fuse") for path in fds):
                found.append(os.readlink(f"/proc/{process}/ns/mnt"))
        except OSError:
            continue
    return found


def _wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("door", [PLUGIN, WRAPPER], ids=lambda door: door.name)
def test_the_pmi2_descriptor_is_open_inside(rig: Rig, door: Door) -> None:
    script = "echo $PMI_RANK of $PMI_SIZE $(readlink /proc/self/fd/$PMI_FD | cut -d: -f1)"
    done = rig.run(
        *door.srun, "--mpi=pmi2", "-N2", "-n4", f"--container-image={rig.shared}/image.sqsh",
        "sh", "-c", script,
    )  # fmt: skip
    expected = [f"{rank} of 4 socket" for rank in range(4)]
    assert sorted(done.stdout.splitlines()) == expected, done.stderr
