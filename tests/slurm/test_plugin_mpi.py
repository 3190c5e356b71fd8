"""MPI inside containers: ranks of several nodes find each other, tasks of a node share memory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.slurm.doors import PLUGIN, WRAPPER, Door
from tests.slurm.rig import Rig

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("plugin")]

HOST = ",".join(f"{path}:{path}" for path in ("/usr", "/lib", "/lib64", "/etc/alternatives"))


@pytest.fixture(scope="module")
def ring(rig: Rig) -> Path:
    """The program, compiled; its libraries are mounted from the host."""
    program = rig.shared / "ring"
    source = Path(__file__).with_name("ring.c")
    done = subprocess.run(
        ["mpicc", "-O1", "-o", str(program), str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("door", [PLUGIN, WRAPPER], ids=lambda door: door.name)
def test_sixteen_ranks_on_four_nodes_compute_together(rig: Rig, door: Door, ring: Path) -> None:
    done = rig.run(
        *door.srun, "--mpi=pmix", "-N4", "-n16", "--ntasks-per-node=4",
        f"--container-image={rig.shared}/image.sqsh",
        f"--container-mounts={HOST},{rig.shared}:/shared", f"/shared/{ring.name}",
        OMPI_MCA_btl="^openib", OMPI_MCA_orte_base_help_aggregate="0",
    )  # fmt: skip
    expected = [
        f"{rank} of 16: 120 {rank + 1 if rank else 16} {1000 + (rank ^ 1)}" for rank in range(16)
    ]
    assert sorted(done.stdout.splitlines()) == sorted(expected), done.stderr


@pytest.mark.parametrize("door", [PLUGIN, WRAPPER], ids=lambda door: door.name)
def test_the_pmi2_descriptor_is_open_inside(rig: Rig, door: Door) -> None:
    script = "echo $PMI_RANK of $PMI_SIZE $(readlink /proc/self/fd/$PMI_FD | cut -d: -f1)"
    done = rig.run(
        *door.srun, "--mpi=pmi2", "-N2", "-n4", f"--container-image={rig.shared}/image.sqsh",
        "sh", "-c", script,
    )  # fmt: skip
    expected = [f"{rank} of 4 socket" for rank in range(4)]
    assert sorted(done.stdout.splitlines()) == expected, done.stderr
