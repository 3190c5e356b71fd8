"""Try what a start does, in a child process that vanishes with everything it made.

Switches in /proc/sys say what a kernel would allow; whether it does allow it, under whatever module
or filter there is, only trying tells.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from errno import ENOENT

from enroot_py.errors import KernelError
from enroot_py.linux.kernel import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    Kernel,
)

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_REC, _MS_PRIVATE, _MS_BIND = 0x4000, 1 << 18, 0x1000


@dataclass(frozen=True, slots=True)
class Attempt:
    """One step that was tried.

    Attributes:
        step: its name, one of STEPS.
        errno: what the kernel answered, 0 for success; -1 for a step that could not be tried,
            because an earlier one that it needs had failed.
    """

    step: str
    errno: int


@dataclass(frozen=True, slots=True)
class _Stage:
    """Where the steps are tried: a folder to mount on, and who is asking."""

    kernel: Kernel
    uid: int
    gid: int
    folder: str = "/tmp"


def try_steps(*, keep_user_namespace: bool) -> dict[str, Attempt]:
    """Try every step and return the attempts by name.

    Args:
        keep_user_namespace: make none, as root does with ENROOT_ALLOW_SUPERUSER.
    """
    stage = _Stage(Kernel(), os.geteuid(), os.getegid())
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read_end)
            for step, errno in _attempts(stage, keep_user_namespace):
                os.write(write_end, f"{step}:{errno}\n".encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, encoding="ascii") as answers:
        lines = answers.read().splitlines()
    os.waitpid(child, 0)
    errnos = {step: int(errno) for step, _, errno in (line.partition(":") for line in lines)}
    return {step: Attempt(step, errnos.get(step, -1)) for step in STEPS}


def _attempts(stage: _Stage, keep_user_namespace: bool) -> Iterator[tuple[str, int]]:
    """Carry the steps out; those that others need end the list when they fail."""
    for step, (action, needed) in STEPS.items():
        if keep_user_namespace and step in ("user namespace", "user map"):
            continue
        errno = _errno_of(action, stage)
        yield step, errno
        if errno and needed:
            return


def _errno_of(action: Callable[[_Stage], None], stage: _Stage) -> int:
    try:
        action(stage)
    except OSError as error:
        return error.errno or ENOENT
    return 0


def _map_user(stage: _Stage) -> None:
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{stage.uid} {stage.uid} 1")
    _write("/proc/self/gid_map", f"{stage.gid} {stage.gid} 1")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _mount_tmpfs(stage: _Stage) -> None:
    stage.kernel.mount("", "/", "", _MS_REC | _MS_PRIVATE)
    stage.kernel.mount("tmpfs", stage.folder, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=700")
    for name in ("lower", "upper", "work", "merged", "fuse", "proc", "bind"):
        os.mkdir(f"{stage.folder}/{name}")


def _bind_root(stage: _Stage) -> None:
    stage.kernel.mount("/", f"{stage.folder}/bind", "", _MS_BIND | _MS_REC)


def _mount_overlay(stage: _Stage) -> None:
    folders = [f"{kind}dir={stage.folder}/{kind}" for kind in ("lower", "upper", "work")]
    options = ",".join([*folders, "userxattr"])
    stage.kernel.mount("overlay", f"{stage.folder}/merged", "overlay", 0, options)


def _mount_fuse(stage: _Stage) -> None:
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        options = f"fd={fd},rootmode=40000,user_id={stage.uid},group_id={stage.gid}"
        flags = _MS_NOSUID | _MS_NODEV
        stage.kernel.mount("enroot", f"{stage.folder}/fuse", "fuse", flags, options)
    finally:
        os.close(fd)


def _mount_proc(stage: _Stage) -> None:
    """Mount /proc as --pid does: by the first process of a new PID namespace."""
    stage.kernel.unshare(CLONE_NEWPID)
    child = os.fork()
    if child == 0:
        status = 255
        try:
            status = _errno_of(_mount_proc_here, stage)
        finally:
            os._exit(status)
    errno = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if errno:
        raise KernelError("mount", errno, "/proc")


def _mount_proc_here(stage: _Stage) -> None:
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    stage.kernel.mount("proc", f"{stage.folder}/proc", "proc", flags)


def _unshare(flags: int) -> Callable[[_Stage], None]:
    return lambda stage: stage.kernel.unshare(flags)


STEPS: dict[str, tuple[Callable[[_Stage], None], bool]] = {
    # name: (what to do, whether every later step needs it)
    "user namespace": (_unshare(CLONE_NEWUSER), True),
    "user map": (_map_user, True),
    "mount namespace": (_unshare(CLONE_NEWNS), True),
    "tmpfs": (_mount_tmpfs, True),
    "bind": (_bind_root, False),
    "overlayfs": (_mount_overlay, False),
    "fuse": (_mount_fuse, False),
    "uts namespace": (_unshare(CLONE_NEWUTS), False),
    "ipc namespace": (_unshare(CLONE_NEWIPC), False),
    "net namespace": (_unshare(CLONE_NEWNET), False),
    "pid namespace": (_mount_proc, False),
}
"""Every step that a start may take, in the order in which they are tried."""
