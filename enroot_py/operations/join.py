"""Become a process of a running container, under a given environment: what a launcher's tasks do.

`exec_` is the command of a person who looks into a container; here the launcher has decided
everything, and descriptors that it has open (PMI's) stay open.

Source: pyxis 0.24 pyxis_slurmstepd.c, slurm_spank_task_init().
"""

from __future__ import annotations

import os

from enroot_py.enter.execute import run_program
from enroot_py.enter.process import restore_signals
from enroot_py.errors import EnrootError, KernelError, NotFoundError, UsageError
from enroot_py.linux.capabilities import drop_privileges
from enroot_py.linux.kernel import (
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    Kernel,
)
from enroot_py.linux.seccomp import filter_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn

_FLAGS = {
    "user": CLONE_NEWUSER,
    "cgroup": CLONE_NEWCGROUP,
    "mnt": CLONE_NEWNS,
    "ipc": CLONE_NEWIPC,
    "uts": CLONE_NEWUTS,
    "net": CLONE_NEWNET,
}


def run_joined(
    pid: int,
    command: tuple[str, ...],
    environ: dict[str, str],
    *,
    namespaces: Iterable[str],
    folder: str = "",
    filtered: bool = True,
    opened: Callable[[], None] | None = None,
    kernel: Kernel | None = None,
) -> NoReturn:
    """Join namespaces of a process, go to a folder in them, and execute a program.

    Args:
        pid: a process of the container, as the host knows it.
        command: the program, looked for in the PATH of `environ`, and its arguments.
        environ: the program's whole environment.
        namespaces: their kinds, as /proc/PID/ns names them, in the order in which to join them.
        folder: path inside to change to, from the root if it is relative; "" for the root.
        filtered: filter system calls as for all processes of a container.
        opened: called once the namespaces are held, and live on without the process.
        kernel: the way to system calls.

    Raises:
        NotFoundError: if the process has ended, or the folder is not there.
        CommandError: if the command cannot be run (exit code 126 or 127).
        EnrootError: if a namespace cannot be joined.
    """
    if not command:
        raise UsageError("Nothing to run", hint="give a command")
    kernel = kernel or Kernel()
    program = filter_program(os.uname().machine) if filtered else b""
    held = [(name, _open(pid, name)) for name in namespaces]
    if opened is not None:
        opened()
    for name, fd in held:
        try:
            kernel.setns(fd, _FLAGS[name])
        except KernelError as error:
            raise EnrootError(f"Cannot join namespace {name} of process {pid}: {error}") from error
        os.close(fd)
    _enter_folder(folder)
    if program:
        kernel.set_seccomp_filter(program)
    drop_privileges(kernel, os.geteuid())
    restore_signals()
    run_program(command, environ)


def _open(pid: int, name: str) -> int:
    try:
        return os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NotFoundError(
            f"The container's process {pid} cannot be joined: {error.strerror}",
            hint="it has ended, or it belongs to another user",
        ) from error


def _enter_folder(folder: str) -> None:
    if not folder:
        return
    try:
        os.chdir(folder)
    except OSError as error:
        raise NotFoundError(
            f"Cannot enter the working directory {folder}: {error.strerror}"
        ) from error
