"""Data in squashfs files, mounted into a container: `--mount data.sqsh:/data:squashfs`.

An ordinary user's kernel mounts no such file, and what serves it by FUSE has to stay outside of the
container (`image`). Therefore the files have to be known before the namespaces are entered: from
`--mount` and from the fstab files of the system and the user. An entry that turns up later, of an
image, a hook or a script, is refused (docs/adr/0074-data-in-squashfs-files.md).
"""

from __future__ import annotations

import os
from stat import S_ISBLK

from enroot_py.enter.image import PROGRAM, ImageServer, find_server
from enroot_py.errors import EnrootError, UnsupportedError
from enroot_py.linux.kernel import MNT_DETACH, Kernel
from enroot_py.linux.path import Place
from enroot_py.plan.fstab import SQUASHFS, Mount
from enroot_py.plan.mount_options import MS_BIND, MS_MOVE, MS_REMOUNT, mount_flags
from enroot_py.squashfs.superblock import read_superblock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_IGNORED = ("loop",)
"""Options that fstab lines of such files have elsewhere, and that need nothing done here."""


def is_served(mount: Mount) -> bool:
    """Say whether an entry mounts what is in a squashfs file; block devices are the kernel's."""
    flags, _ = mount_flags(mount.options)
    if mount.fstype != SQUASHFS or flags & (MS_BIND | MS_MOVE | MS_REMOUNT):
        return False
    try:
        return "x-detach" not in mount.options and not S_ISBLK(os.stat(mount.source).st_mode)
    except OSError:
        return True


class DataImages:
    """The servers of one container's squashfs files, each for one entry."""

    def __init__(self, environment: Mapping[str, str], *, uid: int, gid: int) -> None:
        """Note for whom files are served.

        Args:
            environment: the host's variables, for the servers.
            uid, gid: who owns the files, in the terms of the container.
        """
        self._environment = environment
        self._uid, self._gid = uid, gid
        self._servers: dict[str, list[ImageServer]] = {}
        self._faults: dict[str, EnrootError] = {}

    def prepare(self, mounts: Iterable[Mount]) -> None:
        """Fork a server for each entry that needs one, while this process is on the host.

        Raises:
            NotFoundError: if a file is not there.
            SquashfsError: if it is no squashfs file.
            UnsupportedError: if nothing can serve it. With `nofail` all of these wait until the
                entry's turn comes.
        """
        for mount in mounts:
            if is_served(mount):
                try:
                    server = self._open(mount.source)
                except EnrootError as error:
                    if "nofail" not in mount.options:
                        raise
                    self._faults[mount.source] = error
                    continue
                self._servers.setdefault(mount.source, []).insert(0, server)

    def _open(self, source: str) -> ImageServer:
        read_superblock(source)
        program = find_server(self._environment)
        if not program:
            raise UnsupportedError(
                f"Cannot mount {source}: {PROGRAM} or /dev/fuse is missing",
                hint=f"install {PROGRAM}, or unpack the file and mount the folder",
            )
        path = os.path.abspath(source)
        server = ImageServer(program, path, self._environment, uid=self._uid, gid=self._gid)
        server.reap()
        return server

    def take(self, mount: Mount) -> ImageServer:
        """Return the server of an entry.

        Raises:
            EnrootError: if there is none; says why.
        """
        servers = self._servers.get(mount.source)
        if servers:
            return servers.pop()
        if mount.source in self._faults:
            raise self._faults[mount.source]
        raise _too_late(mount)


def mount_data(images: DataImages | None, kernel: Kernel, mount: Mount, place: Place) -> None:
    """Mount what is in the squashfs file of an entry, read-only, and wait until it can be read.

    Raises:
        UnsupportedError: if it cannot be served, or the entry was not known in time.
        KernelError: if the kernel refuses.
    """
    flags, data = mount_flags(mount.options)
    unknown = [word for word in data.split(",") if word and word not in _IGNORED]
    if unknown or "rw" in mount.options:
        raise UnsupportedError(
            f"Cannot mount {mount.source} with the option {(*unknown, 'rw')[0]}",
            hint="squashfs files are read-only and take no options of their own",
        )
    if images is None:
        raise _too_late(mount)
    server = images.take(mount)
    server.attach(kernel, place.path, flags)
    place.reopen()
    try:
        server.wait_until_ready(place.path)
    except UnsupportedError:
        kernel.umount(place.path, MNT_DETACH)
        raise


def _too_late(mount: Mount) -> UnsupportedError:
    return UnsupportedError(
        f"Cannot mount {mount.source} at {mount.target}: a squashfs file cannot be mounted by an"
        " image, a hook or a script",
        hint="name it with --mount, or in an fstab file of mounts.d",
    )
