from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from enroot_py.errors import KernelError
from enroot_py.linux.capabilities import drop_privileges, raise_ambient
from enroot_py.linux.kernel import CLOSE_RANGE_CLOEXEC, Capabilities, Kernel
from tests.fakes import RecordingKernel

RAISE, DROP, NO_NEW_PRIVS = (47, 2), 24, 38


def test_a_refusal_names_call_reason_and_object() -> None:
    kernel = Kernel()
    with pytest.raises(KernelError) as caught:
        kernel.mount("none", "/nonexistent/x", "tmpfs", 0)
    assert caught.value.syscall == "mount"
    assert caught.value.errno in (errno.ENOENT, errno.EPERM)
    assert "/nonexistent/x" in str(caught.value)
    with pytest.raises(KernelError, match="umount"):
        kernel.umount("/nonexistent/x", 0)
    with pytest.raises(KernelError, match="setns"):
        kernel.setns(-1, 0)


def test_capabilities_are_read_whole() -> None:
    sets = Kernel().capget()
    status = dict(
        line.split(":\t")
        for line in Path("/proc/self/status").read_text().splitlines()
        if "\t" in line
    )
    assert sets.effective == int(status["CapEff"], 16)
    assert sets.permitted == int(status["CapPrm"], 16)
    assert sets.inheritable == int(status["CapInh"], 16)


def test_descriptors_are_marked_by_range() -> None:
    first, second = os.pipe()
    try:
        os.set_inheritable(first, True)
        Kernel().close_range(first, first, CLOSE_RANGE_CLOEXEC)
        assert not os.get_inheritable(first)
    finally:
        os.close(first)
        os.close(second)


def test_every_effective_capability_becomes_ambient() -> None:
    kernel = RecordingKernel()
    raise_ambient(kernel)
    assert kernel.called("capset") == [(tuple(Capabilities(0b1011, 0b1111, 0b1011)),)]
    assert kernel.called("prctl") == [(*RAISE, number) for number in (0, 1, 3)]


def test_an_ordinary_user_loses_everything() -> None:
    kernel = RecordingKernel()
    drop_privileges(kernel, 1000)
    assert kernel.calls[0] == ("prctl", NO_NEW_PRIVS, 1, 0)
    assert kernel.called("prctl")[1:] == [(DROP, number, 0) for number in range(42)]
    assert kernel.calls[-1] == ("capset", (0, 0, 0))


def test_root_keeps_what_the_namespace_gives_him() -> None:
    kernel = RecordingKernel()
    drop_privileges(kernel, 0)
    assert kernel.calls == [("prctl", NO_NEW_PRIVS, 1, 0)]


def test_a_bounding_set_that_may_not_be_changed_is_no_obstacle() -> None:
    class Refusing(RecordingKernel):
        def prctl(self, option: int, first: int = 0, second: int = 0, third: int = 0) -> int:
            super().prctl(option, first, second, third)
            if option == DROP:
                raise KernelError("prctl", errno.EPERM)
            return 0

    kernel = Refusing()
    drop_privileges(kernel, 1000)
    assert kernel.called("capset") == [((0, 0, 0),)]
