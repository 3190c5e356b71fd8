"""Containers by name: their folders, the lock of a rootfs, and the processes inside.

A container is a folder below ENROOT_DATA_PATH. Names that begin with a dot are not containers: the
store keeps unfinished ones under such names. Shared by the import and the start story, so this
module stays light; removing a container is in `removal`.
"""

from __future__ import annotations

import os
import stat
import time
from errno import EACCES, EDQUOT, EISDIR, ELOOP, ENOENT, ENOSPC, ENOTDIR, ENXIO, EPERM, EROFS

from enroot_py.errors import BusyError, InvalidNameError, NotFoundError, SpaceError, StoreError
from enroot_py.log import printable
from enroot_py.store.locks import is_current, wait_for_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from enroot_py.settings import Settings

LOCK_NAME = ".lock"
"""The lock file in the root of every rootfs that was ever started; `list` knows containers by it.

Source: enroot 4.1.2 runtime.sh, lock_file.
"""

LOCK_TIMEOUT = 30.0
"""Seconds that a start waits for another start of the same container to set itself up."""

NAME_CHARACTERS = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+:@,=~-"
)
"""What names of new containers are made of: what default names (`lib+image+tag`) need, no more."""

_NAME_LENGTH = 255


def validate_name(name: str) -> None:
    """Check the name of a container that is to be made.

    Raises:
        InvalidNameError: unless the name is 1 to 255 of NAME_CHARACTERS, the first of them neither
            a dash (it would read as an option) nor a dot (hidden names are the store's own).
    """
    if not name:
        raise InvalidNameError("Invalid container name: it is empty")
    if len(name) > _NAME_LENGTH:
        raise InvalidNameError(
            f"Invalid container name: {printable(name[:32])}… has {len(name)} characters",
            hint=f"at most {_NAME_LENGTH} are possible",
        )
    if name[0] in "-." or not NAME_CHARACTERS.issuperset(name):
        raise InvalidNameError(
            f"Invalid container name: {printable(name)}",
            hint="a name has letters, digits and _.+:@,=~- and begins with neither - nor .",
        )


def container_path(settings: Settings, name: str) -> str:
    """Return where the container of that name is, or would be: an absolute host path.

    Raises:
        InvalidNameError: as `validate_name`.
    """
    validate_name(name)
    return os.path.join(os.path.realpath(settings.data_path), name)


def find_container(settings: Settings, name: str) -> str:
    """Return the absolute path of an existing container's rootfs, links resolved.

    Folders that another tool made under a name that `validate_name` refuses are found too, as long
    as the name is one component of a path and not hidden.

    Raises:
        InvalidNameError: if no folder can have this name.
        NotFoundError: if there is no such container; the hint lists similar names.
    """
    if name and len(name) <= _NAME_LENGTH and name[0] != "." and not {"/", "\0"} & set(name):
        path = os.path.realpath(os.path.join(settings.data_path, name))
        if os.path.isdir(path):
            return path
    validate_name(name)
    raise NotFoundError(
        f"No such container: {name} (in {settings.data_path})", hint=_similar_names(settings, name)
    )


def _similar_names(settings: Settings, name: str) -> str:
    names = list_names(settings)
    if not names:
        return "there are no containers yet; `enroot create` makes them from an image"
    from difflib import get_close_matches  # only ever needed for this message

    close = get_close_matches(name, names, n=3, cutoff=0.5)
    # A launcher's prefix (pyxis_NAME, pyxis_1234_NAME) is the usual difference.
    close += [other for other in names if name in other and other not in close][: 3 - len(close)]
    if not close:
        return "`enroot list` shows those that there are"
    return "did you mean " + " or ".join(printable(other) for other in close) + "?"


def list_names(settings: Settings) -> tuple[str, ...]:
    """Return the names of all containers, in byte order; none if there is no data folder.

    Raises:
        StoreError: if the data folder cannot be read.
    """
    try:
        with os.scandir(settings.data_path) as entries:
            return tuple(sorted(entry.name for entry in entries if _is_container(entry)))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise StoreError(
            f"Cannot read {settings.data_path}: {error.strerror}",
            hint="ENROOT_DATA_PATH says where containers are kept",
        ) from error


def _is_container(entry: os.DirEntry[str]) -> bool:
    try:
        return not entry.name.startswith(".") and entry.is_dir()
    except OSError:
        return False  # a link to somewhere that cannot be read; nothing to list


def find_processes(paths: Iterable[str]) -> dict[str, list[int]]:
    """Return for each rootfs the ids of the processes whose root folder it is, ascending.

    Seen are processes of this user (of everybody, for root), through any user namespace of theirs.
    Folders are compared by device and inode, so that it works below any mount.

    Args:
        paths: absolute host paths; those that do not exist have no processes.
    """
    by_inode: dict[tuple[int, int], str] = {}
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue
        by_inode[status.st_dev, status.st_ino] = path
    found: dict[str, list[int]] = {path: [] for path in by_inode.values()}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            root = os.stat(f"/proc/{pid}/root")
        except OSError:
            continue  # somebody else's, or gone since
        path = by_inode.get((root.st_dev, root.st_ino), "")
        if path:
            found[path].append(pid)
    return found


class RootfsLock:
    """The lock that a start holds while it sets a container up, and `remove` while it removes one.

    A context manager; the lock is the file `.lock` in the rootfs, which stays there. Held through
    `execve` it ends by itself, the descriptor being close-on-exec. A rootfs that this user cannot
    write to (another user's container, a read-only file system) is used without a lock where the
    file is not there to be opened: nobody sets up a rootfs that he cannot change.

    Source: enroot 4.1.2 runtime.sh, runtime::_start().
    """

    def __init__(self, rootfs: str, *, timeout: float = LOCK_TIMEOUT) -> None:
        self.path = os.path.join(rootfs, LOCK_NAME)
        self._timeout = timeout
        self._fd = -1

    def __enter__(self) -> RootfsLock:
        """Wait for the lock.

        Raises:
            BusyError: when `timeout` seconds have passed.
            NotFoundError: if the rootfs is gone.
            SpaceError: if there is no room for the lock file.
            StoreError: if the lock file is not an ordinary file or cannot be opened.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            self._fd = _open_lock_file(self.path)
            if self._fd < 0:
                return self
            if not wait_for_lock(self._fd, self.path, deadline=deadline):
                self.close()
                raise BusyError(
                    f"{os.path.dirname(self.path)} is in use: its lock was not free in"
                    f" {self._timeout:g} s",
                    hint="another process is starting or removing this container",
                )
            if is_current(self._fd, self.path):
                return self
            # Its owner removed the container, and somebody may have made it anew since.
            self.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock; harmless when it is not held."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _open_lock_file(path: str) -> int:
    """Open the lock file without following links; -1 if there can be none."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # an image may hold a FIFO of that name
    try:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o644)
        except OSError as error:
            if error.errno not in (EACCES, EPERM, EROFS):
                raise
            fd = os.open(path, os.O_RDONLY | flags)
    except OSError as error:
        if error.errno in (ENOENT, ENOTDIR):
            if os.path.isdir(os.path.dirname(path)):
                return -1
            raise NotFoundError(f"No such container: {os.path.dirname(path)}") from error
        if error.errno in (EACCES, EPERM):
            return -1
        if error.errno in (ENOSPC, EDQUOT):
            raise SpaceError(
                f"No space left for the lock file {path}: {error.strerror}",
                hint="free some space there, or set ENROOT_DATA_PATH to another file system",
            ) from error
        if error.errno in (ELOOP, EISDIR, ENXIO):
            raise StoreError(f"{path} is not an ordinary file") from error
        raise StoreError(f"Cannot open {path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise StoreError(f"{path} is not an ordinary file")
    return fd
