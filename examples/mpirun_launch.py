#!/usr/bin/env python3
"""Run an MPI program's processes in one container a node, with mpirun instead of srun.

    mpirun -n 8 examples/mpirun_launch.py --container-image=IMAGE.sqsh -- ./solver input

mpirun starts this script for every process; it tells what Open MPI calls the process in Slurm's
words and becomes one of our tasks: the first one on a node starts the container, the others join.
"""

import os
import sys
import zlib

from pyxis_py.launchers.task import main


def slurm_words(environ: dict[str, str]) -> dict[str, str]:
    """Return Slurm's variables for a process of Open MPI's."""
    # All processes of one mpirun share it, and no two mpiruns do.
    job = environ.get("OMPI_MCA_ess_base_jobid") or environ.get("PMIX_NAMESPACE", "0")
    return {
        "SLURM_JOB_ID": str(zlib.crc32(job.encode())),
        "SLURM_STEP_ID": "0",
        "SLURM_NODEID": "0",
        "SLURM_STEP_TASKS_PER_NODE": environ["OMPI_COMM_WORLD_LOCAL_SIZE"],
        "SLURM_STEP_NUM_TASKS": environ["OMPI_COMM_WORLD_SIZE"],
        "SLURM_PROCID": environ["OMPI_COMM_WORLD_RANK"],
        "SLURM_LOCALID": environ["OMPI_COMM_WORLD_LOCAL_RANK"],
    }


if __name__ == "__main__":
    os.environ.update(slurm_words(dict(os.environ)))
    sys.exit(main(sys.argv[1:]))
