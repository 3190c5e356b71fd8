"""Locks between processes, as flock(2) on files: nothing is left locked by a killed process.

Not for a lock between threads: on NFS such a lock belongs to the whole process. On the start path,
hence light.
"""

from __future__ import annotations

import fcntl
import os
import time
from errno import EACCES, EAGAIN, EBADF, ENOLCK, ENOSYS, EOPNOTSUPP

from enroot_py.errors import BusyError
from enroot_py.log import warn_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_SHORTEST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.02


def try_lock(fd: int, path: str, *, exclusive: bool = True) -> bool:
    """Lock an open file without waiting; False if somebody else holds it.

    Where the file system knows no locks (Lustre without the flock option) a warning says so once,
    and the answer is True: files still appear by rename, so that only work may be done twice. NFS
    refuses an exclusive lock on what is open for reading only; such a file is somebody else's and
    nobody here writes to it.

    Args:
        fd: an open file.
        path: its path, for the warning.
        exclusive: as opposed to shared.
    """
    try:
        fcntl.flock(fd, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (EAGAIN, EACCES):
            return False
        if error.errno not in (ENOSYS, EOPNOTSUPP, ENOLCK, EBADF):
            raise
        if error.errno != EBADF:
            warn_once("flock", f"{path}: this file system has no locks; going on without")
    return True


def wait_for_lock(
    fd: int,
    path: str,
    *,
    deadline: float,
    exclusive: bool = True,
    cancelled: Callable[[], bool] | None = None,
) -> bool:
    """Lock an open file, waiting until `deadline`; False if it was not free by then.

    Polls, since flock(2) knows neither a time limit nor a way to call a waiting thread off.

    Args:
        deadline: a value of `time.monotonic()`, in seconds.
        cancelled: asked now and then; when it says True, waiting ends with False.
    """
    pause = _SHORTEST_PAUSE
    while not try_lock(fd, path, exclusive=exclusive):
        if time.monotonic() >= deadline or (cancelled is not None and cancelled()):
            return False
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
    return True


def is_current(fd: int, path: str) -> bool:
    """Say whether `path`, links not followed, still names the open file `fd`."""
    mine = os.fstat(fd)
    try:
        current = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return (mine.st_dev, mine.st_ino) == (current.st_dev, current.st_ino)


class FileLock:
    """An exclusive lock that is a file of its own, which is there only while somebody wants it.

    A context manager that waits for ever; `acquire` and `release` do the same by hand.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def acquire(
        self, *, timeout: float = float("inf"), cancelled: Callable[[], bool] | None = None
    ) -> None:
        """Wait for the lock.

        Args:
            timeout: seconds.
            cancelled: as in `wait_for_lock`.

        Raises:
            BusyError: if it was not free in time, or waiting was called off.
            OSError: if the file cannot be made.
        """
        deadline = time.monotonic() + timeout
        while True:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                locked = wait_for_lock(fd, self.path, deadline=deadline, cancelled=cancelled)
                if not locked:
                    raise BusyError(f"{self.path} is locked by another process")
                # Whoever had it before has removed the file: then this lock is worth nothing.
                if is_current(fd, self.path):
                    self._fd, fd = fd, -1
                    return
            finally:
                if fd >= 0:
                    os.close(fd)

    def try_acquire(self) -> bool:
        """Take the lock if it is free; say whether it was."""
        try:
            self.acquire(timeout=0)
        except BusyError:
            return False
        return True

    def release(self) -> None:
        """Remove the file and release the lock; harmless when it is not held."""
        if self._fd < 0:
            return
        try:
            # First the name, then the lock: in the other order the file might already be the next
            # owner's.
            os.unlink(self.path)
        except FileNotFoundError:
            pass
        finally:
            os.close(self._fd)
            self._fd = -1
