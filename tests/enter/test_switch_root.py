from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from enroot_py.enter.switch_root import switch_root
from enroot_py.errors import KernelError
from tests.fakes import RecordingKernel

SLAVE, MOVE, DETACH, NEWCGROUP = 1 << 19 | 1 << 14, 1 << 13, 2, 0x2000000


@pytest.fixture
def root_fd(tmp_path: Path) -> Iterator[int]:
    back = os.getcwd()
    fd = os.open(tmp_path, os.O_PATH)
    yield fd
    os.close(fd)
    os.chdir(back)


def test_the_old_root_is_detached_before_the_new_one_is_used(root_fd: int) -> None:
    kernel = RecordingKernel()
    switch_root(kernel, root_fd)
    assert kernel.calls == [
        ("pivot_root", ".", "."),
        ("mount", "", ".", "", SLAVE, ""),
        ("umount", ".", DETACH),
        ("chroot", "."),
        ("unshare", NEWCGROUP),
    ]
    assert os.getcwd() == os.readlink(f"/proc/self/fd/{root_fd}")


def test_an_initial_root_is_covered_instead(root_fd: int) -> None:
    kernel = RecordingKernel(pivot_root=errno.EINVAL)
    switch_root(kernel, root_fd)
    assert kernel.calls[1:3] == [("mount", ".", "/", "", MOVE, ""), ("chroot", ".")]


def test_any_other_refusal_ends_the_start(root_fd: int) -> None:
    kernel = RecordingKernel(pivot_root=errno.EPERM)
    with pytest.raises(KernelError, match="pivot_root"):
        switch_root(kernel, root_fd)
    assert kernel.called("chroot") == []


def test_a_kernel_without_cgroup_namespaces_is_fine(root_fd: int) -> None:
    switch_root(RecordingKernel(unshare=errno.EINVAL), root_fd)
    with pytest.raises(KernelError):
        switch_root(RecordingKernel(unshare=errno.EPERM), root_fd)
