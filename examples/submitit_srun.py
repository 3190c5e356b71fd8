#!/usr/bin/env python3
"""Run a function in tasks of Slurm with submitit, inside a container, without the plugin.

    examples/submitit_srun.py FOLDER ./IMAGE.sqsh [MOUNT…]

submitit writes a batch script that calls `srun`; a shell function gives it ours instead, with the
container flags. With the plugin `slurm_srun_args` alone would do. FOLDER has to be on a file system
that the nodes share, and the image has to have this Python (or get it by a mount).
"""

import os
import sys

import submitit


def where(word: str) -> str:
    """Tell what the process sees: the first line of a file that the image has."""
    with open("/etc/mark", encoding="ascii") as file:
        return f"{word} {os.environ['SLURM_PROCID']} {file.read().strip()}"


def main(folder: str, image: str, mounts: list[str]) -> None:
    """Run `where` in two tasks and print what they return."""
    executor = submitit.SlurmExecutor(folder=folder)
    flags = [f"--container-image={image}", f"--container-mounts={','.join([folder, *mounts])}"]
    executor.update_parameters(
        nodes=1,
        ntasks_per_node=2,
        time=5,
        srun_args=flags,
        setup=['srun() { pyxis-srun "$@"; }'],
    )
    job = executor.submit(where, "hello")
    for result in job.results():
        print(result)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
