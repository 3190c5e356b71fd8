"""Perform the mounts of fstab files beneath a root: the `enroot-mount` command.

Hooks call it while a container is set up, in the container's namespaces.

Source: enroot 4.1.2 bin/enroot-mount.c.
"""

from __future__ import annotations

import os
import sys

from enroot_py.enter.mounts import Mounter
from enroot_py.errors import KernelError, NotFoundError, UsageError
from enroot_py.linux.kernel import Kernel
from enroot_py.linux.path import read_file
from enroot_py.plan.fstab import parse_fstab

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_LARGEST_FSTAB = 16 << 20
_EVERYBODY = 2**32 - 1


def mount_files(
    paths: Iterable[str], *, root: str = "/", passno: int = 0, kernel: Kernel | None = None
) -> None:
    """Mount the entries of fstab files, in order; each file is read whole before its first mount.

    Args:
        paths: fstab files; "-" is standard input.
        root: the folder that targets are resolved beneath.
        passno: the fs_passno of the entries to mount; others are skipped.
        kernel: the way to system calls.

    Raises:
        NotFoundError: if a file or the root cannot be read.
        InvalidMountError: naming an entry that cannot be completed.
        KernelError: naming both ends of a mount that failed.
    """
    try:
        mounter = Mounter(kernel or Kernel(), root, locked=in_user_namespace())
    except OSError as error:
        raise NotFoundError(f"Cannot open the root {root}: {error.strerror}") from error
    with mounter:
        for path in paths:
            # There are no variables in what hooks write: they have a shell for that.
            text = _read(path).replace("${", "\\044{")
            mounts = parse_fstab(text, {}, "standard input" if path == "-" else path)
            mounter.apply(mount for mount in mounts if mount.passno == passno)


def in_user_namespace() -> bool:
    """Tell whether this process is in another user namespace than the host's first one.

    Source: enroot 4.1.2 bin/enroot-mount.c, detect_userns(); user_namespaces(7).
    """
    for name in ("uid_map", "gid_map"):
        try:
            with open(f"/proc/self/{name}", "rb") as file:
                fields = file.readline().split()
        except FileNotFoundError:
            return False  # a kernel without user namespaces
        if fields != [b"0", b"0", str(_EVERYBODY).encode()]:
            return True
    return False


def _read(path: str) -> str:
    if path == "-":
        if sys.stdin is None:
            raise UsageError("There is no list: standard input is closed", hint="name a file")
        return os.fsdecode(sys.stdin.buffer.read(_LARGEST_FSTAB))
    try:
        return os.fsdecode(read_file(path, limit=_LARGEST_FSTAB))
    except KernelError:
        raise
    except OSError as error:
        raise NotFoundError(f"Cannot read {path}: {error.strerror}") from error
