"""Finished images in the cache: one squashfs file for each image and way of writing it.

A file's name says all that its bytes depend on, so that equal names mean equal bytes. Images are
one user's own, also in a shared cache: their names are no digests that another user could verify.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from enroot_py.image.digest import Digest
from enroot_py.store.cache_folders import SETTING, CacheFolders
from enroot_py.store.locks import FileLock, is_current, try_lock
from enroot_py.store.workspace import NewFile, new_file

FORMAT_VERSION = 1
"""Counts the changes of this package that change the bytes of an image."""

SUFFIX = ".sqsh"

_FICLONE = 0x40049409
_CHUNK = 1 << 20
_NO_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class ImageKey:
    """Everything that the bytes of a finished image depend on.

    Attributes:
        manifest: digest of the image's manifest (that of the platform, not of an index).
        architecture: as asked for, in the image specification's words.
        squash_options: the options of the writer that change bytes, times among them.
        provenance: the line that is written into the image.
    """

    manifest: Digest
    architecture: str
    squash_options: str
    provenance: str

    @property
    def file_name(self) -> str:
        """The name of the image's file: readable as far as a name can be."""
        rest = (self.squash_options, self.provenance, str(FORMAT_VERSION))
        mark = hashlib.sha256("\0".join(rest).encode()).hexdigest()[:16]
        return f"{self.manifest.hex}-{self.architecture}-{mark}{SUFFIX}"


class ImageStore:
    """The finished images of one cache."""

    def __init__(self, folders: CacheFolders) -> None:
        self._folder = folders.images

    def path(self, key: ImageKey) -> str:
        """Return where the image is, or would be."""
        return os.path.join(self._folder, key.file_name)

    def open(self, key: ImageKey) -> BinaryIO | None:
        """Open a finished image; None if there is none.

        While it is open it will not be trimmed.
        """
        path = self.path(key)
        try:
            file = open(os.open(path, _READ), "rb", buffering=0)
        except OSError:
            return None
        status = os.fstat(file.fileno())
        usable = (
            stat.S_ISREG(status.st_mode)
            and status.st_uid == os.geteuid()
            and not status.st_mode & 0o022
            and status.st_size > 0
            and try_lock(file.fileno(), path, exclusive=False)
            and is_current(file.fileno(), path)
        )
        if not usable:
            file.close()
            return None
        os.utime(file.fileno(), (time.time(), status.st_mtime))
        return file

    def lock(self, key: ImageKey) -> FileLock:
        """Return the lock to be held while an image is made, so that one process makes it."""
        return FileLock(self.path(key) + ".lock")

    @contextmanager
    def create(self, key: ImageKey) -> Iterator[NewFile]:
        """Make the file of a finished image; as `workspace.new_file`."""
        with new_file(
            self.path(key),
            force=True,
            mode=0o600,
            stage="storing a finished image",
            setting=SETTING,
        ) as new:
            yield new


def copy_file(source: BinaryIO, target: BinaryIO) -> None:
    """Make `target`, an empty file, the same as `source`: sharing blocks where that is possible.

    Never a hard link: what a user does to his image must not change the cache's.
    """
    if not share_blocks(source, target):
        copy_range(source, target, 0, None)


def share_blocks(source: BinaryIO, target: BinaryIO) -> bool:
    """Let `target` share all blocks of `source`; False where the file system cannot do that.

    Source: ioctl_ficlone(2).
    """
    try:
        fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        return False
    return True


def copy_range(source: BinaryIO, target: BinaryIO, start: int, end: int | None) -> None:
    """Copy the bytes from `start` to `end`, or to the end of the file, to the same place.

    Source: copy_file_range(2).
    """
    size = os.fstat(source.fileno()).st_size if end is None else end
    done = start
    while done < size:
        try:
            copied = os.copy_file_range(source.fileno(), target.fileno(), size - done, done, done)
        except OSError as error:
            if error.errno not in _NO_COPY:
                raise
            break
        if copied == 0:
            break  # some file systems answer so where they cannot do it
        done += copied
    while end is None or done < end:
        wanted = _CHUNK if end is None else min(_CHUNK, end - done)
        chunk = os.pread(source.fileno(), wanted, done)
        if not chunk:
            return
        view = memoryview(chunk)
        while view:
            written = os.pwrite(target.fileno(), view, done)
            view, done = view[written:], done + written
