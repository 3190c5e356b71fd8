"""The commands that become a container's process: start, exec, batch.

On the start path: nothing is imported here that a start does not need.
"""

from __future__ import annotations

import gc

from enroot_py.errors import UsageError
from enroot_py.log import warn
from enroot_py.plan.spec import StartSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enroot_py.cli.parse import Arguments


def start(arguments: Arguments) -> int:
    """`enroot start`: become a container."""
    gc.disable()  # it would look at every module loaded, in a process that is about to exec
    target, *command = arguments.operands
    _warn_of_late_options(target, command)
    spec = StartSpec(
        target=target,
        command=tuple(command),
        root=arguments.flag("root"),
        writable=arguments.flag("rw"),
        mounts=arguments.texts("mount"),
        environ=arguments.texts("env"),
        rc=arguments.text("rc"),
        conf=arguments.text("conf"),
        unshare_pid=arguments.flag("pid"),
        unshare_net=arguments.flag("net"),
        unshare_ipc=arguments.flag("ipc"),
        unshare_uts=arguments.flag("uts"),
        gpus=arguments.text("gpus"),
        devices=arguments.texts("device"),
        preserve_fds=_count(arguments, "preserve_fds"),
    )
    if arguments.flag("dry_run"):
        from enroot_py.cli.output import write_text
        from enroot_py.operations.dry_run import describe_start

        write_text(describe_start(spec))
        return 0
    from enroot_py.operations.start import start as start_container

    return start_container(spec)


def execute(arguments: Arguments) -> int:
    """`enroot exec`: run a command in a running container."""
    from enroot_py.operations.exec import exec_

    gc.disable()
    process, *command = arguments.operands
    if process.isascii() and process.isdigit():
        pid = int(process)
    else:
        from enroot_py.operations.containers import find_running

        pid = find_running(process)
    return exec_(
        pid,
        tuple(command),
        environ=arguments.texts("env"),
        preserve_fds=_count(arguments, "preserve_fds"),
    )


def batch(arguments: Arguments) -> int:
    """`enroot batch`: become the container that a configuration script names."""
    from enroot_py.operations.batch import batch as start_container

    gc.disable()
    conf, *command = arguments.operands
    return start_container(conf, command)


def _count(arguments: Arguments, key: str) -> int:
    text = arguments.text(key)
    if text and not (text.isascii() and text.isdigit()):
        raise UsageError(f"Invalid number: {text}", hint="how many descriptors, from 3 upwards")
    return int(text or 0)


def _warn_of_late_options(target: str, command: list[str]) -> None:
    # Parity: what follows the name is the command, even where it looks like an option.
    if command and command[0].startswith("-"):
        warn(f"{command[0]} is passed to the container; options of start go before {target}")
