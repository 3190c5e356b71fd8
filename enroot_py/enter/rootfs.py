"""Mount a container's root filesystem: a folder, or an image under a layer of its own.

Source: enroot 4.1.2 src/runtime.sh, runtime::_mount_rootfs() and runtime::_start().
"""

from __future__ import annotations

import errno
import os
import stat

from enroot_py import log
from enroot_py.enter.mounts import Mounter
from enroot_py.errors import EnrootError, KernelError, StoreError, UnsupportedError
from enroot_py.linux.kernel import MNT_DETACH, Kernel
from enroot_py.linux.path import resolve
from enroot_py.plan.command import DEFAULT_SHELL
from enroot_py.plan.fstab import Mount
from enroot_py.plan.mount_options import MS_BIND, MS_NODEV, MS_NOSUID, MS_RDONLY, MS_REC, MS_REMOUNT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from enroot_py.enter.image import ImageServer
    from enroot_py.plan.start import StartPlan

LOCK = "/.lock"
BUNDLE = "/.enroot"
_SAFE = MS_NOSUID | MS_NODEV


def make_workdir(path: str, euid: int) -> None:
    """Make the runtime folder; everything in it will be hidden by the container's own tmpfs.

    Raises:
        StoreError: if it cannot be made, or belongs to somebody else.
    """
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        status = os.lstat(path)
    except OSError as error:
        raise StoreError(
            f"Cannot make the runtime folder {path}: {error.strerror}",
            hint="ENROOT_RUNTIME_PATH or XDG_RUNTIME_DIR names another one",
        ) from error
    if status.st_uid not in (euid, 0):
        raise StoreError(
            f"The runtime folder {path} belongs to user {status.st_uid}",
            hint="ENROOT_RUNTIME_PATH or XDG_RUNTIME_DIR names another one",
        )


class RootfsMount:
    """A rootfs being mounted, in two steps: an image's server starts with the first one, and takes
    a few milliseconds in which there is something better to do than to wait.
    """

    def __init__(
        self,
        kernel: Kernel,
        plan: StartPlan,
        *,
        server: ImageServer | None,
        unpack: Callable[[], str],
    ) -> None:
        """Prepare to mount what a plan says.

        Args:
            kernel: the way to system calls.
            plan: says what and where.
            server: serves the image, where that is how it is mounted.
            unpack: returns a folder with the image's files, for where nothing serves it.
        """
        self._kernel = kernel
        self._plan = plan
        self._server = server
        self._unpack = unpack
        self._lower = plan.rootfs.path
        self._lower_fd = -1

    def begin(self) -> None:
        """Mount the working folder's tmpfs and, in it, the image by its server."""
        source = self._plan.rootfs
        if source.is_image and self._server is None:
            self._lower = self._unpack()
        if source.borrowed or (source.is_image and self._server is None):
            self._lower_fd = _open_folder(self._lower)  # before the tmpfs may hide it
        self._kernel.mount("tmpfs", self._plan.workdir, "tmpfs", _SAFE, "mode=700")
        if not source.is_image and not source.borrowed:
            return
        stack = self._plan.mounted_rootfs
        for folder in (stack, f"{stack}/lower", f"{stack}/upper", f"{stack}/work"):
            os.mkdir(folder, 0o700)
        if self._server is not None:
            try:
                self._server.attach(self._kernel, f"{stack}/lower")
            except KernelError as error:
                self._give_up(error)

    def finish(self) -> Mounter:
        """Mount the rootfs; return it for mounts beneath it, to be closed by the caller."""
        kernel, plan = self._kernel, self._plan
        if not plan.rootfs.is_image and not plan.rootfs.borrowed:
            return _mount_folder(kernel, plan.rootfs.path, locked=plan.namespaces.user)
        stack = plan.mounted_rootfs
        if self._server is not None:
            try:
                self._server.wait_until_ready()
            except UnsupportedError as error:
                kernel.umount(f"{stack}/lower", MNT_DETACH)
                self._give_up(error)
        if self._server is None:
            source = f"/proc/self/fd/{self._lower_fd}"
            kernel.mount(source, f"{stack}/lower", "", MS_BIND | MS_REC)
            os.close(self._lower_fd)
        _mount_overlay(kernel, stack, self._lower, userxattr=plan.namespaces.user)
        mounter = Mounter(kernel, stack, locked=plan.namespaces.user)
        if self._server is not None:
            from enroot_py.enter.read_ahead import read_ahead

            read_ahead(mounter.root_fd, DEFAULT_SHELL)
        return mounter

    def _give_up(self, error: EnrootError) -> None:
        """Go on without the server."""
        log.warn(f"{error}; unpacking the image instead")
        self._server = None
        self._lower = self._unpack()
        self._lower_fd = _open_folder(self._lower)


def _open_folder(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _mount_folder(kernel: Kernel, path: str, *, locked: bool) -> Mounter:
    kernel.mount(path, path, "", MS_BIND)
    mounter = Mounter(kernel, path, locked=locked)
    flags = MS_BIND | MS_REMOUNT | _SAFE | mounter.existing_flags(mounter.root_fd)
    kernel.mount("", path, "", flags)
    return mounter


def _mount_overlay(kernel: Kernel, stack: str, name: str, *, userxattr: bool) -> None:
    """Mount lower and upper of the folder `stack` on it.

    The mount's source is `name`, the lower layer's path: by it the cache knows what is in use. The
    layers' names are relative: colons and commas in a path mean something to overlayfs.
    """
    mode = stat.S_IMODE(os.stat(os.path.join(stack, "lower")).st_mode)
    os.chmod(os.path.join(stack, "upper"), mode | 0o700)
    options = "lowerdir=lower,upperdir=upper,workdir=work,xino=off"
    if userxattr:
        options += ",userxattr"
    back = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir(stack)
        kernel.mount(name, stack, "overlay", _SAFE, options)
    except KernelError as error:
        if error.errno in (errno.EPERM, errno.EINVAL, errno.ENODEV):
            raise UnsupportedError(
                f"Cannot stack a writable layer on the image: {error}",
                hint="an ordinary user needs Linux 5.11 for it; `enroot create` unpacks the image,"
                " and the container then starts everywhere",
            ) from error
        raise
    finally:
        os.fchdir(back)
        os.close(back)


def seal_rootfs(mounter: Mounter, *, writable: bool) -> None:
    """Make the rootfs read-only unless it is to stay writable; the lock and a bundle always.

    Source: enroot 4.1.2 src/runtime.sh, runtime::_start().
    """
    if not writable:
        flags = MS_BIND | MS_REMOUNT | MS_RDONLY | _SAFE
        flags |= mounter.existing_flags(mounter.root_fd)
        mounter.kernel.mount("", f"/proc/self/fd/{mounter.root_fd}", "", flags)
        return
    for path, options in (
        (BUNDLE, "rbind,nosuid,nodev,ro,private"),
        (LOCK, "bind,nosuid,nodev,noexec,ro,private"),
    ):
        if _is_there(mounter, path):
            entry = Mount(mounter.rootfs + path, path, options=tuple(options.split(",")))
            mounter.apply((entry,))


def _is_there(mounter: Mounter, path: str) -> bool:
    try:
        with resolve(mounter.root_fd, path):
            return True
    except KernelError:
        return False
