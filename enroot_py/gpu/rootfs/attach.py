"""Attach bind mounts whose flags keep those of their source: in two ways, one for old kernels.

`open_tree` makes a detached copy, `mount_setattr` adds flags to it, `move_mount` attaches it: the
flags that the host locked stay by themselves. Without these calls (before Linux 5.12) a bind mount
and a remount do the same; the remount must state again every flag that the source has, or the
kernel refuses it with EPERM.
"""

from __future__ import annotations

import errno
import os

from enroot_py.errors import KernelError
from enroot_py.linux.kernel import (
    AT_RECURSIVE,
    MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NOEXEC,
    MOUNT_ATTR_NOSUID,
    MOUNT_ATTR_RDONLY,
    OPEN_TREE_CLOEXEC,
    OPEN_TREE_CLONE,
    Kernel,
)
from enroot_py.linux.path import Place
from enroot_py.plan.mount_options import (
    MS_BIND,
    MS_NOATIME,
    MS_NODEV,
    MS_NODIRATIME,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_RELATIME,
    MS_REMOUNT,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_ATTRIBUTES = {
    "ro": (MOUNT_ATTR_RDONLY, MS_RDONLY),
    "nosuid": (MOUNT_ATTR_NOSUID, MS_NOSUID),
    "nodev": (MOUNT_ATTR_NODEV, MS_NODEV),
    "noexec": (MOUNT_ATTR_NOEXEC, MS_NOEXEC),
}
_SETTABLE = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME
_ST_RELATIME = 4096
_TOO_OLD = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL})


class Attacher:
    """Attaches bind mounts. `modern` is whether the newer calls are used; it is found out."""

    def __init__(self, kernel: Kernel, *, modern: bool = True) -> None:
        self.kernel = kernel
        self.modern = modern

    def bind(self, source: str, target: str | Place, options: Iterable[str]) -> None:
        """Bind `source`, an absolute host path, on `target`; the mount is private.

        Args:
            target: an absolute host path in a tree that is ours, or a place in a rootfs.
            options: `ro`, `nosuid`, `nodev`, `noexec`; `rbind` takes the mounts below along.

        Raises:
            KernelError: as the system calls do.
        """
        words = frozenset(options)
        if self.modern:
            try:
                self._bind_modern(source, target, words)
                return
            except KernelError as error:
                if error.errno not in _TOO_OLD:
                    raise
                # The older calls decide: what they refuse too is refused for good.
                self.modern = error.errno != errno.ENOSYS
        self._bind_legacy(source, target, words)

    def _bind_modern(self, source: str, target: str | Place, words: frozenset[str]) -> None:
        recursive = AT_RECURSIVE if "rbind" in words else 0
        attributes = sum(_ATTRIBUTES[word][0] for word in words if word in _ATTRIBUTES)
        tree = self.kernel.open_tree(source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | recursive)
        try:
            self.kernel.mount_setattr(tree, recursive, attributes, MS_PRIVATE)
            if isinstance(target, Place):
                self.kernel.move_mount(tree, target.fd)
                return
            place = os.open(target, os.O_PATH | os.O_CLOEXEC)
            try:
                self.kernel.move_mount(tree, place)
            finally:
                os.close(place)
        finally:
            os.close(tree)

    def _bind_legacy(self, source: str, target: str | Place, words: frozenset[str]) -> None:
        recursive = MS_REC if "rbind" in words else 0
        path = target.path if isinstance(target, Place) else target
        self.kernel.mount(source, path, "", MS_BIND | recursive)
        if isinstance(target, Place):
            # Its descriptor still stands for what is now below the mount.
            target.reopen()
            path = target.path
        flags = sum(_ATTRIBUTES[word][1] for word in words if word in _ATTRIBUTES)
        kept = os.statvfs(path).f_flag
        flags |= kept & _SETTABLE | (MS_RELATIME if kept & _ST_RELATIME else 0)
        self.kernel.mount("", path, "", MS_BIND | MS_REMOUNT | flags)
        self.kernel.mount("", path, "", MS_PRIVATE | recursive)
