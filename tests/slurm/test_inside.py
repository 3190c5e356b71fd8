"""What programs in a container have of Slurm: PMIx, commands, the same variables every way."""

from __future__ import annotations

import pytest

from tests.slurm.rig import Rig

pytestmark = pytest.mark.slurm

# The host's Python and libraries, for an image that has none.
HOST = "/usr:/usr:ro,/lib:/lib:ro,/lib64:/lib64:ro"

_PMIX = """
import ctypes
class Process(ctypes.Structure):
    _fields_ = [("space", ctypes.c_char * 256), ("rank", ctypes.c_uint32)]
me = Process()
pmix = ctypes.CDLL("libpmix.so.2")
status = pmix.PMIx_Init(ctypes.byref(me), None, ctypes.c_size_t(0))
everybody = Process(me.space, 2**32 - 2)
fenced = pmix.PMIx_Fence(ctypes.byref(everybody), ctypes.c_size_t(1), None, ctypes.c_size_t(0))
print("pmix", me.rank, status, fenced, flush=True)
pmix.PMIx_Finalize(None, ctypes.c_size_t(0))
"""


# What Slurm says of a step, and a shell of itself.
STEPS_OWN = (
    "SLURM_", "SLURMD_", "SRUN_", "ENVIRONMENT=", "HOSTNAME=", "PMI", "RANK=", "LOCAL_RANK=",
    "SHLVL=",
)  # fmt: skip


def test_pmix_works_across_nodes(rig: Rig, image: str) -> None:
    """pyxis#88, pyxis#139."""
    done = rig.run("pyxis-srun", "--mpi=pmix", "-N2", "--ntasks-per-node=2", image,
                   f"--container-mounts={HOST}", "/usr/bin/python3", "-c", _PMIX)  # fmt: skip
    assert sorted(done.stdout.splitlines()) == [f"pmix {rank} 0 0" for rank in range(4)], (
        done.stderr
    )


def test_variables_are_those_of_srun_in_batch_scripts_too(rig: Rig, image: str) -> None:
    """pyxis#167."""
    log = rig.shared / "environment.out"
    script = rig.shared / "environment.sh"
    script.write_text("#!/bin/sh\nexec env\n")
    words = ["pyxis-sbatch", "--parsable", f"--output={log}", f"--error={log}.err", "-n1", image,
             str(script)]  # fmt: skip
    done = rig.run(*words, FOO="bar", WHOSE="job", LC_ALL="C.UTF-8")
    assert rig.wait_for_job(done.stdout.strip()) == "COMPLETED", done.stderr
    step = rig.run("pyxis-srun", "-n1", image, "env", FOO="bar", WHOSE="job", LC_ALL="C.UTF-8")
    assert step.returncode == 0, step.stderr
    batch, srun = (
        {line for line in text.splitlines() if not line.startswith(STEPS_OWN)}
        for text in (log.read_text(), step.stdout)
    )
    assert {"FOO=bar", "WHOSE=image"} <= srun
    assert batch == srun


def test_slurms_commands_work_inside_where_they_are_mounted(rig: Rig, image: str) -> None:
    """pyxis#31, pyxis#107: a batch script in a container starts tasks on all nodes of its job."""
    log = rig.shared / "within.out"
    script = rig.shared / "within.sh"
    script.write_text(
        "#!/bin/sh\ncat /etc/mark\n/usr/bin/sinfo -h -o %P\n"
        "/usr/bin/srun -N2 -n2 /bin/sh -c 'echo $SLURMD_NODENAME'\n"
    )
    # No plugins inside: the inner srun starts tasks beside the container.
    mounts = f"--container-mounts={HOST},/dev/null:{rig.base}/plugstack.conf"
    for name in ("slurm.conf", "cgroup.conf", "munge"):
        mounts += f",{rig.base}/{name}:{rig.base}/{name}"
    done = rig.run("pyxis-sbatch", "--parsable", f"--output={log}", f"--error={log}.err",
                   "-w", "node1,node2", "-N2", image, mounts, str(script))  # fmt: skip
    assert rig.wait_for_job(done.stdout.strip()) == "COMPLETED", log.read_text()
    assert sorted(log.read_text().split()) == ["all*", "image", "node1", "node2"]
