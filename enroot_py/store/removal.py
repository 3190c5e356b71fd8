"""Take things away: trees of any mode, containers that nobody uses, what killed processes left.

Never follows a link and never crosses into another file system. Not for the caches' trimming, which
is in `trimming`.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable

from enroot_py.errors import BusyError, NotFoundError, StoreError, UnsupportedError
from enroot_py.store.containers import RootfsLock, find_processes
from enroot_py.store.file_system import NETWORK_KINDS, find_file_system
from enroot_py.store.locks import FileLock, is_current, try_lock

UNFINISHED = ".enroot."
"""What the names of unfinished and of doomed files and folders begin with."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FRESH = 24 * 3600.0  # seconds
_DENIED = (errno.EACCES, errno.EPERM)


def unfinished_path(folder: str) -> str:
    """Return a new hidden name in `folder` for something unfinished; makes nothing."""
    return os.path.join(folder, UNFINISHED + os.urandom(8).hex())


def remove_tree(path: str) -> None:
    """Remove a folder and everything in it, whatever the modes of this user's folders are.

    Every subfolder is first moved up into the folder itself, so that no path is ever long and no
    recursion deep, and a bind mount, which cannot be moved, is met before anything in it is.

    Raises:
        StoreError: naming a mount point that is in the way.
        PermissionError: if a folder belongs to another user.
        OSError: for anything else that the kernel refuses.
    """
    folder_fd = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        name = os.path.basename(path)
        fd = _open_writable(folder_fd, name)
        try:
            _empty(fd, path)
        finally:
            os.close(fd)
        os.rmdir(name, dir_fd=folder_fd)
    finally:
        os.close(folder_fd)


def _empty(root_fd: int, path: str) -> None:
    device = os.fstat(root_fd).st_dev
    token = f".{os.urandom(8).hex()}."
    moved = 0
    pending = _remove_files(root_fd)
    while pending:
        name = pending.pop()
        fd = _open_writable(root_fd, name)
        try:
            if os.fstat(fd).st_dev != device:
                raise _mount_point(path, name)
            for child in _remove_files(fd):
                upper = f"{token}{moved}"
                moved += 1
                _move_up(fd, child, root_fd, upper, path)
                pending.append(upper)
        finally:
            os.close(fd)
        os.rmdir(name, dir_fd=root_fd)


def _remove_files(fd: int) -> list[str]:
    """Remove everything but folders; return the names of those."""
    folders = []
    with os.scandir(fd) as entries:
        # All names first: what a directory stream yields while its directory changes is undefined.
        listed = list(entries)
    for entry in listed:
        if entry.is_dir(follow_symlinks=False):
            folders.append(entry.name)
        else:
            os.unlink(entry.name, dir_fd=fd)
    return folders


def _move_up(fd: int, name: str, root_fd: int, upper: str, path: str) -> None:
    try:
        os.rename(name, upper, src_dir_fd=fd, dst_dir_fd=root_fd)
        return
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.EXDEV):
            raise _mount_point(path, name) from error
        if error.errno not in _DENIED:
            raise
    # Moving a folder changes its "..", for which it must be writable itself.
    os.close(_open_writable(fd, name))
    os.rename(name, upper, src_dir_fd=fd, dst_dir_fd=root_fd)


def _mount_point(path: str, name: str) -> StoreError:
    return StoreError(
        f"Cannot remove {path}: a file system is mounted on {name} in it",
        hint="unmount it first; findmnt shows what is mounted",
    )


def _open_writable(folder_fd: int, name: str) -> int:
    """Open a folder, giving its owner every right first if he lacks one."""
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder_fd)
    try:
        status = os.fstat(handle)
        if stat.S_IMODE(status.st_mode) & stat.S_IRWXU != stat.S_IRWXU and os.geteuid():
            # Neither fchmod nor open accepts this handle, but the link in /proc leads to its inode.
            os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(status.st_mode) | stat.S_IRWXU)
        return os.open(".", _DIRECTORY, dir_fd=handle)
    finally:
        os.close(handle)


def remove_container(
    path: str,
    *,
    patience: float = 2.0,
    as_mapped: Callable[[Callable[[], None]], None] | None = None,
) -> None:
    """Remove a container that nobody uses; its name is free at once.

    A link among the containers is removed, what it points to is not.

    Args:
        path: its rootfs as `containers.container_path` gives it.
        patience: seconds to wait for processes that are on their way out.
        as_mapped: runs a function as root of a user namespace that this user's subordinate ids are
            mapped into, for files that belong to one of those; None if there is no such thing.

    Raises:
        NotFoundError: if there is no such container.
        BusyError: if processes run in it, or one is being started.
        StoreError: if something in it cannot be removed.
    """
    try:
        status = os.lstat(path)
    except OSError as error:
        raise NotFoundError(f"No such container: {path}") from error
    if stat.S_ISLNK(status.st_mode):
        os.unlink(path)
        return
    if not stat.S_ISDIR(status.st_mode):
        raise NotFoundError(f"Not a container: {path}", hint="it is not a folder")
    foreign = status.st_uid != os.geteuid() and os.geteuid() != 0
    doomed = unfinished_path(os.path.dirname(path))
    with FileLock(doomed + ".lock"):
        try:
            with _ExclusiveUse(path, patience):
                os.rename(path, doomed)
        except PermissionError as error:
            raise StoreError(f"Cannot remove {path}: {error.strerror}") from error
        try:
            _remove_doomed(doomed, as_mapped)
        except OSError as error:
            where = doomed
            if foreign:
                # Nothing in it could be touched: it is whole, and its owner looks for its name.
                os.rename(doomed, path)
                where = path
            raise StoreError(
                f"Cannot remove all of {path}: {error.strerror}: {error.filename}",
                hint=f"what is left lies in {where}; only its owner or root can remove it",
            ) from error


def _remove_doomed(path: str, as_mapped: Callable[[Callable[[], None]], None] | None) -> None:
    try:
        remove_tree(path)
    except PermissionError as error:
        if as_mapped is None:
            raise
        try:
            as_mapped(lambda: remove_tree(path))
        except UnsupportedError:
            raise error from None


class _ExclusiveUse:
    """Held while a container is taken away from its name: no start can begin, none is running."""

    def __init__(self, path: str, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._lock = RootfsLock(path, timeout=patience)

    def __enter__(self) -> None:
        try:
            self._lock.__enter__()
        except StoreError:
            # A rootfs whose lock file is a folder, a link or on a full disk: it can't be started
            # either, and must be removable.
            pass
        deadline = time.monotonic() + self._patience
        try:
            while pids := find_processes([self._path]).get(self._path):
                if time.monotonic() >= deadline:
                    shown = " ".join(map(str, pids[:8])) + (" …" if len(pids) > 8 else "")
                    raise BusyError(
                        f"{self._path} is in use by process {shown}",
                        hint="end these processes first; `enroot list -f` shows them",
                    )
                time.sleep(0.05)
        except BaseException:
            self._lock.close()
            raise

    def __exit__(self, *failure: object) -> None:
        self._lock.close()


def remove_unfinished(folder: str) -> None:
    """Remove what killed processes left unfinished in `folder`, but nothing still in the making.

    Locks tell. On a network file system they may be each machine's own (Lustre's localflock, NFS's
    local_lock), or none: there, what is younger than a day stays. Never fails: what cannot be
    removed is in nobody's way.
    """
    newest = float("inf")
    try:
        names = [name for name in os.listdir(folder) if name.startswith(UNFINISHED)]
        if names and find_file_system(folder).kind in NETWORK_KINDS:
            newest = time.time() - _FRESH
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        try:
            if os.lstat(path).st_mtime <= newest:
                _remove_leftover(path)
        except (OSError, StoreError):
            # Another user's, or another process is removing it at this very moment.
            continue


def _remove_leftover(path: str) -> None:
    status = os.lstat(path)
    if stat.S_ISDIR(status.st_mode):
        lock = FileLock(path + ".lock")
        if lock.try_acquire():
            try:
                remove_tree(path)
            finally:
                lock.release()
    elif path.endswith(".lock"):
        # Its folder takes it along; without a folder it is a lock that nobody would release.
        lock = FileLock(path)
        if not os.path.lexists(path.removesuffix(".lock")) and lock.try_acquire():
            lock.release()
    elif stat.S_ISREG(status.st_mode):
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if try_lock(fd, path) and is_current(fd, path):
                os.unlink(path)
        finally:
            os.close(fd)
