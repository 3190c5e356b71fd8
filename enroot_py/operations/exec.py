"""Run a command in a running container, which a process in it stands for.

Source: enroot 4.1.2 src/runtime.sh, runtime::exec().
"""

from __future__ import annotations

import os

from enroot_py.enter.execute import run_program
from enroot_py.enter.join import Target, wait_for_program
from enroot_py.enter.process import close_on_exec, is_open, restore_signals
from enroot_py.errors import NotFoundError, UsageError
from enroot_py.linux.capabilities import drop_privileges
from enroot_py.linux.kernel import PR_SET_NO_NEW_PRIVS, Kernel
from enroot_py.linux.seccomp import filter_program
from enroot_py.plan.environ import parse_assignment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn


def exec_(
    pid: int,
    command: tuple[str, ...],
    *,
    environ: Iterable[str] = (),
    preserve_fds: int = 0,
    kernel: Kernel | None = None,
) -> NoReturn:
    """Become a process of the container that process `pid` is in.

    It gets that process's environment and working directory, and what `environ` adds. In a pid
    namespace this process waits for a child that is inside. A container that is being set up is
    waited for.

    Args:
        pid: a process of the container, as the host knows it.
        command: the program, looked for in the container's PATH, and its arguments.
        environ: "NAME=value", or "NAME" for this host's value.
        preserve_fds: how many descriptors from 3 on to pass on.
        kernel: the way to system calls.

    Raises:
        NotFoundError: if there is no such process, or it is in no container.
        CommandError: if the command cannot be run (exit code 126 or 127).
        EnrootError: if the container cannot be joined.
    """
    if not command:
        raise UsageError("Nothing to run", hint="give a command")
    kernel = kernel or Kernel()
    kept = tuple(fd for fd in range(3, 3 + preserve_fds) if is_open(fd))
    additions = _parse_environ(tuple(environ))
    wait_for_program(pid)
    target = Target(pid)
    if not target.is_elsewhere:
        raise NotFoundError(
            f"Process {pid} is in no container", hint="`enroot list -f` shows those that are"
        )
    variables = target.environ
    variables.update(additions)
    target.join(kernel)
    kernel.prctl(PR_SET_NO_NEW_PRIVS, 1)
    kernel.set_seccomp_filter(filter_program(os.uname().machine))
    target.enter_folder()
    close_on_exec(kernel, kept)
    drop_privileges(kernel, os.geteuid())
    restore_signals()
    run_program(command, variables)


def _parse_environ(assignments: tuple[str, ...]) -> list[tuple[str, str]]:
    host: dict[str, str] = {}
    if any("=" not in text for text in assignments):
        from enroot_py.settings import load_settings

        host = dict(load_settings().environment)
    return [parse_assignment(text, host) for text in assignments]
