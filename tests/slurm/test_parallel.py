"""Tasks that work together inside one container: ranks, memory of each other, many at once."""

from __future__ import annotations

import random
import time

import pytest

from tests.slurm.rig import NODES, Rig

pytestmark = pytest.mark.slurm

# The host's Python, for an image that has none.
_PYTHON = "--container-mounts=/usr:/usr:ro,/lib:/lib:ro,/lib64:/lib64:ro,{shared}:/shared"

_READ_EACH_OTHER = """
import ctypes, os, time
rank, tasks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
secret = ctypes.create_string_buffer(b"secret of %d" % rank, 32)
name = "/shared/memory-%s-%d"
with open(name % (os.environ["SLURM_JOB_ID"], rank) + ".new", "w") as file:
    file.write(f"{os.getpid()} {ctypes.addressof(secret)}")
os.rename(file.name, file.name[:-4])
other = name % (os.environ["SLURM_JOB_ID"], (rank + 1) % tasks)
while not os.path.exists(other):
    time.sleep(0.01)
pid, address = map(int, open(other).read().split())
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
read = ctypes.create_string_buffer(32)
here, there = Vector(ctypes.addressof(read), 32), Vector(address, 32)
libc = ctypes.CDLL(None, use_errno=True)
count = libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
print(read.value.decode() if count == 32 else os.strerror(ctypes.get_errno()), flush=True)
# Whoever reads this one's has to have done so.
open(name % (os.environ["SLURM_JOB_ID"], rank) + ".read", "w").close()
while not os.path.exists(name % (os.environ["SLURM_JOB_ID"], (rank - 1) % tasks) + ".read"):
    time.sleep(0.01)
"""


def test_tasks_of_a_node_read_each_others_memory(rig: Rig, image: str) -> None:
    mounts = _PYTHON.format(shared=rig.shared)
    done = rig.run("pyxis-srun", "-N1", "-n4", image, mounts, "/usr/bin/python3", "-c",
                   _READ_EACH_OTHER)  # fmt: skip
    assert sorted(done.stdout.splitlines()) == [f"secret of {rank}" for rank in range(4)], (
        done.stderr
    )


def test_pmi2_ranks_are_each_tasks_own_and_its_descriptor_is_open(rig: Rig, image: str) -> None:
    script = "echo $SLURM_PROCID $PMI_RANK $PMI_SIZE; test -e /proc/self/fd/$PMI_FD && echo open"
    done = rig.run("pyxis-srun", "--mpi=pmi2", "-N2", "--ntasks-per-node=2", image,
                   "sh", "-c", script)  # fmt: skip
    lines = sorted(done.stdout.splitlines())
    assert lines == ["0 0 4", "1 1 4", "2 2 4", "3 3 4", *["open"] * 4], done.stderr


def test_stray_variables_of_pmi_stop_nothing(rig: Rig, image: str) -> None:
    done = rig.run("pyxis-srun", "--mpi=none", image, "cat", "/etc/mark",
                   PMIX_foo="bar", PMIX_SERVER_TMPDIR="/nope", PMI_FD="77")  # fmt: skip
    assert done.stdout == "image\n", done.stderr


def _random_ends(rig: Rig, image: str, *, tasks: int, seconds: float) -> None:
    """Submit an array, cancel parts of it at random moments, and look at what is left."""
    script = rig.shared / "random.sh"
    script.write_text(f"#!/bin/sh\n#SBATCH {image} -n1\nsleep 1\ncat /etc/mark\n")
    done = rig.run("pyxis-sbatch", "--parsable", f"--array=1-{tasks}", "--output=/dev/null",
                   str(script))  # fmt: skip
    job = done.stdout.strip()
    chance = random.Random(7)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        rig.run("scancel", f"{job}_{chance.randint(1, tasks)}")
        time.sleep(0.1)
    rig.run("scancel", job)
    rig.wait_for_job(job, timeout=120)
    assert rig.remains() == []


def test_array_tasks_that_are_cancelled_leave_nothing(rig: Rig, image: str) -> None:
    _random_ends(rig, image, tasks=24, seconds=4)


@pytest.mark.soak
def test_two_hundred_array_tasks_leave_nothing(rig: Rig, image: str) -> None:
    _random_ends(rig, image, tasks=200, seconds=25)


@pytest.mark.soak
def test_twenty_steps_at_once(rig: Rig, image: str) -> None:
    steps = [rig.popen("pyxis-srun", f"-N{NODES}", image, "cat", "/etc/mark") for _ in range(20)]
    outputs = [step.communicate(timeout=200)[0] for step in steps]
    assert outputs == ["image\n" * NODES] * 20
    assert rig.remains() == []
