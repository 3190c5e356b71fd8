"""Paths inside a root filesystem, resolved from outside of it and strictly beneath it.

The rootfs may be hostile: a symbolic link in it, whatever it says, is followed as it will be once
the root is switched, never on the host. Each component is opened by itself through the descriptor
of the one before; `..` goes back to a descriptor already held and stops at the root; links that the
kernel makes up (/proc/self/fd/7) are followed by their text. openat2(2) with RESOLVE_IN_ROOT would
do the same for paths that exist; most of those met here do not yet.
"""

from __future__ import annotations

import errno
import os
from stat import S_IFREG, S_ISLNK, S_ISREG

from enroot_py.errors import KernelError

_MAX_LINKS = 40
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class Place:
    """A path that was resolved: a descriptor of what is there, and the way to open it again.

    A context manager that owns its descriptors.

    Attributes:
        fd: an O_PATH descriptor of the object, as it was when the path was resolved.
    """

    __slots__ = ("_folder", "_name", "fd")

    def __init__(self, fd: int, folder: int, name: str) -> None:
        """Take ownership of both descriptors; `name` in `folder` leads to `fd`."""
        self.fd = fd
        self._folder = folder
        self._name = name

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *unused: object) -> None:
        os.close(self.fd)
        os.close(self._folder)

    @property
    def path(self) -> str:
        """A path that leads to this very object on the host, whatever is moved meanwhile."""
        return f"/proc/self/fd/{self.fd}"

    @property
    def folder_fd(self) -> int:
        """An O_PATH descriptor of the folder that it is in; stays this object's."""
        return self._folder

    def reopen(self) -> None:
        """Look the last component up again: what was mounted there since is on top now."""
        fd = os.open(self._name, _PATH, dir_fd=self._folder)
        os.close(self.fd)
        self.fd = fd


def resolve(root_fd: int, path: str, *, create: str = "", mode: int = 0) -> Place:
    """Return the place of `path` beneath a root.

    Args:
        root_fd: a descriptor of the root; stays the caller's.
        path: a path inside the rootfs; a leading slash makes no difference.
        create: "dir" or "file" to make what is missing, parents with mode 0755.
        mode: mode of a last component that is made: 0000, by which an export tells mount points
            from an image's own files, unless something else is wanted.

    Raises:
        KernelError: as the system calls do: ENOENT, ENOTDIR, EACCES, EROFS; ELOOP for more than 40
            links.

    Source: enroot 4.1.2 bin/enroot-mount.c, realpathat() and create_file().
    """
    walk = _Walk(root_fd, path, create, mode)
    try:
        return walk.run()
    except OSError as error:
        walk.close()
        raise KernelError("open", error.errno or 0, path) from error


class _Walk:
    """One walk: the components still to go, and descriptors of those passed, root excluded."""

    def __init__(self, root_fd: int, path: str, create: str, mode: int) -> None:
        self.root_fd = root_fd
        self.create = create
        self.mode = mode
        self.pending = path.split("/")[::-1]
        self.passed: list[int] = []
        self.names: list[str] = []
        self.links = 0

    def run(self) -> Place:
        while self.pending:
            name = self.pending.pop()
            if name in ("", "."):
                continue
            if name == "..":
                if self.passed:
                    os.close(self.passed.pop())
                    self.names.pop()
                continue
            fd = self.open(name)
            if S_ISLNK(os.fstat(fd).st_mode):
                self.follow(fd)
            else:
                self.passed.append(fd)
                self.names.append(name)
        return self.place()

    def folder(self) -> int:
        return self.passed[-1] if self.passed else self.root_fd

    def open(self, name: str) -> int:
        try:
            return os.open(name, _PATH, dir_fd=self.folder())
        except FileNotFoundError:
            if not self.create:
                raise
        try:
            if any(rest not in ("", ".") for rest in self.pending):
                os.mkdir(name, 0o755, dir_fd=self.folder())
            elif self.create == "file":
                os.mknod(name, S_IFREG | self.mode, dir_fd=self.folder())
            else:
                os.mkdir(name, self.mode, dir_fd=self.folder())
        except FileExistsError:
            pass  # another start of the same container was faster
        return os.open(name, _PATH, dir_fd=self.folder())

    def follow(self, fd: int) -> None:
        try:
            self.links += 1
            if self.links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = os.readlink("", dir_fd=fd)
        finally:
            os.close(fd)
        if target.startswith("/"):
            self.close()
        self.pending += target.split("/")[::-1]

    def place(self) -> Place:
        name = self.names[-1] if self.names else "."
        fd = self.passed.pop() if self.passed else os.open(".", _PATH, dir_fd=self.root_fd)
        folder = self.passed.pop() if self.passed else os.dup(self.root_fd)
        self.close()
        return Place(fd, folder, name)

    def close(self) -> None:
        while self.passed:
            os.close(self.passed.pop())
        self.names.clear()


def read_beneath(root_fd: int, path: str, *, limit: int) -> bytes | None:
    """Return the content of a regular file beneath a root; None if there is none.

    A directory, a device or a fifo is none; a fifo is not waited for.

    Raises:
        KernelError: EFBIG if the file has more than `limit` bytes; what reading raises.
    """
    try:
        place = resolve(root_fd, path)
    except KernelError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise
    with place:
        if not S_ISREG(os.fstat(place.fd).st_mode):
            return None
        try:
            return read_file(place.path, limit=limit)
        except OSError as error:
            raise KernelError("read", error.errno or 0, path) from error


def read_file(path: str, *, limit: int) -> bytes:
    """Return the content of a host file.

    Raises:
        OSError: as open(2) and read(2) do; EFBIG if the file has more than `limit` bytes.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        chunks = []
        left = limit + 1
        while left > 0 and (chunk := os.read(fd, min(left, 1 << 16))):
            chunks.append(chunk)
            left -= len(chunk)
    finally:
        os.close(fd)
    if left <= 0:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return b"".join(chunks)
