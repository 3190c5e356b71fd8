"""What a start reads from the host before it enters namespaces: rootfs, image, scripts."""

from __future__ import annotations

import os
import stat

from enroot_py.enter.image import ImageServer, find_server
from enroot_py.errors import EnrootError, NotFoundError, StoreError, UsageError
from enroot_py.linux.path import read_file
from enroot_py.log import warn
from enroot_py.plan.fstab import SQUASHFS, parse_fstab
from enroot_py.plan.start import RootfsSource, StartPlan
from enroot_py.squashfs.superblock import is_squashfs, read_superblock
from enroot_py.store.containers import find_container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from enroot_py.enter.data_images import DataImages
    from enroot_py.settings import Settings

_LARGEST_SCRIPT = 16 << 20


def find_rootfs(target: str, settings: Settings) -> RootfsSource:
    """Find what a start is asked for: an image file, or else a container of that name.

    Raises:
        NotFoundError: if there is neither.
        SquashfsError: if a path leads to a file that is no image, or nothing else has that name.
        UsageError: if a path leads to a folder.
        StoreError: for a container that somebody else may have put there.

    Source: enroot 4.1.2 src/runtime.sh, runtime::start().
    """
    if not target:
        raise UsageError("Nothing to start", hint="name a container or an image")
    if os.path.isfile(target) and is_squashfs(target):
        return RootfsSource(os.path.realpath(target), is_image=True)
    if "/" in target:
        if os.path.isdir(target):
            raise UsageError(
                f"Not an image: {target} is a folder",
                hint="containers are named without their path; `enroot list` shows them",
            )
        read_superblock(target)
    try:
        path = find_container(settings, target)
    except EnrootError:
        if os.path.isfile(target):
            read_superblock(target)  # says what is wrong with this image
        raise
    status = os.stat(path)
    if status.st_uid not in (os.geteuid(), 0):
        _check_folder(os.path.dirname(path), path, status.st_uid)
    read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    return RootfsSource(path, borrowed=read_only and status.st_uid == os.geteuid())


def _check_folder(folder: str, path: str, owner: int) -> None:
    """Refuse a container that any user of this machine could have put there."""
    if os.stat(folder).st_mode & stat.S_IWOTH:
        raise StoreError(
            f"The container {path} belongs to user {owner}, and everybody can write to {folder}",
            hint="set ENROOT_DATA_PATH to a folder that only you can write to",
        )


def prepare_image(plan: StartPlan) -> tuple[ImageServer | None, Callable[[], str]]:
    """Prepare the image of a plan that has one, while this process is still on the host.

    Returns:
        The process that will serve it, or None where nothing can; and a function that returns a
        folder with the image's files, unpacked at most once per image and kept while this process
        lasts.
    """
    held: list[tuple[AbstractContextManager[str], str]] = []

    def unpack() -> str:
        from enroot_py.operations.extraction import hold_image_files

        if not held:
            hold = hold_image_files(plan.rootfs.path, plan.settings)
            held.append((hold, hold.__enter__()))
        return held[0][1]

    if not plan.rootfs.is_image:
        return None, unpack
    if not plan.settings.native_overlayfs:
        warn(
            "ENROOT_NATIVE_OVERLAYFS is off, but the kernel's overlayfs is used all the same:"
            " fuse-overlayfs is not supported"
        )
    environment = plan.settings.environment
    program = find_server(environment)
    if not program:
        unpack()
        return None, unpack
    inside = plan.namespaces
    server = ImageServer(program, plan.rootfs.path, environment, uid=inside.uid, gid=inside.gid)
    if inside.pid:
        server.reap()
    return server, unpack


def prepare_data_images(plan: StartPlan, fstabs: Iterable[tuple[str, str]]) -> DataImages | None:
    """Fork a server for each squashfs file that `--mount` or the host's fstab files name.

    Args:
        plan: says what `--mount` asked for.
        fstabs: (name, text) of the host's fstab files.

    Raises:
        As `DataImages.prepare`, and InvalidMountError for an entry that cannot be understood.
    """
    texts = [entry for entry in fstabs if SQUASHFS in entry[1]]
    if not texts and not any(mount.fstype == SQUASHFS for mount in plan.mounts):
        return None
    from enroot_py.enter.data_images import DataImages

    inside = plan.namespaces
    environment = plan.settings.environment
    images = DataImages(environment, uid=inside.uid, gid=inside.gid)
    for origin, text in texts:
        images.prepare(parse_fstab(text, environment, origin))
    images.prepare(plan.mounts)
    return images


def read_directives(conf: str) -> tuple[tuple[str, str], ...]:
    """Return the settings that a configuration script brings along; none for no script."""
    if not conf:
        return ()
    from enroot_py.operations import batch

    return tuple(batch.read_directives(conf))


def read_rc(path: str) -> bytes | None:
    """Read the command script given by `--rc`, a file or a pipe; None for none.

    Raises:
        NotFoundError: if there is no such file.
        UsageError: if it cannot be read.
    """
    if not path:
        return None
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode):
            with open(path, "rb") as file:  # waits for the writer
                return file.read(_LARGEST_SCRIPT)
        return read_file(path, limit=_LARGEST_SCRIPT)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(f"No such file: {path}") from error
    except OSError as error:
        raise UsageError(f"Cannot read the command script {path}: {error.strerror}") from error
