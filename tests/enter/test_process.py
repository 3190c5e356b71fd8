from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from enroot_py.enter.process import (
    UNFINISHED,
    Unfinished,
    close_all,
    close_on_exec,
    end_by_signal,
    fork_into_pid_namespace,
    is_open,
)
from enroot_py.linux.kernel import Kernel
from tests.fakes import RecordingKernel


@pytest.mark.parametrize("old", [False, True], ids=["close_range", "kernels before 5.11"])
def test_only_the_descriptors_asked_for_are_inherited(old: bool) -> None:
    kernel = RecordingKernel(close_range=errno.ENOSYS) if old else Kernel()
    inherited = [int(fd) for fd in os.listdir("/proc/self/fd") if _is_inheritable(int(fd))]
    first, second = os.pipe()
    try:
        for fd in (first, second):
            os.set_inheritable(fd, True)
        close_on_exec(kernel, (second, 999))
        assert not os.get_inheritable(first)
        assert os.get_inheritable(second)
    finally:
        os.close(first)
        os.close(second)
        for fd in inherited:
            os.set_inheritable(fd, True)


def _is_inheritable(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:
        return False


@pytest.mark.parametrize("old", [False, True], ids=["close_range", "kernels before 5.9"])
def test_a_waiting_process_closes_everything(old: bool) -> None:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            close_all(RecordingKernel(close_range=errno.ENOSYS) if old else Kernel())
            code = 0 if not is_open(read_end) and not is_open(write_end) and is_open(0) else 2
        finally:
            os._exit(code)
    os.close(read_end)
    os.close(write_end)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGPIPE])
def test_a_death_by_signal_is_repeated(number: int) -> None:
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        end_by_signal(number)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -number


class EarlySignal(Kernel):
    """Sends this process a signal where it closes descriptors, before it waits for its child."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def close_range(self, first: int, last: int, flags: int) -> None:
        """Send the signal, and close nothing."""
        os.kill(os.getpid(), self.number)


def _status_of_waiting(kernel: Kernel, child: Callable[[], object]) -> int:
    """Return the status of a process that forks and waits for `child`."""
    pid = os.fork()
    if pid == 0:
        try:
            fork_into_pid_namespace(kernel)
            child()
        finally:
            os._exit(1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_before_the_wait_is_passed_on(number: int) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    try:
        assert _status_of_waiting(EarlySignal(number), signal.pause) == -number
    finally:
        signal.signal(number, before)


def test_a_child_is_waited_for_where_childrens_ends_are_ignored() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert _status_of_waiting(Kernel(), _end_by_what_is_ignored) == 7
    finally:
        signal.signal(signal.SIGCHLD, before)


def _end_by_what_is_ignored() -> None:
    os._exit(7 if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN else 8)


def test_a_start_that_fails_gives_its_name_back() -> None:
    def name() -> str:
        return Path("/proc/self/comm").read_text().rstrip("\n")

    before = name()
    with pytest.raises(ZeroDivisionError), Unfinished():
        assert name() == UNFINISHED
        raise ZeroDivisionError
    assert name() == before
