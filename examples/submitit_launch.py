#!/usr/bin/env python3
"""Run a function in containers with submitit, on Slurm or without it.

    examples/submitit_launch.py FOLDER NODES ./IMAGE.sqsh [MOUNT…]

submitit runs one task a node, which drives the hooks of the node's container itself; processes in
that container call the function. FOLDER has to be on a file system that the nodes share, and the
image has to have this Python and cloudpickle (or get them by mounts).
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import submitit

import pyxis_py

CALL = """
import cloudpickle, os, sys
with open(sys.argv[1], "rb") as file:
    function, words = cloudpickle.load(file)
with open(f"{sys.argv[1]}.{os.environ['LOCAL_RANK']}", "wb") as file:
    cloudpickle.dump(function(*words), file)
"""


class InContainer:
    """A function for submitit: calls another one in several processes of a container.

    Attributes:
        function: what each process calls.
        flags: of the container.
        processes: how many on each node.
    """

    def __init__(self, function: Callable[..., object], flags: list[str], processes: int) -> None:
        self.function, self.flags, self.processes = function, flags, processes

    def __call__(self, *words: object) -> list[object]:
        """Return what the calls on this node return."""
        node = submitit.JobEnvironment()
        call = node.paths.folder / f"{node.job_id}_{node.node}_call.pkl"
        call.write_bytes(cloudpickle.dumps((self.function, words)))
        statuses = self.run([sys.executable, "-c", CALL, str(call)], node=node.node)
        if any(statuses):
            raise RuntimeError(f"the processes on node {node.node} ended with {statuses}")
        results = [Path(f"{call}.{rank}") for rank in range(self.processes)]
        return [cloudpickle.loads(path.read_bytes()) for path in results]

    def run(self, command: list[str], *, node: int) -> list[int]:
        """Drive the hooks on a node; return the exit statuses of the container's processes."""
        number = int(os.environ.get("SLURM_JOB_ID", os.getpid()))
        tasks = self.processes
        job = pyxis_py.JobFacts(os.getuid(), os.getgid(), number, 0, tasks, tasks, os.getcwd())
        with pyxis_py.StepHooks(news=print) as hooks:
            hooks.post_opt(pyxis_py.read_flags(self.flags), os.environ)
            for line in hooks.user_init(job):
                print(line)
            processes = []
            for rank in range(self.processes):
                words, descriptors = hooks.task_init(command)
                environ = {**os.environ, "RANK": str(node * self.processes + rank)}
                environ["LOCAL_RANK"] = str(rank)
                processes.append(subprocess.Popen(words, env=environ, pass_fds=descriptors))
            statuses = [process.wait() for process in processes]
            for _ in processes:
                for line in hooks.task_exit():
                    print(line)
        return statuses


def where(word: str) -> str:
    """Tell what a process sees: the first line of a file that the image has."""
    with open("/etc/mark", encoding="ascii") as file:
        return f"{word} {os.environ['RANK']} {file.readline().strip()}"


def main(folder: str, nodes: int, image: str, mounts: list[str]) -> None:
    """Call `where` in two processes a node and print what they return."""
    flags = [f"--container-image={image}", f"--container-mounts={','.join([folder, *mounts])}"]
    executor = submitit.AutoExecutor(folder=folder)  # Slurm's, where there is srun
    executor.update_parameters(nodes=nodes, cpus_per_task=2, timeout_min=5)
    job = executor.submit(InContainer(where, flags, processes=2), "hello")
    for results in job.results():
        print(*results, sep="\n")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:])
