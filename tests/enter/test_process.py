from __future__ import annotations

import errno
import os
import signal

import pytest

from enroot_py.enter.process import close_all, close_on_exec, end_by_signal, is_open
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
