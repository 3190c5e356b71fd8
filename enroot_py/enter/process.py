"""Processes around a pid namespace: the one that enters and the one that waits for it.

Also the state that Python leaves in a process and that a container must not inherit.
Signals are handled through `_signal`: `signal` wraps the same calls in enumerations, whose import
costs as much as all of this package's modules together.
"""

from __future__ import annotations

import os

from enroot_py.errors import KernelError
from enroot_py.linux.kernel import CLOSE_RANGE_CLOEXEC, PR_SET_PDEATHSIG, Kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Iterable
    from typing import NoReturn
else:
    import _signal

_SIGINT, _SIGKILL, _SIGPIPE, _SIGTERM = 2, 9, 13, 15
_SIGCHLD, _SIGCONT, _SIGSTOP, _SIGXFSZ = 17, 18, 19, 25
_LARGEST_FD = 2**31 - 1
UNFINISHED = "enroot:start"
"""Name of a process whose container is being set up. The kernel replaces it in execve(2)."""


class Unfinished:
    """While entered: this process is named so that others see its container cannot be joined yet.

    Executing the container's program ends that, and so does an error.
    """

    def __enter__(self) -> None:
        self._name = _rename(UNFINISHED.encode())

    def __exit__(self, *failure: object) -> None:
        _rename(self._name)


def _rename(name: bytes) -> bytes:
    """Give this process a name and return the one it had."""
    try:
        # What a container without /proc has there might be a fifo.
        fd = os.open("/proc/self/comm", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            before = os.read(fd, 64)
            os.write(fd, name)
        finally:
            os.close(fd)
    except OSError:
        return name  # nobody could look either
    return before.rstrip(b"\n")


def fork_into_pid_namespace(kernel: Kernel) -> None:
    """Fork after unshare(CLONE_NEWPID): return in the child, which is process 1 there.

    The parent passes SIGTERM and SIGINT on, stops and continues together with the child, and ends
    as the child does: by the same exit status or the same signal. When the parent dies, so does the
    child, and with it everything in the namespace.

    Source: enroot 4.1.2 bin/enroot-nsenter.c, fork_child() and wait_child().
    """
    parent = os.getpid()
    # From before there is a child on: a signal that comes early is kept for whoever waits. Of an
    # ignored SIGCHLD there would be neither word nor status.
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, (_SIGTERM, _SIGINT, _SIGCHLD))
    of_child = _signal.signal(_SIGCHLD, _signal.SIG_DFL)
    pid = os.fork()
    if pid:
        close_all(kernel)
        _wait_and_follow(pid)
    _signal.signal(_SIGCHLD, of_child or _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
    end_with_parent(parent, kernel)


def end_with_parent(parent: int, kernel: Kernel | None = None) -> None:
    """Have the kernel kill this process when its parent ends; end at once if it has.

    What this process executes inherits it, unless that changes its user.

    Args:
        parent: number of the process that has forked this one, in the pid namespace of /proc.
        kernel: carries the system call out.

    Source: PR_SET_PDEATHSIG(2const).
    """
    (kernel or Kernel()).prctl(PR_SET_PDEATHSIG, _SIGKILL)
    # The parent may have died before the kernel was asked for that signal. Of getppid(2) it has no
    # number in a new namespace, but /proc is still the host's.
    if f"\nPPid:\t{parent}\n" not in _own_status():
        os._exit(1)


def _own_status() -> str:
    fd = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1 << 16).decode("utf-8", "replace")
    finally:
        os.close(fd)


def _wait_and_follow(pid: int) -> NoReturn:
    # Taken one by one and never handled: a handler's signal that came just before waitpid(2) would
    # be passed on only when the child has ended.
    while True:
        number = _signal.sigwait((_SIGTERM, _SIGINT, _SIGCHLD))
        if number != _SIGCHLD:
            try:
                os.kill(pid, number)
            except OSError:
                pass  # it is not allowed any more: nobody to tell
            continue
        ended, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if not ended:
            continue
        if not os.WIFSTOPPED(status):
            break
        os.kill(os.getpid(), _SIGSTOP)
        os.kill(pid, _SIGCONT)
    if os.WIFSIGNALED(status):
        end_by_signal(os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def end_by_signal(number: int) -> NoReturn:
    """End this process by a signal, so that whoever waits for it sees what the child died of."""
    if number != _SIGKILL:
        _signal.signal(number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def restore_signals() -> None:
    """Undo what the interpreter changed: it ignores SIGPIPE and SIGXFSZ, and exec would keep it."""
    _signal.signal(_SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_SIGXFSZ, _signal.SIG_DFL)


def is_open(fd: int) -> bool:
    """Tell whether this process has a descriptor of that number."""
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def close_all(kernel: Kernel) -> None:
    """Close every descriptor but 0 to 2."""
    try:
        kernel.close_range(3, _LARGEST_FD, 0)
    except KernelError:  # kernels before 5.9
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2:
                try:
                    os.close(int(name))
                except OSError:
                    pass  # the descriptor of the listing itself


def close_on_exec(kernel: Kernel, keep: Iterable[int]) -> None:
    """Let the container inherit descriptors 0 to 2 and `keep`; numbers not open are skipped."""
    try:
        kernel.close_range(3, _LARGEST_FD, CLOSE_RANGE_CLOEXEC)
    except KernelError:  # kernels before 5.11
        for name in os.listdir("/proc/self/fd"):
            try:
                os.set_inheritable(int(name), int(name) < 3)
            except OSError:
                pass  # the descriptor of the listing itself
    for fd in keep:
        try:
            os.set_inheritable(fd, True)
        except OSError:
            pass
