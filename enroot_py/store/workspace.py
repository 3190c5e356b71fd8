"""Files and folders that appear whole or not at all, and the folders of the store.

What is unfinished has no name at all where the file system can do that (O_TMPFILE), else a hidden
name, `.enroot.…`, under a lock: what a killed process leaves of it is removed by the next one that
works in the same folder (docs/adr/0015-unfinished-work.md).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from enroot_py.errors import ExistsError, NotFoundError
from enroot_py.store.file_system import explaining
from enroot_py.store.locks import FileLock, is_current, try_lock
from enroot_py.store.removal import remove_tree, remove_unfinished, unfinished_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, NamedTuple
else:
    from enroot_py.record import NamedTuple

_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.ENOENT)


class NewFile(NamedTuple):
    """A file in the making.

    Attributes:
        path: where it will appear: absolute, links resolved.
        file: open for reading and writing, at 0, unbuffered.
    """

    path: str
    file: BinaryIO


class NewFolder(NamedTuple):
    """A folder in the making.

    Attributes:
        path: where it will appear: absolute.
        unfinished: where it is being made; exists and is empty at first.
    """

    path: str
    unfinished: str


def check_absent(path: str) -> None:
    """Raise ExistsError if there is something at `path`, a dangling link included."""
    if os.path.lexists(path):
        raise ExistsError(
            f"File already exists: {path}",
            hint="choose another name, or replace it with --force",
        )


def _check_replaceable(path: str) -> None:
    # One look: beside us another process may make the same file.
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return  # not there, or not to be reached: what comes next says so
    if not stat.S_ISREG(mode):
        raise ExistsError(
            f"File already exists: {path}",
            hint="it is a folder: name a file in it"
            if stat.S_ISDIR(mode)
            else "only a regular file can be replaced: choose another name",
        )


@contextmanager
def new_file(
    path: str, *, force: bool = False, mode: int = 0o666, stage: str, setting: str
) -> Iterator[NewFile]:
    """Make a file that has its name only once it is complete.

    The name is given when the `with` block ends without an exception; otherwise nothing is left.

    Args:
        path: where it shall appear. Links are followed, so that the file lands where they point.
        force: replace an existing regular file; never a device, a pipe or a folder.
        mode: permission bits, before the umask.
        stage, setting: for messages, as in `file_system.space_error`.

    Raises:
        ExistsError: if the path is taken and `force` is off, or does not help: at once, or when
            the name is given.
        NotFoundError: if the folder is not there.
        SpaceError, StoreError: as `file_system.explaining`, for errors within the block too.
    """
    path = os.path.realpath(path)
    # Root could rename a file over /dev/null, and take it away from everybody.
    _check_replaceable(path)
    if not force:
        check_absent(path)
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise NotFoundError(f"No such folder: {folder}")
    with explaining(path, stage=stage, setting=setting):
        unnamed = _open_unnamed(folder, mode)
        if unnamed is not None:
            with unnamed as file:
                yield NewFile(path, file)
                _name_unnamed(file, path, force=force)
            return
        remove_unfinished(folder)
        with _named_file(folder, mode) as (temporary, file):
            yield NewFile(path, file)
            _rename_file(temporary, path, force=force)


def _open_unnamed(folder: str, mode: int) -> BinaryIO | None:
    try:
        fd = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in _NO_TMPFILE:
            return None
        raise
    return open(fd, "w+b", buffering=0)


def _name_unnamed(file: BinaryIO, path: str, *, force: bool) -> None:
    if not force:
        _link_unnamed(file.fileno(), path)
        return
    # There is no linkat(2) that replaces, so an interim name and a rename.
    interim = unfinished_path(os.path.dirname(path))
    _link_unnamed(file.fileno(), interim)
    try:
        os.replace(interim, path)
    except BaseException:
        os.unlink(interim)
        raise


def _link_unnamed(fd: int, path: str) -> None:
    """Give an O_TMPFILE file its name; fails if that is taken.

    Source: open(2), O_TMPFILE: linkat(2) of /proc/self/fd/N with AT_SYMLINK_FOLLOW. Python calls
    linkat, which can follow links, only if it is given a dir_fd.
    """
    folder_fd = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.link(f"/proc/self/fd/{fd}", os.path.basename(path), dst_dir_fd=folder_fd)
    except FileExistsError as error:
        raise ExistsError(f"File already exists: {path}") from error
    finally:
        os.close(folder_fd)


@contextmanager
def _named_file(folder: str, mode: int) -> Iterator[tuple[str, BinaryIO]]:
    while True:
        path = unfinished_path(folder)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(fd, "w+b", buffering=0) as file:
            # Between these two calls a cleaning process may have taken it for a leftover.
            if not try_lock(fd, path) or not is_current(fd, path):
                continue
            try:
                yield path, file
            finally:
                if is_current(fd, path):
                    os.unlink(path)
            return


def _rename_file(temporary: str, path: str, *, force: bool) -> None:
    if not force:
        try:
            os.link(temporary, path, follow_symlinks=False)
            return
        except FileExistsError as error:
            raise ExistsError(f"File already exists: {path}") from error
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        # A file system without hard links (vfat, some FUSE ones): between this look and the rename
        # another process may be faster, and then the last one wins with a file that is whole.
        check_absent(path)
    os.rename(temporary, path)


@contextmanager
def new_folder(path: str, *, force: bool = False, stage: str, setting: str) -> Iterator[NewFolder]:
    """Make a folder that has its name only once it is complete.

    Args:
        path: where it shall appear; the folder it is in must exist.
        force: one that is there does not matter at first; removing it before the block ends is the
            caller's affair.
        stage, setting: for messages, as in `file_system.space_error`.

    Raises:
        ExistsError: if the path is taken: at once, or when the name is given.
        SpaceError, StoreError: as `file_system.explaining`, for errors within the block too.
    """
    if not force:
        check_absent(path)
    folder = os.path.dirname(path)
    with explaining(path, stage=stage, setting=setting):
        remove_unfinished(folder)
        unfinished = unfinished_path(folder)
        with FileLock(unfinished + ".lock"):
            os.mkdir(unfinished, 0o700)
            try:
                yield NewFolder(path, unfinished)
                _rename_folder(unfinished, path)
            except BaseException:
                remove_tree(unfinished)
                raise


def _rename_folder(unfinished: str, path: str) -> None:
    # rename(2) would replace an empty folder; a rootfs never is one, so only this look is needed.
    check_absent(path)
    # A folder can be moved only by those who may write to it, whatever mode its image wants.
    mode = stat.S_IMODE(os.stat(unfinished).st_mode)
    if mode & stat.S_IWUSR == 0:
        os.chmod(unfinished, mode | stat.S_IWUSR)
    try:
        os.rename(unfinished, path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise ExistsError(f"File already exists: {path}") from error
        raise
