"""Enter new namespaces, and say why where the kernel refuses.

Source: enroot 4.1.2 bin/enroot-nsenter.c, create_namespaces(); user_namespaces(7).
"""

from __future__ import annotations

import errno
import os

from enroot_py.enter.process import fork_into_pid_namespace
from enroot_py.errors import KernelError, NamespaceError
from enroot_py.linux.capabilities import raise_ambient
from enroot_py.linux.kernel import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    Kernel,
)
from enroot_py.linux.seccomp import filter_program
from enroot_py.plan.mount_options import MS_REC, MS_SLAVE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enroot_py.plan.start import NamespacePlan

FLAGS = {
    "user": CLONE_NEWUSER,
    "pid": CLONE_NEWPID,
    "mount": CLONE_NEWNS,
    "net": CLONE_NEWNET,
    "ipc": CLONE_NEWIPC,
    "uts": CLONE_NEWUTS,
}
"""The kinds of namespaces, by their names in a plan."""

_SWITCHES = (
    # file below /proc/sys, value that forbids, command that allows
    ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
    ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for it",
    ),
)


def enter_namespaces(kernel: Kernel, plan: NamespacePlan) -> None:
    """Move this process to new namespaces; for a pid namespace, its child returns from here.

    Afterwards the process has every capability there, keeps them through execve(2), and is filtered
    where it has a user namespace.

    Raises:
        NamespaceError: if the kernel refuses; the hint names the switch to change.
    """
    flags = 0
    for kind in ("mount", "net", "ipc", "uts"):
        flags |= FLAGS[kind] if getattr(plan, kind) else 0
    user = CLONE_NEWUSER if plan.user else 0
    if plan.pid:
        # The process that waits stays outside of all but the user namespace: it would keep the
        # container's mounts alive, and with them the server of its image.
        _unshare(kernel, user | CLONE_NEWPID, plan)
        fork_into_pid_namespace(kernel)
        _unshare(kernel, flags, plan)
    else:
        _unshare(kernel, user | flags, plan)
    if plan.mount and not plan.user:
        # Real root's mounts must not show up on the host. A user namespace sees to it by itself.
        kernel.mount("", "/", "", MS_REC | MS_SLAVE)
    if plan.net:
        kernel.bring_loopback_up()
    if plan.user:
        kernel.set_seccomp_filter(filter_program(plan.machine))


def _unshare(kernel: Kernel, flags: int, plan: NamespacePlan) -> None:
    try:
        kernel.unshare(flags)
    except KernelError as error:
        raise explain_refusal(error) from error
    if flags & CLONE_NEWUSER:
        _map_user(plan)
        if plan.uid != 0:
            raise_ambient(kernel)


def _map_user(plan: NamespacePlan) -> None:
    """Map one user and one group, the caller's, and give up changing groups."""
    for name, text in (
        ("setgroups", "deny"),
        ("gid_map", f"{plan.gid} {plan.outside_gid} 1"),
        ("uid_map", f"{plan.uid} {plan.outside_uid} 1"),
    ):
        try:
            fd = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, text.encode())
            finally:
                os.close(fd)
        except OSError as error:
            cause = KernelError("write", error.errno or 0, f"/proc/self/{name}")
            raise explain_refusal(cause) from error


def explain_refusal(error: KernelError) -> NamespaceError:
    """Return the error to raise when the kernel refuses a namespace or what one needs."""
    return NamespaceError(f"Cannot create a namespace: {error}", hint=_find_remedy(error.errno))


def _find_remedy(code: int | None) -> str:
    remedies = [
        f"{name.replace('/', '.')} is {value}, allow with: {command}"
        for name, value, command in _SWITCHES
        if _read_switch(name) == value
    ]
    if remedies:
        return "; ".join(remedies)
    if code == errno.EINVAL:
        return (
            "a process with several threads cannot enter a user namespace (programs use"
            " spawn()), and the kernel must have CONFIG_USER_NS"
        )
    if code in (errno.ENOSPC, errno.EUSERS):
        return "too many namespaces: raise them with sysctl -w user.max_user_namespaces=15000"
    return (
        "check sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone and"
        " kernel.apparmor_restrict_unprivileged_userns, and whether a container runtime or a"
        " service's sandbox forbids user namespaces here"
    )


def _read_switch(name: str) -> str:
    try:
        fd = os.open(f"/proc/sys/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, 64).decode("ascii", "replace").strip()
    finally:
        os.close(fd)
