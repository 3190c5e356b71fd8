#!/usr/bin/env python3
"""A launcher of one's own in twenty lines: the hooks of a step, driven by hand.

examples/hooks_launch.py ./IMAGE.sqsh 4 sh -c 'echo $RANK of $WORLD'
"""

import os
import subprocess
import sys

import pyxis_py
from enroot_py import EnrootError


def run(image: str, tasks: int, command: list[str]) -> int:
    """Run `command` in `tasks` processes of one container; return the highest exit status."""
    number = os.getpid()
    job = pyxis_py.JobFacts(os.getuid(), os.getgid(), number, 0, tasks, tasks, os.getcwd())
    with pyxis_py.StepHooks() as hooks:
        hooks.post_opt(pyxis_py.read_flags([f"--container-image={image}"]), os.environ)
        hooks.user_init(job)
        processes = []
        for rank in range(tasks):
            words, descriptors = hooks.task_init(command)
            environ = {**os.environ, "RANK": str(rank), "WORLD": str(tasks)}
            processes.append(subprocess.Popen(words, env=environ, pass_fds=descriptors))
        statuses = [process.wait() for process in processes]
        for _ in processes:
            hooks.task_exit()
    return max(statuses)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    try:
        sys.exit(run(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
    except EnrootError as error:
        sys.exit(f"{error}\n{error.hint}")
