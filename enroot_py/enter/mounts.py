"""Perform mount entries beneath a rootfs that may be hostile.

Sources are opened first and targets are resolved beneath the rootfs (linux/path.py); mount(2) then
gets both by descriptor, so that nothing which changes meanwhile can lead elsewhere.

Source: enroot 4.1.2 bin/enroot-mount.c, mount_entry(), mount_generic() and mount_propagate().
"""

from __future__ import annotations

import errno
import os
from stat import S_ISDIR

from enroot_py import log
from enroot_py.errors import EnrootError, KernelError
from enroot_py.linux.kernel import MNT_DETACH, Kernel
from enroot_py.linux.path import Place, resolve
from enroot_py.plan.fstab import SQUASHFS
from enroot_py.plan.mount_options import (
    MS_BIND,
    MS_MOVE,
    MS_NOATIME,
    MS_NODEV,
    MS_NODIRATIME,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_PROPAGATION,
    MS_RDONLY,
    MS_REC,
    MS_RELATIME,
    MS_REMOUNT,
    MS_SHARED,
    MS_SILENT,
    MS_SLAVE,
    MS_UNBINDABLE,
    mount_flags,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from enroot_py.enter.data_images import DataImages
    from enroot_py.plan.fstab import Mount

_PROPAGATIONS = (
    (MS_SHARED, "rshared"),
    (MS_SLAVE, "rslave"),
    (MS_PRIVATE, "rprivate"),
    (MS_UNBINDABLE, "runbindable"),
)
_LOCKED = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY | MS_NOATIME | MS_NODIRATIME
_ST_RELATIME = 4096
_HINTS = {
    errno.ENOENT: "x-create=dir, x-create=file or x-create=auto makes a missing target",
    errno.ENOTDIR: "a folder and a file cannot be mounted on each other",
    errno.EACCES: "this user may not read the source, or may not make the target: somebody else's"
    " container must have been started by its owner once",
    errno.EPERM: "inside a user namespace only some file systems can be mounted, and flags that"
    " the host set (such as ro or noexec) stay",
    errno.ELOOP: "too many symbolic links",
    errno.ENOSPC: "too many mounts: see sysctl fs.mount-max",
}


class Mounter:
    """Performs mounts beneath one rootfs. A context manager that owns a descriptor of its root.

    Attributes:
        rootfs: absolute host path of the rootfs.
        root_fd: a descriptor (O_PATH) of it.
        data_images: servers of the squashfs files that entries may name, if there are any.
    """

    data_images: DataImages | None = None

    def __init__(self, kernel: Kernel, rootfs: str, *, locked: bool) -> None:
        """Open the rootfs.

        Args:
            kernel: the way to system calls.
            rootfs: absolute host path, of the mount itself if it is one.
            locked: this is a user namespace, where bind mounts and remounts must keep the flags
                that their source or target has.
        """
        self.kernel = kernel
        self.rootfs = rootfs
        self.locked = locked
        self.root_fd = os.open(rootfs, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Mounter:
        return self

    def __exit__(self, *unused: object) -> None:
        os.close(self.root_fd)

    def apply(self, mounts: Iterable[Mount]) -> None:
        """Perform entries in order.

        Raises:
            KernelError: naming both ends.
            UnsupportedError: for a squashfs file that cannot be served. With `nofail` each is a
                warning, with `silent` not even that.
        """
        for mount in mounts:
            try:
                _Entry(self, mount).perform()
            except EnrootError as error:
                failure = _describe(mount, error) if isinstance(error, KernelError) else error
                if "nofail" not in mount.options:
                    raise failure from error
                if "silent" not in mount.options or "loud" in mount.options:
                    log.warn(str(failure))

    def existing_flags(self, fd: int) -> int:
        """Return the flags of the mount behind a descriptor which cannot be taken away here."""
        if not self.locked:
            return 0
        flags = os.fstatvfs(fd).f_flag
        return flags & _LOCKED | (MS_RELATIME if flags & _ST_RELATIME else 0)


def _describe(mount: Mount, error: KernelError) -> KernelError:
    verb = "unmount" if "x-detach" in mount.options else "mount"
    code = error.errno or 0
    what = mount.target if verb == "unmount" else f"{mount.source} at {mount.target}"
    failure = KernelError(error.syscall, code, what, hint=_remedy(mount, error))
    failure.args = (f"Cannot {verb} {what}: {os.strerror(code)}",)
    return failure


def _remedy(mount: Mount, error: KernelError) -> str:
    code = error.errno or 0
    if code == errno.ENOTDIR and _is_squashfs(mount.source):
        return f"{mount.source}:{mount.target}:{SQUASHFS} mounts what is in it"
    if code == errno.ENOENT and error.what == mount.source:
        return f"{mount.source} is not there"
    if code == errno.EINVAL and mount.fstype == "none" and mount.source != "none":
        options = ",".join((*mount.options, "rbind"))
        return f"a folder or file needs bind or rbind: {mount.source}:{mount.target}:{options}"
    if code == errno.ENODEV:
        return f"{mount.fstype}: the kernel knows neither such a file system nor such an option"
    return _HINTS.get(code, "")


def _is_squashfs(path: str) -> bool:
    from enroot_py.squashfs.superblock import is_squashfs

    return is_squashfs(path)


class _Entry:
    """One mount entry being performed."""

    def __init__(self, mounter: Mounter, mount: Mount) -> None:
        self.mounter = mounter
        self.kernel = mounter.kernel
        self.mount = mount
        self.options = mount.options
        self.flags, self.data = mount_flags(mount.options)
        self.own_source = ""

    def perform(self) -> None:
        if self.flags & MS_BIND and "silent" not in self.options:
            self.warn_of_unknown_options()
        source_fd = self.open_source()
        mode = 0
        if self.own_source and source_fd < 0:
            # A volume: the rootfs mounted on itself. What is missing is made to be used.
            mode = 0o755
        try:
            with resolve(
                self.mounter.root_fd, self.mount.target, create=self.wanted(source_fd), mode=mode
            ) as place:
                if mode:
                    source_fd = self.open_own_source()
                self.attach(source_fd, place)
        finally:
            if source_fd >= 0:
                os.close(source_fd)

    def warn_of_unknown_options(self) -> None:
        """Name what is no option at all: the kernel takes it as silently as a misspelt `ro`."""
        for option in self.data.split(","):
            # Other readers of fstab own these; mount(8) ignores them as well.
            if option and not option.startswith(("x-", "X-", "comment=", "_netdev")):
                log.warn(
                    f"Unknown mount option {option} does nothing: "
                    f"{self.mount.source} at {self.mount.target}"
                )

    def open_source(self) -> int:
        """Open what is bound or moved; -1 where the source is a name, or missing in the rootfs."""
        if not self.flags & (MS_BIND | MS_MOVE) or self.flags & MS_REMOUNT:
            return -1
        source = self.mount.source
        rootfs = self.mounter.rootfs
        if source == rootfs or source.startswith(rootfs + "/"):
            self.own_source = source[len(rootfs) :] or "/"
            try:
                return self.open_own_source()
            except KernelError as error:
                if error.errno != errno.ENOENT:
                    raise
                return -1
        try:
            try:
                # Only a lookup of a directory lets the automounter mount what it stands for.
                return os.open(source, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            except NotADirectoryError:
                return os.open(source, os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            raise KernelError("open", error.errno or 0, source) from error

    def open_own_source(self) -> int:
        """Open a source in the rootfs: a volume of the image, whose links must not lead outside."""
        with resolve(self.mounter.root_fd, self.own_source) as place:
            return os.dup(place.fd)

    def wanted(self, source_fd: int) -> str:
        """Say what to create at a missing target."""
        if "x-create=file" in self.options:
            return "file"
        if "x-create=dir" in self.options:
            return "dir"
        if "x-create=auto" in self.options:
            bound = source_fd >= 0 and self.flags & MS_BIND
            return "file" if bound and not S_ISDIR(os.fstat(source_fd).st_mode) else "dir"
        return ""

    def attach(self, source_fd: int, place: Place) -> None:
        if "x-detach" in self.options:
            self.kernel.umount(place.path, MNT_DETACH)
        elif self.mount.fstype != "none" or self.flags & ~(MS_PROPAGATION | MS_REC | MS_SILENT):
            self.attach_file_system(source_fd, place)
        for flag, recursive in _PROPAGATIONS:
            if self.flags & flag:
                flags = flag | self.flags & MS_SILENT
                flags |= MS_REC if recursive in self.options else 0
                self.kernel.mount("", place.path, "", flags)

    def attach_file_system(self, source_fd: int, place: Place) -> None:
        if self.mount.fstype == SQUASHFS:
            from enroot_py.enter.data_images import is_served, mount_data

            if is_served(self.mount):
                mount_data(self.mounter.data_images, self.kernel, self.mount, place)
                return
        flags = self.flags & ~MS_PROPAGATION
        if "rbind" not in self.options:
            flags &= ~MS_REC  # it came from an option such as rslave
        if flags & MS_REMOUNT:
            flags |= self.mounter.existing_flags(place.fd)
        elif flags & MS_BIND:
            flags |= self.mounter.existing_flags(source_fd)
        source = f"/proc/self/fd/{source_fd}" if source_fd >= 0 else self.mount.source
        fstype = "" if self.mount.fstype == "none" else self.mount.fstype
        self.kernel.mount(source, place.path, fstype, flags, self.data)
        if flags & MS_REMOUNT:
            return
        place.reopen()
        if flags & MS_BIND and (flags & ~(MS_BIND | MS_REC) or self.data):
            # A bind mount ignores every flag but MS_REC: the others need a second, remounting call.
            self.kernel.mount("", place.path, "", flags | MS_REMOUNT, self.data)
