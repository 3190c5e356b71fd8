"""Examine what the kernel allows: namespaces, overlayfs, FUSE, and the programs that go with them.

Source: user_namespaces(7); Documentation/admin-guide/sysctl/user.rst; AppArmor's mediation of user
namespaces, which Ubuntu switches on from 23.10 on.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Mapping
from errno import EINVAL, ENODEV, ENOENT, ENOSPC, EUSERS

from enroot_py.operations.doctor.findings import Finding, Status, fault, note, ok
from enroot_py.operations.doctor.probe import Attempt

_APPARMOR = "kernel/apparmor_restrict_unprivileged_userns"
SWITCHES = (
    "user/max_user_namespaces",
    "user/max_mnt_namespaces",
    "user/max_pid_namespaces",
    "user/max_net_namespaces",
    "user/max_ipc_namespaces",
    "user/max_uts_namespaces",
    "kernel/unprivileged_userns_clone",
    _APPARMOR,
)
_LIMIT = 15000  # namespaces a user may have: what distributions set, and plenty for a full node


def examine_kernel(
    attempts: Mapping[str, Attempt], switches: Mapping[str, str], fuse_mode: int
) -> list[Finding]:
    """Return the findings about namespaces, overlayfs and FUSE. Pure.

    Args:
        attempts: what `probe.try_steps` found.
        switches: values below /proc/sys by name, e.g. "user/max_user_namespaces"; "" where there
            is no such switch.
        fuse_mode: permission bits of /dev/fuse, 0 if there is none.
    """
    first = _user_namespaces(attempts, switches)
    if first.status is Status.FAULT:
        return [first]  # nothing else can be tried
    others = _other_namespaces(attempts, switches)
    return [first, others, _overlayfs(attempts), _fuse(attempts, fuse_mode)]


def read_switches() -> dict[str, str]:
    """Read every switch that `examine_kernel` knows."""
    switches = {}
    for name in SWITCHES:
        try:
            with open(f"/proc/sys/{name}", encoding="ascii") as file:
                switches[name] = file.read().strip()
        except OSError:
            switches[name] = ""
    return switches


def read_fuse_mode() -> int:
    """Return the permission bits of /dev/fuse, 0 if there is none."""
    try:
        return stat.S_IMODE(os.stat("/dev/fuse").st_mode)
    except OSError:
        return 0


def examine_programs(native_overlayfs: bool) -> list[Finding]:
    """Return the findings about programs that are used where they are installed."""
    findings = []
    squashfuse = shutil.which("squashfuse")
    if squashfuse:
        findings.append(ok("squashfuse", squashfuse))
    else:
        findings.append(
            note(
                "squashfuse",
                "not installed: `start IMAGE` unpacks the image once and keeps that in the cache",
                "sudo apt-get install squashfuse    # or: dnf install squashfuse",
            )
        )
    if not native_overlayfs:
        findings.append(
            note(
                "overlayfs",
                "ENROOT_NATIVE_OVERLAYFS is off, and means nothing: the kernel's overlayfs is used",
                "unset ENROOT_NATIVE_OVERLAYFS, and take it out of enroot.conf",
            )
        )
    if shutil.which("bash") is None:
        findings.append(
            note(
                "bash",
                "not installed: `start --conf` and $(command) in enroot.conf need it",
                "sudo apt-get install bash",
            )
        )
    return findings


def _user_namespaces(attempts: Mapping[str, Attempt], switches: Mapping[str, str]) -> Finding:
    subject = "user namespaces"
    for step in ("user namespace", "user map", "mount namespace", "tmpfs"):
        errno = attempts[step].errno
        if errno > 0:
            text = f"refused ({step}: {os.strerror(errno)})"
            return fault(subject, text, *_namespace_remedy(errno, switches))
    if switches[_APPARMOR] == "1":
        return ok(subject, "allowed, by an AppArmor profile")
    return ok(subject, "allowed")


def _namespace_remedy(errno: int, switches: Mapping[str, str]) -> tuple[str, ...]:
    if switches["user/max_user_namespaces"] == "0":
        return _set("user.max_user_namespaces", _LIMIT)
    if switches["kernel/unprivileged_userns_clone"] == "0":
        return _set("kernel.unprivileged_userns_clone", 1)
    if switches["user/max_mnt_namespaces"] == "0":
        return _set("user.max_mnt_namespaces", _LIMIT)
    if errno in (ENOSPC, EUSERS):
        return (
            "# a limit is reached; see what holds namespaces: lsns --type user",
            *_set("user.max_user_namespaces", _LIMIT),
        )
    if switches[_APPARMOR] == "1":
        return _apparmor_remedy()
    if errno == EINVAL:
        return ("# the kernel was built without CONFIG_USER_NS: install your distribution's",)
    return (
        "# forbidden by a seccomp filter, a chroot or a security module around this process;",
        "# in docker or podman: --security-opt seccomp=unconfined",
        "# in a systemd service: RestrictNamespaces=no",
    )


def _set(switch: str, value: int) -> tuple[str, ...]:
    return (
        f"sudo sysctl -w {switch}={value}",
        f"echo {switch}={value} | sudo tee /etc/sysctl.d/90-enroot.conf    # for good",
    )


def _apparmor_remedy() -> tuple[str, ...]:
    program = os.path.realpath(sys.argv[0]) if sys.argv[0] else sys.executable
    profile = f"abi <abi/4.0>,\\nprofile enroot {program} flags=(unconfined) {{\\n  userns,\\n}}\\n"
    return (
        "# AppArmor keeps programs from using user namespaces: give this one a profile",
        f"printf '{profile}' | sudo tee /etc/apparmor.d/enroot",
        "sudo apparmor_parser -r /etc/apparmor.d/enroot",
        "# or, for every program: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    )


def _other_namespaces(attempts: Mapping[str, Attempt], switches: Mapping[str, str]) -> Finding:
    refused = [
        (kind, attempts[f"{kind} namespace"].errno)
        for kind in ("pid", "net", "ipc", "uts")
        if attempts[f"{kind} namespace"].errno
    ]
    if not refused:
        return ok("other namespaces", "pid, net, ipc and uts allowed")
    text = ", ".join(f"--{kind} is refused ({os.strerror(errno)})" for kind, errno in refused)
    remedy: list[str] = []
    for kind, _ in refused:
        if switches[f"user/max_{kind}_namespaces"] == "0":
            remedy += _set(f"user.max_{kind}_namespaces", _LIMIT)
    if not remedy and refused[0][0] == "pid":
        remedy.append("# something is mounted below /proc here; in docker: -v /proc:/hostproc:rw")
    return note("other namespaces", text, *remedy)


def _overlayfs(attempts: Mapping[str, Attempt]) -> Finding:
    errno = attempts["overlayfs"].errno
    if not errno:
        return ok("overlayfs", "can be mounted in a user namespace")
    remedy = "# kernel 5.11 or newer mounts overlayfs for users"
    if errno == ENODEV:
        remedy = "sudo modprobe overlay && echo overlay | sudo tee /etc/modules-load.d/enroot.conf"
    text = f"cannot be mounted ({os.strerror(errno)}): `start IMAGE` does not work"
    return fault("overlayfs", text, remedy)


def _fuse(attempts: Mapping[str, Attempt], mode: int) -> Finding:
    errno = attempts["fuse"].errno
    if not errno:
        return ok("FUSE", "can be mounted in a user namespace")
    text = f"/dev/fuse: {os.strerror(errno)}; images are unpacked to the cache before they start"
    if errno in (ENOENT, ENODEV):
        return note("FUSE", text, "sudo modprobe fuse")
    if mode & 0o666 != 0o666:
        return note("FUSE", text, "sudo chmod 0666 /dev/fuse")
    return note(
        "FUSE", text, "# kernel 4.18 or newer mounts FUSE for users; a sandbox may forbid it"
    )
