"""Carry a placement out in a mounted rootfs, inside the container's mount namespace.

Decides nothing. Whatever it mounts or makes lies in memory or vanishes with the mount namespace,
except what `Placement.writes` says about a writable rootfs.
"""

from __future__ import annotations

import os
import stat

from enroot_py.errors import DeviceError, KernelError
from enroot_py.gpu.injection import Bind, Link
from enroot_py.gpu.rootfs.attach import Attacher
from enroot_py.gpu.rootfs.dev_tree import add_nodes, rebuild_dev
from enroot_py.gpu.rootfs.placement import Placement, Written
from enroot_py.linux.kernel import Kernel
from enroot_py.linux.path import Place, resolve
from enroot_py.plan.mount_options import (
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REMOUNT,
    mount_flags,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_OWN = "own:"


class Executor:
    """Carries placements out in one rootfs; a context manager that owns descriptors.

    Attributes:
        notes: what was left out on the way, and why.
    """

    def __init__(
        self, kernel: Kernel, rootfs: str, workdir: str, attacher: Attacher | None = None
    ) -> None:
        """Open the rootfs.

        Args:
            rootfs: absolute host path of the mounted root filesystem.
            workdir: absolute host path of a folder in memory for mounts in the making.
        """
        self.kernel = kernel
        self.workdir = workdir
        self.attacher = attacher or Attacher(kernel)
        self.notes: list[str] = []
        self.own_fd = -1
        self.own_folders: set[str] = set()
        self.root_fd = os.open(rootfs, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *unused: object) -> None:
        os.close(self.root_fd)
        if self.own_fd >= 0:
            os.close(self.own_fd)

    @property
    def own(self) -> str:
        """A host path of our folder, once it is mounted."""
        return f"/proc/self/fd/{self.own_fd}"

    def carry_out(
        self, placement: Placement, extra: Callable[[Executor], None] | None = None
    ) -> None:
        """Do everything that the placement says.

        Args:
            extra: called while our folder can still be written.

        Raises:
            DeviceError: if something that is required cannot be put in place.
        """
        if placement.own_binds or placement.own_links or placement.own_files or extra:
            self._mount_own(placement.folder)
            for bind in placement.own_binds:
                self._bind_own(bind)
            for file in placement.own_files:
                self.write_own(file)
            for link in placement.own_links:
                self._link_own(link)
            if extra is not None:
                extra(self)
        for written in placement.writes:
            self._replace(written)
        dev = placement.dev
        if dev.rebuild:
            rebuild_dev(self.kernel, self.attacher, self.root_fd, self.workdir, dev)
        elif dev.nodes:
            self.notes += add_nodes(self.attacher, self.root_fd, dev.nodes)
        for bind in placement.binds:
            self.bind(bind)
        for link in placement.links:
            self._link(link)
        if self.own_fd >= 0:
            flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV
            self.kernel.mount("", self.own, "", flags)

    def _mount_own(self, folder: str) -> None:
        with resolve(self.root_fd, folder, create="dir") as place:
            self.kernel.mount("tmpfs", place.path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
            place.reopen()
            self.kernel.mount("", place.path, "", MS_PRIVATE)
            self.own_fd = os.dup(place.fd)

    def _own_path(self, name: str) -> str:
        """Return the host path of a file in our folder, its parents made."""
        folder = name.rpartition("/")[0]
        if folder and folder not in self.own_folders:
            os.makedirs(f"{self.own}/{folder}", 0o755, exist_ok=True)
            self.own_folders.add(folder)
        return f"{self.own}/{name}"

    def _bind_own(self, bind: Bind) -> None:
        path = self._own_path(bind.target)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o444))
        try:
            self.attacher.bind(bind.source, path, bind.options)
        except KernelError as error:
            self._failed(bind, error)

    def write_own(self, file: Written) -> None:
        """Write a file in our folder."""
        path = self._own_path(file.path)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, file.mode)
        with open(descriptor, "wb", buffering=0) as stream:
            stream.write(file.content)

    def _link_own(self, link: Link) -> None:
        path = self._own_path(link.path)
        if not os.path.lexists(path):
            os.symlink(link.target, path)

    def bind(self, bind: Bind) -> None:
        """Bind something in the rootfs, or mount a new file system there.

        Raises:
            DeviceError: if it is required and cannot be.
        """
        source = bind.source
        if source.startswith(_OWN):
            source = f"{self.own}/{source[len(_OWN) :]}"
        try:
            create = "dir" if bind.fstype or _is_folder(source) else "file"
            with resolve(self.root_fd, bind.target, create=create) as place:
                if bind.fstype:
                    self._mount_new(bind, place)
                else:
                    self.attacher.bind(source, place, bind.options)
        except (KernelError, OSError) as error:
            self._failed(bind, error)

    def _mount_new(self, bind: Bind, place: Place) -> None:
        flags, data = mount_flags(bind.options)
        self.kernel.mount(bind.source, place.path, bind.fstype, flags & ~MS_BIND, data)

    def _failed(self, bind: Bind, error: OSError) -> None:
        text = f"gpu: cannot put {bind.source} at {bind.target} in the container: {error.strerror}"
        if bind.required:
            raise DeviceError(text) from error
        self.notes.append(f"{text}; left out")

    def _replace(self, written: Written) -> None:
        """Replace a file of the rootfs, whole or not at all."""
        folder, _, name = written.path.rpartition("/")
        temporary = f".{name}.enroot-{os.getpid()}"
        try:
            with resolve(self.root_fd, folder or "/") as place:
                parent = os.open(place.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _write_new(parent, temporary, written)
                os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            finally:
                os.close(parent)
        except OSError as error:
            raise DeviceError(
                f"gpu: cannot write {written.path} in the container: {error.strerror}",
                hint="without --rw nothing of it is written",
            ) from error

    def _link(self, link: Link) -> None:
        folder, _, name = link.path.rpartition("/")
        try:
            with resolve(self.root_fd, folder or "/", create="dir") as place:
                if stat.S_IMODE(os.fstat(place.fd).st_mode) == 0:
                    os.chmod(place.path, 0o755)  # just made, as a mount point would be
                parent = os.open(place.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    os.symlink(link.target, name, dir_fd=parent)
                finally:
                    os.close(parent)
        except FileExistsError:
            pass
        except OSError as error:
            if link.required:
                raise DeviceError(f"gpu: cannot link {link.path}: {error.strerror}") from error
            self.notes.append(f"gpu: cannot link {link.path}: {error.strerror}; left out")


def _write_new(folder: int, name: str, written: Written) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(name, flags, written.mode, dir_fd=folder)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(written.content)
            os.fchmod(stream.fileno(), written.mode)
    except OSError:
        os.unlink(name, dir_fd=folder)
        raise


def _is_folder(path: str) -> bool:
    return stat.S_ISDIR(os.stat(path).st_mode)
