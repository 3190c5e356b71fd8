#!/usr/bin/env python3
"""Run the ranks of an MPI program in one container a node, with mpirun instead of srun.

    mpirun -n 8 examples/mpirun_launch.py --container-image=./IMAGE.sqsh -- ./solver input

mpirun starts this script for every rank. The first one of a node leaves a process behind that
drives the hooks of the step; every rank connects to that and becomes a task in the container, under
the process id that mpirun knows. The container is cleaned up before mpirun ends. Every rank has to
go through this script. Written for Open MPI, tried with 4.1.
"""

import os
import select
import socket
import sys
import time
import zlib

import pyxis_py
from enroot_py import EnrootError


def drive(listener: socket.socket, mpirun_fd: int, tasks: int, flags: list[str]) -> None:
    """Drive the hooks for the ranks of this node, until the last one has ended."""
    number = zlib.crc32(os.environ["PMIX_NAMESPACE"].encode())  # the same on all nodes
    size = int(os.environ["OMPI_COMM_WORLD_SIZE"])
    job = pyxis_py.JobFacts(os.getuid(), os.getgid(), number, 0, size, tasks, os.getcwd())
    with listener, pyxis_py.StepHooks(news=say) as hooks:
        hooks.post_opt(pyxis_py.read_flags(flags), os.environ)
        say(*hooks.user_init(job))
        running: list[int] = []
        while len(running) < tasks:
            if listener not in select.select([listener, mpirun_fd], [], [])[0]:
                return  # mpirun has ended, and not all ranks have come
            with listener.accept()[0] as connection:
                # Without a command: each rank has its own.
                running.append(pyxis_py.pass_task(connection, *hooks.task_init([])))
        for task_fd in running:
            select.select([task_fd], [], [])  # until that rank has ended
            say(*hooks.task_exit())


def say(*lines: str) -> None:
    """Show lines to the user."""
    sys.stderr.write("".join(f"{line}\n" for line in lines))


def in_background() -> bool:
    """Return twice: True in a process that is not the rank's child, which would find it."""
    if child := os.fork():
        os.waitpid(child, 0)
        return False
    os.setsid()  # mpirun signals the groups of its ranks when one fails
    if os.fork():
        os._exit(0)
    return True


def connect(place: str) -> socket.socket:
    """Return a connection to the process that drives the hooks, which may be yet to come."""
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(place)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            time.sleep(0.01)
        else:
            return connection


def main(words: list[str]) -> None:
    """Take part as one rank: `words` are container flags, `--` and the rank's command."""
    at = words.index("--")
    flags, command = words[:at], words[at + 1 :]
    # Open MPI's folder for this user's ranks on this node, which the ranks need inside as well.
    folder = os.environ["PMIX_SERVER_TMPDIR"]
    place = f"{folder}/container.{os.environ['PMIX_NAMESPACE']}"
    if os.environ["OMPI_COMM_WORLD_LOCAL_RANK"] == "0":
        tasks = int(os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"])
        mpirun_fd = os.pidfd_open(os.getppid())
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(place)
        listener.listen(tasks)
        if in_background():
            drive(listener, mpirun_fd, tasks, [*flags, f"--container-mounts={folder}:{folder}"])
            return
        listener.close()
    pyxis_py.become_task(connect(place), command)


if __name__ == "__main__":
    if "--" not in sys.argv or "PMIX_NAMESPACE" not in os.environ:
        sys.exit(__doc__)
    try:
        main(sys.argv[1:])
    except EnrootError as error:
        sys.exit(f"{error}\n{error.hint}")
