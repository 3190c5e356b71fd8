"""Write files of a root filesystem that may be hostile, from outside of it.

Every path is resolved beneath the rootfs (linux/path.py), as it will be once the root is switched:
whatever links an image holds, nothing here reads or writes outside. Files appear by rename, whole
or not at all. Not for mounts.
"""

from __future__ import annotations

import errno
import os
from stat import S_IMODE, S_ISDIR, S_ISREG

from enroot_py.linux.path import Place, read_beneath, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_ABSENT = (errno.ENOENT, errno.ENOTDIR)

LARGEST_COPY = 64 << 20
"""Bytes of the largest file that `copy_tree` copies; larger ones are left out."""

UNWRITABLE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
"""Error numbers that say: this rootfs is not ours to write (not: something went wrong)."""


class RootfsFiles:
    """The files of one root filesystem; a context manager that owns a descriptor of its root.

    Paths are those inside the rootfs ("/etc/passwd"). Methods raise OSError as the system calls
    that they stand for do, ELOOP for more than 40 links.
    """

    def __init__(self, rootfs: str) -> None:
        self._root = os.open(rootfs, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> RootfsFiles:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._root)

    def read(self, path: str, *, limit: int) -> bytes | None:
        """Return the content of a regular file; None if there is none (a fifo is none).

        Raises:
            OSError: EFBIG if it holds more than `limit` bytes.
        """
        return read_beneath(self._root, path, limit=limit)

    def stat(self, path: str) -> os.stat_result | None:
        """Return what `path` is, links followed; None if it is missing."""
        try:
            with resolve(self._root, path) as place:
                return os.fstat(place.fd)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise

    def read_link(self, path: str) -> str | None:
        """Return the text of the symbolic link at `path`; None if there is no link."""
        folder, name = _split(path)
        try:
            with resolve(self._root, folder) as parent:
                return os.readlink(name, dir_fd=parent.fd)
        except OSError as error:
            if error.errno in (*_ABSENT, errno.EINVAL):
                return None
            raise

    def list(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; nothing if there is no such folder."""
        try:
            with resolve(self._root, path) as place:
                return sorted(os.listdir(place.path))
        except OSError as error:
            if error.errno in _ABSENT:
                return []
            raise

    def replace(
        self, path: str, data: bytes, *, mode: int, times: tuple[int, int] | None = None
    ) -> None:
        """Put a file at `path`, whole or not at all; a link there is replaced, not followed.

        Missing parents are created. `mode` is set exactly, whatever the umask.

        Args:
            times: of access and of modification, in nanoseconds; None for now.
        """
        folder, name = _split(path)
        with self._folder(folder) as parent:
            temporary = _temporary_name(name)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            fd = os.open(temporary, flags, 0o600, dir_fd=parent.fd)
            try:
                with open(fd, "wb", buffering=0) as file:
                    _write_all(fd, data)
                    os.fchmod(fd, mode)
                    if times is not None:
                        os.utime(file.fileno(), ns=times)
                os.rename(temporary, name, src_dir_fd=parent.fd, dst_dir_fd=parent.fd)
            except OSError:
                os.unlink(temporary, dir_fd=parent.fd)
                raise

    def replace_with_link(self, path: str, target: str) -> None:
        """Put a symbolic link at `path` with the text `target`, replacing what is there."""
        folder, name = _split(path)
        with self._folder(folder) as parent:
            temporary = _temporary_name(name)
            os.symlink(target, temporary, dir_fd=parent.fd)
            try:
                os.rename(temporary, name, src_dir_fd=parent.fd, dst_dir_fd=parent.fd)
            except OSError:
                os.unlink(temporary, dir_fd=parent.fd)
                raise

    def make_directories(self, path: str, *, mode: int = 0o755) -> None:
        """Create the folder `path` with `mode`, and its missing parents, each less the umask."""
        self._folder(path, mode=mode).__exit__()

    def copy_tree(self, source: str, destination: str, *, depth: int = 16) -> None:
        """Copy the files and folders below `source` into the folder `destination`.

        Links are followed beneath the rootfs; modes and times are kept; what is neither a file nor
        a folder is left out. A missing `source` is an empty one.
        """
        for name in self.list(source) if depth else ():
            status = self.stat(f"{source}/{name}")
            target = f"{destination}/{name}"
            if status is None:
                continue
            mode = S_IMODE(status.st_mode)
            if S_ISDIR(status.st_mode):
                self.make_directories(target, mode=mode | 0o700)
                self.copy_tree(f"{source}/{name}", target, depth=depth - 1)
            elif S_ISREG(status.st_mode) and status.st_size <= LARGEST_COPY:
                data = self.read(f"{source}/{name}", limit=LARGEST_COPY)
                times = (status.st_atime_ns, status.st_mtime_ns)
                self.replace(target, data or b"", mode=mode, times=times)

    def _folder(self, path: str, *, mode: int = 0o755) -> Place:
        """Return the place of a folder, created if it is missing."""
        return resolve(self._root, path, create="dir", mode=mode)


def _split(path: str) -> tuple[str, str]:
    folder, _, name = path.rstrip("/").rpartition("/")
    if name in ("", ".", ".."):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
    return folder, name


def _temporary_name(name: str) -> str:
    # A pid would not do: containers of several pid namespaces or hosts may share the folder.
    return f".{name[:200]}.{os.urandom(8).hex()}"


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
