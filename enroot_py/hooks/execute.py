"""Run a program on the host for a container that is being set up: hooks, and what hooks need.

Children get the host's environment, never the image's variables. A time limit holds for each; one
that exceeds it is killed with everything that it started and did not turn into a daemon.
"""

from __future__ import annotations

import errno
import os
import sys

from enroot_py.errors import HookError
from enroot_py.settings import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from enroot_py.hooks.context import HookContext

_SIGKILL, _SIGSTOP = 9, 19
IGNORED_SIGNALS = (13, 25)
"""SIGPIPE and SIGXFSZ: the interpreter ignores them; children get what a shell would give them."""
_FLAGS = (
    "remap_root",
    "rootfs_writable",
    "unshare_pid",
    "unshare_net",
    "unshare_ipc",
    "unshare_uts",
    "mount_home",
    "restrict_dev",
    "allow_superuser",
)
# Set by whoever started us, this would run in every bash hook before the hook's first line.
_NOT_FOR_HOOKS = ("BASH_ENV", "ENV", "ENROOT_NSENTER_PID")
TIMED_OUT = -1
"""The status of a program that was killed for taking too long."""


def hook_environment(context: HookContext) -> dict[str, str]:
    """Return the environment of executed hooks: the host's, the settings and the container's facts.

    The folder of our commands is put last on PATH, so that hooks find `enroot-mount` and its kin,
    and nothing else of a virtual environment in place of the system's.

    Source: enroot 4.1.2 doc/configuration.md, pre-start hook scripts; src/runtime.sh, _start().
    """
    settings = context.settings
    environ = dict(settings.environment)
    for name in _NOT_FOR_HOOKS:
        environ.pop(name, None)
    for field in _FLAGS:
        if getattr(settings, field):
            environ.setdefault("ENROOT_" + field.upper(), "y")
    environ["ENROOT_PID"] = str(context.pid)
    environ["ENROOT_ROOTFS"] = context.rootfs
    environ["ENROOT_WORKDIR"] = context.workdir
    environ["ENROOT_ENVIRON"] = context.environ_file
    environ["ENROOT_MOUNTS"] = context.mounts_file
    environ["ENROOT_VERSION"] = VERSION
    path = environ.get("PATH") or os.defpath
    folder = _command_folder()
    if folder and folder not in path.split(os.pathsep):
        path += os.pathsep + folder
    environ["PATH"] = path
    return environ


def _command_folder() -> str:
    """Return where the commands of this package are: beside `enroot` or beside the interpreter."""
    command = sys.argv[0] if sys.argv else ""
    # The command may be a link into a virtual environment, whose interpreter is one out of it.
    for place in (os.path.realpath(command), sys.executable or ""):
        folder = os.path.dirname(place)
        if folder and os.access(f"{folder}/enroot-mount", os.X_OK):
            return folder
    return ""


def run_program(path: str, environ: Mapping[str, str], *, timeout: float) -> None:
    """Execute the hook at `path` and wait for it; its standard output is discarded.

    Only the hook itself is waited for: a daemon that it leaves behind does not hold up the start.

    Args:
        path: absolute path of the hook.
        environ: its whole environment.
        timeout: seconds, 0 for no limit.

    Raises:
        HookError: if it cannot be executed, fails, or takes too long.
    """
    try:
        pid = _spawn([path], environ)
    except OSError as error:
        # What is missing is then not the hook.
        missing = error.errno == errno.ENOENT and os.path.exists(path)
        raise HookError(
            f"The hook {path} cannot be executed: {error.strerror}",
            path=path,
            status=126,
            hint="the program that its first line (#!) names is not there" if missing else "",
        ) from error
    status = wait_for(pid, timeout)
    if status == 0:
        return
    if status == TIMED_OUT:
        raise HookError(
            f"The hook {path} was stopped: it took longer than {timeout:g} seconds",
            path=path,
            status=status,
            hint="raise ENROOT_HOOK_TIMEOUT (seconds, 0 for no limit) if it needs more",
        )
    raise HookError(f"The hook {path} failed: {describe_status(status)}", path=path, status=status)


def read_program(argv: list[str], environ: Mapping[str, str], output: str, timeout: float) -> str:
    """Run a program of the host and return its standard output; "" if it is missing or fails.

    Args:
        argv: the program's name, looked up in PATH, and its arguments.
        output: path of a file that may be overwritten.
        timeout: seconds, 0 for no limit.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    actions = [(os.POSIX_SPAWN_OPEN, 1, output, flags, 0o600)]
    try:
        pid = os.posix_spawnp(
            argv[0], argv, environ, file_actions=actions, setsigdef=IGNORED_SIGNALS
        )
    except OSError:
        return ""
    if wait_for(pid, timeout) != 0:
        return ""
    with open(output, encoding="utf-8", errors="replace") as file:
        return file.read(1 << 20)


def describe_status(status: int) -> str:
    """Say how a process ended: `status` is as a shell reports it."""
    if status > 128:
        return f"killed by signal {status - 128}"
    return f"it exited with status {status}"


def _spawn(argv: list[str], environ: Mapping[str, str]) -> int:
    actions = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    try:
        return os.posix_spawn(
            argv[0], argv, environ, file_actions=actions, setsigdef=IGNORED_SIGNALS
        )
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without "#!": a shell would run it itself.
    shell = ["bash", *argv]
    return os.posix_spawnp(
        shell[0], shell, environ, file_actions=actions, setsigdef=IGNORED_SIGNALS
    )


def wait_for(pid: int, timeout: float) -> int:
    """Wait for a child; return its status as a shell reports it, or TIMED_OUT once it is killed.

    Args:
        pid: a child of this process that nobody else waits for.
        timeout: seconds, 0 for no limit.
    """
    try:
        if timeout and not _ends_within(pid, timeout):
            kill_tree(pid)
            os.waitpid(pid, 0)
            return TIMED_OUT
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except KeyboardInterrupt:
        kill_tree(pid)
        raise
    return status if status >= 0 else 128 - status


def _ends_within(pid: int, timeout: float) -> bool:
    import select

    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return _polled_until_end(pid, timeout)
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(timeout * 1000))
    finally:
        os.close(fd)


def _polled_until_end(pid: int, timeout: float) -> bool:
    """Do the same on kernels before 5.3, which have no pidfd_open(2)."""
    import time

    deadline = time.monotonic() + timeout
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.002)
    return True


def kill_tree(pid: int) -> None:
    """Kill a child and all its descendants that are still connected to it."""
    if os.getpid() == 1:
        # In a pid namespace of our own /proc still shows the host's numbers; but all others in it
        # are hooks' processes.
        os.kill(-1, _SIGKILL)
        return
    # Stopped first, parents before children, so that none is forked meanwhile.
    tree = [pid]
    for parent in tree:
        _signal(parent, _SIGSTOP)
        tree += [child for child, its_parent in _parents() if its_parent == parent]
    for member in tree:
        _signal(member, _SIGKILL)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _parents() -> list[tuple[int, int]]:
    """Return (process, parent) pairs. Source: proc_pid_stat(5)."""
    pairs = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            pairs.append((int(name), int(fields[1])))
    return pairs
