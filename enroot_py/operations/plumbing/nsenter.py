"""Run a program in new namespaces or in those of a process: the `enroot-nsenter` command.

Source: enroot 4.1.2 bin/enroot-nsenter.c.
"""

from __future__ import annotations

import os

from enroot_py.enter.execute import run_program
from enroot_py.enter.join import Target
from enroot_py.enter.namespaces import FLAGS, enter_namespaces
from enroot_py.enter.process import close_on_exec, restore_signals
from enroot_py.errors import NotFoundError
from enroot_py.host import observe_host
from enroot_py.linux.kernel import CLONE_NEWCGROUP, Kernel
from enroot_py.linux.seccomp import filter_program
from enroot_py.operations.plumbing.environment import read_environment
from enroot_py.plan.start import NamespacePlan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import NoReturn


def run_in_namespaces(
    command: tuple[str, ...],
    kinds: Collection[str],
    environ: dict[str, str] | str | int,
    *,
    target: int = 0,
    remap_root: bool = False,
    workdir: str = "",
    kernel: Kernel | None = None,
) -> NoReturn:
    """Become `command` in namespaces of the given kinds.

    Args:
        command: the program, looked for in the PATH of `environ`, and its arguments.
        kinds: among "user", "pid", "mount", "net", "ipc" and "uts".
        environ: the program's environment, or the file (a path, or a descriptor) that holds it, to
            be read once the namespaces are entered.
        target: a process whose namespaces to join; 0 for new ones. Its cgroup namespace is joined
            in any case.
        remap_root: appear as root in a new user namespace.
        workdir: a folder to go to; "" to stay.
        kernel: the way to system calls.

    Raises:
        NotFoundError: if there is no such process or folder.
        NamespaceError: if the kernel refuses a namespace.
        CommandError: if the command cannot be run (exit code 126 or 127).
    """
    kernel = kernel or Kernel()
    # A folder named by way of /proc is only to be found from the outside.
    folder = _open_folder(workdir) if workdir and target and "pid" in kinds else -1
    if target:
        _join(kernel, target, kinds)
    else:
        _create(kernel, kinds, remap_root=remap_root)
    if workdir:
        if folder < 0:
            folder = _open_folder(workdir)
        os.fchdir(folder)
    if not isinstance(environ, dict):
        environ = read_environment(environ)
    close_on_exec(kernel, ())
    restore_signals()
    if "pid" in kinds and not target:
        # Parity: hooks' ENROOT_PID comes from here, the number that the host knows the process by.
        environ["ENROOT_NSENTER_PID"] = os.readlink("/proc/self")
    run_program(command, environ)


def _open_folder(path: str) -> int:
    try:
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise NotFoundError(f"Cannot open the folder {path}: {error.strerror}") from error


def _join(kernel: Kernel, pid: int, kinds: Collection[str]) -> None:
    flags = CLONE_NEWCGROUP
    for kind in kinds:
        flags |= FLAGS[kind]
    Target(pid).join(kernel, flags)
    if "user" in kinds:
        kernel.set_seccomp_filter(filter_program(os.uname().machine))


def _create(kernel: Kernel, kinds: Collection[str], *, remap_root: bool) -> None:
    host = observe_host()
    plan = NamespacePlan(
        uid=0 if remap_root else host.euid,
        gid=0 if remap_root else host.egid,
        outside_uid=host.euid,
        outside_gid=host.egid,
        machine=host.architecture,
        **{kind: kind in kinds for kind in FLAGS},
    )
    enter_namespaces(kernel, plan)
