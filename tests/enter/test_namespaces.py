from __future__ import annotations

import errno
from collections.abc import Mapping

import pytest

from enroot_py.enter import namespaces
from enroot_py.enter.namespaces import enter_namespaces, explain_refusal
from enroot_py.errors import KernelError, NamespaceError
from enroot_py.plan.start import NamespacePlan
from tests.fakes import RecordingKernel

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x40000000
SLAVE = 1 << 19 | 1 << 14

SUPERUSER = NamespacePlan(
    user=False, uid=0, gid=0, outside_uid=0, outside_gid=0,
    pid=False, net=False, ipc=False, uts=False, machine="x86_64",
)  # fmt: skip


def test_real_root_gets_no_user_namespace_and_mounts_nothing_on_the_host() -> None:
    kernel = RecordingKernel()
    enter_namespaces(kernel, SUPERUSER)
    assert kernel.calls == [("unshare", NEWNS), ("mount", "", "/", "", SLAVE, "")]


def test_every_namespace_asked_for_is_entered_at_once() -> None:
    kernel = RecordingKernel()
    enter_namespaces(kernel, SUPERUSER._replace(net=True, ipc=True, uts=True))
    assert kernel.called("unshare") == [(NEWNS | NEWNET | NEWIPC | NEWUTS,)]
    assert kernel.called("loopback") == [()]


@pytest.mark.parametrize(
    ("code", "switches", "words"),
    [
        (errno.ENOSPC, {"user/max_user_namespaces": "0"}, ("user.max_user_namespaces=15000",)),
        (errno.ENOSPC, {}, ("user.max_user_namespaces=15000",)),
        (
            errno.EPERM,
            {"kernel/unprivileged_userns_clone": "0"},
            ("kernel.unprivileged_userns_clone=1",),
        ),
        (
            errno.EACCES,
            {"kernel/apparmor_restrict_unprivileged_userns": "1"},
            ("kernel.apparmor_restrict_unprivileged_userns=0", "profile"),
        ),
        (errno.EINVAL, {}, ("threads", "spawn()", "CONFIG_USER_NS")),
        (
            errno.EPERM,
            {"user/max_user_namespaces": "15000"},
            (
                "user.max_user_namespaces",
                "kernel.unprivileged_userns_clone",
                "kernel.apparmor_restrict_unprivileged_userns",
                "container runtime",
            ),
        ),
    ],
)
def test_a_refusal_names_the_switch(
    monkeypatch: pytest.MonkeyPatch, code: int, switches: Mapping[str, str], words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(namespaces, "_read_switch", lambda name: switches.get(name, ""))
    error = explain_refusal(KernelError("unshare", code))
    assert "Cannot create a namespace: unshare: " in str(error)
    for word in words:
        assert word in error.hint


def test_a_refused_namespace_is_a_namespace_error() -> None:
    kernel = RecordingKernel(unshare=errno.EPERM)
    with pytest.raises(NamespaceError, match="Operation not permitted"):
        enter_namespaces(kernel, SUPERUSER)
    assert kernel.called("mount") == []


def test_switches_that_do_not_exist_read_as_nothing() -> None:
    assert namespaces._read_switch("kernel/nonexistent") == ""
    assert namespaces._read_switch("user/max_user_namespaces").isdecimal()
