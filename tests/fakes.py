"""A kernel that notes down what it was asked for, and can be told to refuse."""

from __future__ import annotations

import errno as errors
import os

from enroot_py.errors import KernelError
from enroot_py.linux.kernel import Capabilities, Kernel


class RecordingKernel(Kernel):
    """Does nothing and remembers every call as (name, arguments…).

    Paths of the form /proc/self/fd/N are resolved when the call is made, so that tests see what the
    descriptor stood for.

    Attributes:
        calls: the calls, in order.
        refusals: name of a call, and the errno with which it fails from now on.
    """

    def __init__(self, **refusals: int) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.refusals = refusals

    def called(self, name: str) -> list[tuple[object, ...]]:
        """Return the arguments of every call of a name."""
        return [call[1:] for call in self.calls if call[0] == name]

    def _note(self, name: str, *arguments: object) -> None:
        self.calls.append((name, *map(_resolve, arguments)))
        if name in self.refusals:
            raise KernelError(name, self.refusals[name])

    def mount(self, source: str, target: str, fstype: str, flags: int, data: str = "") -> None:
        self._note("mount", source, target, fstype, flags, data)

    def umount(self, target: str, flags: int) -> None:
        self._note("umount", target, flags)

    def unshare(self, flags: int) -> None:
        self._note("unshare", flags)

    def setns(self, fd: int, nstype: int) -> None:
        self._note("setns", nstype)

    def pivot_root(self, new_root: str, put_old: str) -> None:
        self._note("pivot_root", new_root, put_old)

    def chroot(self, path: str) -> None:
        self._note("chroot", path)

    def prctl(self, option: int, first: int = 0, second: int = 0, third: int = 0) -> int:
        self._note("prctl", option, first, second)
        if option == 24 and first > 40:  # PR_CAPBSET_DROP past the last capability
            raise KernelError("prctl", errors.EINVAL)
        return 0

    def capget(self) -> Capabilities:
        return Capabilities(0b1011, 0b1111, 0)

    def capset(self, sets: Capabilities) -> None:
        self._note("capset", tuple(sets))

    def set_seccomp_filter(self, program: bytes) -> None:
        self._note("seccomp", len(program))

    def close_range(self, first: int, last: int, flags: int) -> None:
        self._note("close_range", first, last, flags)

    def limit_file_size(self, size: int) -> None:
        self._note("setrlimit", size)

    def bring_loopback_up(self) -> None:
        self._note("loopback")


def _resolve(argument: object) -> object:
    if isinstance(argument, str) and argument.startswith("/proc/self/fd/"):
        return os.readlink(argument)
    return argument
