"""Extractions: images unpacked once, as read-only lower layers where squashfuse is missing.

Each is a folder in the cache, named after the identity of the image file, and used by any number of
containers at a time. Not for containers of `create`, which are their user's to change.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from enroot_py.errors import ExistsError
from enroot_py.store.cache_folders import SETTING, CacheFolders
from enroot_py.store.locks import FileLock, is_current, try_lock, wait_for_lock
from enroot_py.store.removal import remove_tree
from enroot_py.store.workspace import new_folder


def extraction_path(folders: CacheFolders, image: os.stat_result) -> str:
    """Return where the extraction of an image is, or would be; an image that changes has another.

    Args:
        image: the image file's status.
    """
    identity = (image.st_dev, image.st_ino, image.st_size, image.st_mtime_ns)
    return os.path.join(folders.extracted, "-".join(f"{number:x}" for number in identity))


@contextmanager
def hold_extraction(
    folders: CacheFolders, image: os.stat_result, extract: Callable[[str], None]
) -> Iterator[str]:
    """Yield the path of an image's extraction, making it first if need be.

    It is not removed while the `with` block lasts, nor as long as a mount shows it.

    Args:
        image: the image file's status.
        extract: unpacks the image into an empty folder whose path it is given.

    Raises:
        SpaceError, StoreError: if it cannot be made.
    """
    path = extraction_path(folders, image)
    while True:
        fd = _open_held(path)
        if fd >= 0:
            break
        _make(path, extract)
    try:
        yield path
    finally:
        os.close(fd)


def _open_held(path: str) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1
    wait_for_lock(fd, path, deadline=float("inf"), exclusive=False)
    if is_current(fd, path):
        os.utime(fd)  # its use, for trimming
        return fd
    os.close(fd)
    return -1


def _make(path: str, extract: Callable[[str], None]) -> None:
    with FileLock(path + ".lock"):
        try:
            with new_folder(path, stage="unpacking an image", setting=SETTING) as new:
                extract(new.unfinished)
                os.chmod(new.unfinished, 0o755)  # an overlay's lower layer must be readable
        except ExistsError:
            return  # another process was faster


def remove_extraction(path: str) -> bool:
    """Remove an extraction unless it is in use; say whether it is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        if not try_lock(fd, path) or not is_current(fd, path) or _is_mounted(path):
            return False
        remove_tree(path)
    finally:
        os.close(fd)
    return True


def _is_mounted(path: str) -> bool:
    """Say whether a process of this user has an overlay that shows the folder.

    Source: proc(5), /proc/pid/mountinfo; white space and backslashes are escaped in it.
    """
    escaped = path.replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")
    needle = os.fsencode(escaped.replace("\n", "\\012"))
    seen: set[str] = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            namespace = os.readlink(f"/proc/{pid}/ns/mnt")
            if namespace in seen:
                continue
            with open(f"/proc/{pid}/mountinfo", "rb") as file:
                if needle in file.read():
                    return True
            seen.add(namespace)
        except OSError:
            continue  # another user's, or gone
    return False
