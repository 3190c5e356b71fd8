"""Join the namespaces of a running container.

Source: enroot 4.1.2 bin/enroot-nsenter.c, join_namespaces(); src/runtime.sh, runtime::exec().
"""

from __future__ import annotations

import errno
import os

from enroot_py.enter.process import UNFINISHED, fork_into_pid_namespace
from enroot_py.errors import EnrootError, KernelError, NotFoundError, UnsupportedError
from enroot_py.linux.kernel import (
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    Kernel,
)
from enroot_py.log import info
from enroot_py.plan.environ import is_variable_name

_NAMESPACES = (
    # In this order: the user namespace gives the rights to join the others.
    ("user", CLONE_NEWUSER),
    ("pid", CLONE_NEWPID),
    ("mnt", CLONE_NEWNS),
    ("net", CLONE_NEWNET),
    ("ipc", CLONE_NEWIPC),
    ("uts", CLONE_NEWUTS),
    ("cgroup", CLONE_NEWCGROUP),
)
_PATIENCE = 400
"""Looks at a container that is being set up, 5 ms apart, before the user is told."""
_PATIENCE_INSIDE = 2000
"""The same for one whose root is no longer the host's: only its program has to be executed yet."""


def wait_for_program(pid: int) -> None:
    """Wait until the container of a process runs its program, if it is being set up just now.

    Until then the process has its namespaces, but the host's files and variables: what joins it
    would work on the host. A process that ends meanwhile is left to whoever opens it, and so is a
    program in a container that has only taken the name.
    """
    looks = 0
    while _is_unfinished(pid):
        # Loaded here, as it hardly ever is.
        from time import sleep

        looks += 1
        if looks >= _PATIENCE_INSIDE and not _has_our_root(pid):
            return
        if looks == _PATIENCE:
            info(f"The container of process {pid} is still being set up, waiting for it")
        sleep(0.005)


def _is_unfinished(pid: int) -> bool:
    try:
        with open(f"/proc/{_inner_process(pid)}/stat", encoding="utf-8", errors="replace") as file:
            name, _, rest = file.read().partition("(")[2].rpartition(")")
    except OSError:
        return False
    return name == UNFINISHED and rest[1:2] not in ("Z", "X")


def _has_our_root(pid: int) -> bool:
    try:
        return _identity(f"/proc/{_inner_process(pid)}/root") == _identity("/")
    except OSError:
        return False


class Target:
    """A process whose container is to be joined: what it has, opened before anything is joined.

    Attributes:
        pid: the process; for one that only waits for its pid namespace's first process, that one.
        environ: its environment, as it was started with.
    """

    def __init__(self, pid: int) -> None:
        """Open the namespaces and the working directory of a process.

        Raises:
            NotFoundError: if there is no such process.
            UnsupportedError: if it belongs to somebody else.
        """
        if not os.path.exists(f"/proc/{pid}"):
            raise NotFoundError(f"No such process: {pid}", hint="`enroot list -f` shows them")
        try:
            self.pid = _inner_process(pid)
            self._open()
        except OSError as error:
            raise _refusal(pid, error) from error

    def _open(self) -> None:
        with open(f"/proc/{self.pid}/environ", "rb") as file:
            data = file.read()
        if not data:
            # It may be executing a program just now. Loaded here, as it hardly ever is.
            from enroot_py.linux.processes import read_environ

            data = read_environ(self.pid)
        self.environ = parse_process_environ(data)
        self._cwd = os.open(f"/proc/{self.pid}/cwd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._namespaces = []
        for name, flag in _NAMESPACES:
            try:
                fd = os.open(f"/proc/{self.pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # a kernel without this kind
            if _identity(fd) == _identity(f"/proc/self/ns/{name}"):
                os.close(fd)
            else:
                self._namespaces.append((flag, fd))

    @property
    def is_elsewhere(self) -> bool:
        """Whether it has any namespace that this process is not in."""
        return bool(self._namespaces)

    def join(self, kernel: Kernel, kinds: int = -1) -> None:
        """Move this process to the namespaces that differ; for a pid namespace its child goes on.

        Args:
            kernel: the way to system calls.
            kinds: CLONE_NEW… flags of the namespaces to join; all if not given.

        Raises:
            EnrootError: naming the process, if the kernel refuses.
        """
        for flag, fd in self._namespaces:
            if not kinds & flag:
                os.close(fd)
                continue
            try:
                kernel.setns(fd, flag)
            except KernelError as error:
                raise EnrootError(
                    f"Cannot join the container of process {self.pid}: {error}",
                    hint="only the user who started a container can join it",
                ) from error
            os.close(fd)
            if flag == CLONE_NEWPID:
                fork_into_pid_namespace(kernel)

    def enter_folder(self) -> None:
        """Go to the process's working directory, or to the root if it is not in the container."""
        os.fchdir(self._cwd)
        try:
            os.getcwd()
        except OSError:
            os.chdir("/")  # outside of the root, or deleted: nothing that paths lead to
        os.close(self._cwd)


def _identity(of: int | str) -> tuple[int, int]:
    status = os.stat(of)
    return status.st_dev, status.st_ino


def _inner_process(pid: int) -> int:
    """Return the first process of the pid namespace that `pid` waits for, else `pid` itself.

    `enroot start --pid` leaves such a process outside; its own namespaces are not the container's.
    """
    folder = f"/proc/{pid}"
    if _identity(f"{folder}/ns/pid") == _identity(f"{folder}/ns/pid_for_children"):
        return pid
    with open(f"{folder}/task/{pid}/children", encoding="ascii") as file:
        children = file.read().split()
    return int(children[0]) if children else pid


def _refusal(pid: int, error: OSError) -> EnrootError:
    if error.errno in (errno.ENOENT, errno.ESRCH):
        return NotFoundError(f"Process {pid} has ended")
    return UnsupportedError(
        f"Cannot look into process {pid}: {error.strerror}",
        hint="only the user who started a container can join it",
    )


def parse_process_environ(data: bytes) -> dict[str, str]:
    """Parse /proc/PID/environ; entries whose name no shell accepts are left out."""
    environ = {}
    for item in data.split(b"\0"):
        name, equals, value = os.fsdecode(item).partition("=")
        if equals and is_variable_name(name):
            environ[name] = value
    return environ
