"""The one seam to the kernel: thin, typed system calls that Python itself does not offer.

No policy, no retries, no defaults; what `os` can do (open, mkdir, fork, execve) is done with `os`.
Tests pass a subclass that records the calls (tests/fakes.py).

`os.unshare` and `os.setns` exist from Python 3.12 on; ctypes serves every version alike.
"""

from __future__ import annotations

import ctypes
import os
import sys

from enroot_py.errors import KernelError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

# <sched.h>
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

# <sys/mount.h>; the flags of mount(2) are in plan/mount_options.py
MNT_DETACH = 2

# <linux/mount.h>, <fcntl.h>
OPEN_TREE_CLONE = 1
OPEN_TREE_CLOEXEC = 0o2000000
AT_RECURSIVE = 0x8000
AT_EMPTY_PATH = 0x1000
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
MOUNT_ATTR_NODEV = 4
MOUNT_ATTR_NOEXEC = 8

# <linux/prctl.h>
PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2

# <linux/close_range.h>
CLOSE_RANGE_CLOEXEC = 4

_CAPABILITY_VERSION_3 = 0x20080522
# The same on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_FDCWD = -100
_MOVE_MOUNT_F_EMPTY_PATH, _MOVE_MOUNT_T_EMPTY_PATH = 4, 0x40
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FILTER_FLAG_SPEC_ALLOW = 4
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_RLIMIT_FSIZE = 1
_AF_INET, _SOCK_DGRAM, _SOCK_CLOEXEC = 2, 2, 0o2000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_EINVAL = 22

_NUMBERS = {
    # machine: (pivot_root, seccomp, close_range); tests/linux compares them with the headers.
    "x86_64": (155, 317, 436),
    "aarch64": (41, 277, 436),
    "ppc64le": (203, 358, 436),
}


class Capabilities(NamedTuple):
    """A thread's capability sets, bit N for capability N."""

    effective: int
    permitted: int
    inheritable: int


class Kernel:
    """Thin system calls. Every method raises KernelError, naming the call and its object."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        word, text = ctypes.c_ulong, ctypes.c_char_p
        libc.mount.argtypes = (text, text, text, word, text)
        libc.umount2.argtypes = (text, ctypes.c_int)
        libc.prctl.argtypes = (ctypes.c_int, word, word, word, word)
        libc.syscall.restype = ctypes.c_long
        self._libc = libc
        machine = os.uname().machine
        self._pivot_root, self._seccomp, self._close_range = _NUMBERS.get(machine, (-1, -1, 436))

    def mount(self, source: str, target: str, fstype: str, flags: int, data: str = "") -> None:
        """mount(2); an empty `source`, `fstype` or `data` is passed as NULL."""
        result = self._libc.mount(
            os.fsencode(source) or None,
            os.fsencode(target),
            fstype.encode() or None,
            flags,
            os.fsencode(data) or None,
        )
        if result < 0:
            raise KernelError("mount", ctypes.get_errno(), target)

    def open_tree(self, path: str, flags: int) -> int:
        """open_tree(2): return a descriptor of a mount, with OPEN_TREE_CLONE of a detached copy."""
        call, at = ctypes.c_long(_OPEN_TREE), ctypes.c_long(_AT_FDCWD)
        fd = int(self._libc.syscall(call, at, os.fsencode(path), ctypes.c_ulong(flags)))
        if fd < 0:
            raise KernelError("open_tree", ctypes.get_errno(), path)
        return fd

    def mount_setattr(self, fd: int, flags: int, attributes: int, propagation: int) -> None:
        """mount_setattr(2) on the mount that `fd` stands for; sets, never clears."""
        body = (ctypes.c_uint64 * 4)(attributes, 0, propagation, 0)
        result = self._libc.syscall(
            ctypes.c_long(_MOUNT_SETATTR),
            ctypes.c_long(fd),
            b"",
            ctypes.c_ulong(flags | AT_EMPTY_PATH),
            body,
            ctypes.c_size_t(ctypes.sizeof(body)),
        )
        if result < 0:
            raise KernelError("mount_setattr", ctypes.get_errno())

    def move_mount(self, fd: int, target_fd: int) -> None:
        """move_mount(2): attach the mount of `fd` on top of what `target_fd` stands for."""
        flags = ctypes.c_ulong(_MOVE_MOUNT_F_EMPTY_PATH | _MOVE_MOUNT_T_EMPTY_PATH)
        call, source = ctypes.c_long(_MOVE_MOUNT), ctypes.c_long(fd)
        if self._libc.syscall(call, source, b"", ctypes.c_long(target_fd), b"", flags) < 0:
            raise KernelError("move_mount", ctypes.get_errno())

    def umount(self, target: str, flags: int) -> None:
        """umount2(2)."""
        if self._libc.umount2(os.fsencode(target), flags) < 0:
            raise KernelError("umount", ctypes.get_errno(), target)

    def unshare(self, flags: int) -> None:
        """unshare(2): move this process, or for CLONE_NEWPID its children, to new namespaces."""
        if self._libc.unshare(flags) < 0:
            raise KernelError("unshare", ctypes.get_errno())

    def setns(self, fd: int, nstype: int) -> None:
        """setns(2): join the namespace that `fd` stands for."""
        if self._libc.setns(fd, nstype) < 0:
            raise KernelError("setns", ctypes.get_errno())

    def pivot_root(self, new_root: str, put_old: str) -> None:
        """pivot_root(2)."""
        result = self._libc.syscall(
            ctypes.c_long(self._pivot_root), os.fsencode(new_root), os.fsencode(put_old)
        )
        if result < 0:
            raise KernelError("pivot_root", ctypes.get_errno(), new_root)

    def chroot(self, path: str) -> None:
        """chroot(2)."""
        try:
            os.chroot(path)
        except OSError as error:
            raise KernelError("chroot", error.errno or 0, path) from error

    def prctl(self, option: int, first: int = 0, second: int = 0, third: int = 0) -> int:
        """prctl(2)."""
        result = int(self._libc.prctl(option, first, second, third, 0))
        if result < 0:
            raise KernelError("prctl", ctypes.get_errno(), str(option))
        return result

    def capget(self) -> Capabilities:
        """capget(2) for this thread."""
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        data = (ctypes.c_uint32 * 6)()
        if self._libc.capget(header, data) < 0:
            raise KernelError("capget", ctypes.get_errno())
        return Capabilities(*(data[at] | data[at + 3] << 32 for at in range(3)))

    def capset(self, sets: Capabilities) -> None:
        """capset(2) for this thread."""
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        low = [value & 0xFFFFFFFF for value in sets]
        high = [value >> 32 for value in sets]
        if self._libc.capset(header, (ctypes.c_uint32 * 6)(*low, *high)) < 0:
            raise KernelError("capset", ctypes.get_errno())

    def set_seccomp_filter(self, program: bytes) -> None:
        """Install a seccomp filter: `program` is an array of `struct sock_filter`.

        Speculation stays allowed where the kernel can tell (4.17 and newer): the filter fakes
        results and guards no secret, and the mitigation would slow the whole container.

        Source: seccomp(2), SECCOMP_FILTER_FLAG_SPEC_ALLOW.
        """

        class FilterProgram(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

        body = ctypes.byref(FilterProgram(len(program) // 8, program))
        call, mode = ctypes.c_long(self._seccomp), ctypes.c_long(_SECCOMP_SET_MODE_FILTER)
        if self._libc.syscall(call, mode, ctypes.c_long(_SECCOMP_FILTER_FLAG_SPEC_ALLOW), body) < 0:
            # Kernels before 4.17 do not know the flag, those before 3.17 not the call.
            address = ctypes.cast(body, ctypes.c_void_p).value or 0
            try:
                self.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, address)
            except KernelError as error:
                raise KernelError("seccomp", error.errno or _EINVAL) from error

    def close_range(self, first: int, last: int, flags: int) -> None:
        """close_range(2)."""
        arguments = [ctypes.c_ulong(value) for value in (self._close_range, first, last, flags)]
        if self._libc.syscall(*arguments) < 0:
            raise KernelError("close_range", ctypes.get_errno())

    def limit_file_size(self, size: int) -> None:
        """setrlimit(2) for RLIMIT_FSIZE, soft and hard; bytes, -1 for no limit."""
        limit = (ctypes.c_ulong * 2)(size & (2**64 - 1), size & (2**64 - 1))
        if self._libc.setrlimit(_RLIMIT_FSIZE, limit) < 0:
            raise KernelError("setrlimit", ctypes.get_errno(), "RLIMIT_FSIZE")

    def bring_loopback_up(self) -> None:
        """Set IFF_UP on this network namespace's `lo`. Source: netdevice(7)."""
        fd = self._libc.socket(_AF_INET, _SOCK_DGRAM | _SOCK_CLOEXEC, 0)
        if fd < 0:
            raise KernelError("socket", ctypes.get_errno(), "lo")
        try:
            request = (ctypes.c_uint16 * 20)()  # struct ifreq: name[16], flags, …
            request[0] = int.from_bytes(b"lo", sys.byteorder)
            for call in (_SIOCGIFFLAGS, _SIOCSIFFLAGS):
                if self._libc.ioctl(fd, ctypes.c_ulong(call), request) < 0:
                    raise KernelError("ioctl", ctypes.get_errno(), "lo")
                request[8] |= _IFF_UP
        finally:
            os.close(fd)
