"""Read and write files of a root filesystem that may be hostile, from outside of it.

Every path is walked component by component with directory descriptors: a symbolic link, whatever it
says, is resolved beneath the rootfs, as it will be once the root is switched. Nothing here can read
or write outside of it. Files appear by rename, whole or not at all. Not for mounts.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_MAX_LINKS = 40
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

LARGEST_COPY = 64 << 20
"""Bytes of the largest file that `copy_tree` copies; larger ones are left out."""

UNWRITABLE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
"""Error numbers that say: this rootfs is not ours to write (not: something went wrong)."""


class RootfsFiles:
    """The files of one root filesystem; a context manager that owns a descriptor of its root.

    Paths are those inside the rootfs ("/etc/passwd"). Methods raise OSError as the system calls
    they stand for do, ELOOP for more than 40 links.
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
        """Return the contents of a regular file; None if there is none (a fifo is none).

        Raises:
            OSError: EFBIG if it holds more than `limit` bytes.
        """
        fd = self._open(path, os.O_RDONLY)
        if fd < 0:
            return None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            chunks = []
            left = limit + 1
            while left > 0 and (chunk := os.read(fd, min(left, 1 << 20))):
                chunks.append(chunk)
                left -= len(chunk)
        finally:
            os.close(fd)
        if left <= 0:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return b"".join(chunks)

    def stat(self, path: str) -> os.stat_result | None:
        """Return what `path` is, links followed; None if it is missing."""
        fd = self._open(path, os.O_PATH)
        if fd < 0:
            return None
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def replace(self, path: str, data: bytes, *, mode: int) -> None:
        """Put a file at `path`, whole or not at all; a link there is replaced, not followed.

        Missing parents are created. `mode` is set exactly, whatever the umask.
        """
        folder, name = self._parent(path, create=True)
        try:
            temporary = _temporary_name(name)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            fd = os.open(temporary, flags, 0o600, dir_fd=folder)
            try:
                with open(fd, "wb", buffering=0) as file:
                    _write_all(file.fileno(), data)
                    os.fchmod(file.fileno(), mode)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                os.unlink(temporary, dir_fd=folder)
                raise
        finally:
            os.close(folder)

    def replace_with_link(self, path: str, target: str) -> None:
        """Put a symbolic link at `path` with the text `target`, replacing what is there."""
        folder, name = self._parent(path, create=True)
        try:
            temporary = _temporary_name(name)
            os.symlink(target, temporary, dir_fd=folder)
            try:
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                os.unlink(temporary, dir_fd=folder)
                raise
        finally:
            os.close(folder)

    def read_link(self, path: str) -> str | None:
        """Return the text of the symbolic link at `path`; None if there is no link."""
        try:
            folder, name = self._parent(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return None
            raise
        try:
            return _read_link(folder, name)
        finally:
            os.close(folder)

    def make_directories(self, path: str, *, mode: int = 0o755) -> None:
        """Create the folder `path` and its missing parents, each with `mode`."""
        os.close(self._walk(path, create=True, mode=mode))

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
            if stat.S_ISDIR(status.st_mode):
                self.make_directories(target, mode=stat.S_IMODE(status.st_mode) | 0o700)
                self.copy_tree(f"{source}/{name}", target, depth=depth - 1)
            elif stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_COPY:
                data = self.read(f"{source}/{name}", limit=LARGEST_COPY)
                self.replace(target, data or b"", mode=stat.S_IMODE(status.st_mode))
                folder, name = self._parent(target)
                try:
                    times = (status.st_atime_ns, status.st_mtime_ns)
                    os.utime(name, ns=times, dir_fd=folder, follow_symlinks=False)
                finally:
                    os.close(folder)

    def list(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; nothing if there is no such folder."""
        fd = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        if fd < 0:
            return []
        try:
            return sorted(os.listdir(fd))
        finally:
            os.close(fd)

    def _parent(self, path: str, *, create: bool = False) -> tuple[int, str]:
        folder, _, name = path.rstrip("/").rpartition("/")
        if name in ("", ".", ".."):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return self._walk(folder, create=create), name

    def _open(self, path: str, flags: int) -> int:
        """Open the file at `path`, links followed beneath the rootfs; -1 if it is missing."""
        # O_NONBLOCK: opening a fifo must not wait for its other end. O_NOCTTY: nor get a terminal.
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        for _ in range(_MAX_LINKS):
            try:
                if path.rstrip("/") in ("", "."):
                    return os.open(".", flags, dir_fd=self._root)
                folder, name = self._parent(path)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR):
                    return -1
                raise
            try:
                target = _read_link(folder, name)
                if target is None:
                    return os.open(name, flags, dir_fd=folder)
            except (FileNotFoundError, NotADirectoryError):
                return -1
            finally:
                os.close(folder)
            parent = path.rstrip("/").rpartition("/")[0]
            path = target if target.startswith("/") else f"{parent}/{target}"
            if path.endswith(("/..", "/.")):
                return self._walk(path)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def _walk(self, path: str, *, create: bool = False, mode: int = 0o755) -> int:
        """Return a descriptor of the folder `path`, which the caller closes."""
        pending = path.split("/")[::-1]
        # The folders passed through: ".." goes back in here, never through the file system, so that
        # a folder moved meanwhile cannot lead outside.
        passed = [os.dup(self._root)]
        links = 0
        try:
            while pending:
                name = pending.pop()
                if name in ("", "."):
                    continue
                if name == "..":
                    if len(passed) > 1:
                        os.close(passed.pop())
                    continue
                try:
                    passed.append(os.open(name, _DIRECTORY, dir_fd=passed[-1]))
                except FileNotFoundError:
                    if not create:
                        raise
                    _make_directory(name, mode, passed[-1])
                    passed.append(os.open(name, _DIRECTORY, dir_fd=passed[-1]))
                except NotADirectoryError:
                    target = _read_link(passed[-1], name)
                    links += 1
                    if target is None:
                        raise
                    if links > _MAX_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from None
                    if target.startswith("/"):
                        while len(passed) > 1:
                            os.close(passed.pop())
                    pending.extend(target.split("/")[::-1])
            return passed.pop()
        finally:
            for fd in passed:
                os.close(fd)


def _read_link(folder: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise


def _make_directory(name: str, mode: int, folder: int) -> None:
    try:
        os.mkdir(name, mode, dir_fd=folder)
    except FileExistsError:
        pass


def _temporary_name(name: str) -> str:
    # A pid would not do: containers of several pid namespaces or hosts may share the folder.
    return f".{name[:200]}.{os.urandom(8).hex()}"


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
