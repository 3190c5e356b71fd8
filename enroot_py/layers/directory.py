"""Write an image's tree as a directory, as an ordinary user.

The contents arrive before the tree, so they wait in numbered files in a folder inside the
destination and are renamed into place. Everything goes through file descriptors of directories
that this process made, names are single components, and no link is ever followed: what an image
calls its files cannot lead anywhere else. Only one directory is open at a time, so a tree may be
deeper than PATH_MAX and than the limit on open files.

What an ordinary user gets (docs/adr/0021-extraction-as-a-user.md): all files are his; owner bits
are widened and set-user-ID goes (`kept_mode`), all other mode bits are kept; of the extended
attributes only `user.*`; device nodes are left out.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence

from enroot_py import log
from enroot_py.errors import SpaceError, StoreError, UnsafePathError
from enroot_py.layers.entry import OVERLAY_XATTRS, ByteSource, Node, kept_mode, quoted

MAX_MTIME = (1 << 32) - 1
"""Latest time that a squashfs image can hold; loading and importing must give the same tree."""

_WRITE = 1 << 20
_FILES_PER_FOLDER = 1024
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class DirectorySink:
    """Writes one tree into an existing, empty directory; a `ContentSink`.

    After an error the directory is left as it is: whoever made it removes it.

    Args:
        path: the directory, on whose file system everything is kept from the start.

    Raises:
        StoreError: the directory cannot be opened or written to.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._count = 0
        self._root = self._staging = -1
        self._staging_name = b".contents-" + os.urandom(8).hex().encode()
        try:
            self._root = os.open(path, _DIRECTORY)
            os.mkdir(self._staging_name, 0o700, dir_fd=self._root)
            self._staging = os.open(self._staging_name, _DIRECTORY, dir_fd=self._root)
        except OSError as error:
            self.close()
            raise self._failure(error) from error

    def close(self) -> None:
        """Close what is open; harmless when done already."""
        for fd in (self._root, self._staging):
            if fd >= 0:
                os.close(fd)
        self._root = self._staging = -1

    def __enter__(self) -> DirectorySink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(
        self, source: ByteSource, size: int, extents: Sequence[tuple[int, int]] | None = None
    ) -> object:
        """Keep the content of one file; see `ContentSink.add`. Holes stay holes.

        Raises:
            SpaceError: the file system or a quota is full.
            StoreError: anything else that the file system says.
        """
        try:
            name = self._next_name()
            fd = os.open(name, _NEW_FILE, 0o600, dir_fd=self._staging)
            try:
                if extents is not None:
                    os.ftruncate(fd, size)
                for offset, length in [(0, size)] if extents is None else extents:
                    if extents is not None:
                        os.lseek(fd, offset, os.SEEK_SET)
                    _copy(source, fd, length)
            finally:
                os.close(fd)
        except OSError as error:
            raise self._failure(error, f"{size} bytes") from error
        return name

    def finish(self, root: Node) -> None:
        """Write the tree; the sink is closed afterwards.

        Raises:
            UnsafePathError: a name is not a single component.
            SpaceError: the file system or a quota is full.
            StoreError: anything else that the file system says.
        """
        try:
            _Placer(self._staging, _shared(root), self._next_name).place(root, self._root)
            self._remove_staging()
            # Removing the folder changed the time of the root directory: it comes last.
            set_directory_metadata(root, self._root)
        except OSError as error:
            raise self._failure(error) from error
        finally:
            self.close()

    def _remove_staging(self) -> None:
        """Remove the folder of staged files, with contents that no name leads to in the end."""
        for number in range(0, self._count, _FILES_PER_FOLDER):
            folder = str(number // _FILES_PER_FOLDER)
            fd = os.open(folder, _DIRECTORY, dir_fd=self._staging)
            try:
                for name in os.listdir(fd):
                    os.unlink(name, dir_fd=fd)
            finally:
                os.close(fd)
            os.rmdir(folder, dir_fd=self._staging)
        os.rmdir(self._staging_name, dir_fd=self._root)

    def _next_name(self) -> str:
        folder, rest = divmod(self._count, _FILES_PER_FOLDER)
        if not rest:
            os.mkdir(str(folder), 0o700, dir_fd=self._staging)
        self._count += 1
        return f"{folder}/{rest}"

    def _failure(self, error: OSError, what: str = "") -> StoreError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            needed = f" while writing {what}" if what else ""
            return SpaceError(
                f"{self._path}: {error.strerror}{needed}",
                hint="free some space, or set ENROOT_DATA_PATH to another file system",
            )
        return StoreError(f"Cannot write {self._path}: {error.strerror}")


def _copy(source: ByteSource, fd: int, length: int) -> None:
    while length:
        data = memoryview(source.take(min(length, _WRITE)))
        length -= len(data)
        while data:
            data = data[os.write(fd, data) :]


def _shared(root: Node) -> dict[Node, str]:
    """Return the nodes that have more than one name, each with no staged file so far."""
    seen: set[Node] = set()
    shared: dict[Node, str] = {}
    pending = [root]
    while pending:
        for node in (pending.pop().children or {}).values():
            if node.children is not None:
                pending.append(node)
            elif node in seen:
                shared[node] = ""
            else:
                seen.add(node)
    return shared


class _Placer:
    """Puts the nodes of a tree in place, depth first, one open directory at a time."""

    def __init__(self, staging: int, shared: dict[Node, str], next_name: Callable[[], str]) -> None:
        self._staging = staging
        self._shared = shared
        self._next_name = next_name

    def place(self, root: Node, root_fd: int) -> None:
        """Write everything below `root` into the directory `root_fd`."""
        fd = os.dup(root_fd)
        stack: list[tuple[Node, Iterator[tuple[bytes, Node]]]] = [(root, _entries(root))]
        try:
            while stack:
                directory, entries = stack[-1]
                child = self._place_files(entries, fd)
                if child is not None:
                    name, node = child
                    os.mkdir(name, 0o700, dir_fd=fd)
                    below = os.open(name, _DIRECTORY, dir_fd=fd)
                    os.close(fd)
                    fd = below
                    stack.append((node, _entries(node)))
                    continue
                stack.pop()
                if stack:
                    above = os.open("..", _DIRECTORY, dir_fd=fd)
                    set_directory_metadata(directory, fd)
                    os.close(fd)
                    fd = above
        finally:
            os.close(fd)

    def _place_files(
        self, entries: Iterator[tuple[bytes, Node]], fd: int
    ) -> tuple[bytes, Node] | None:
        """Place nodes up to the next directory, which is returned; None if there is none."""
        for name, node in entries:
            if not name or b"/" in name or b"\0" in name or name in (b".", b".."):
                raise UnsafePathError(f"not the name of a file: {quoted(name)}")
            if node.children is not None:
                return name, node
            if node.kind in (stat.S_IFCHR, stat.S_IFBLK):
                log.warn_once("device", f"Left out device nodes, such as {quoted(name)}")
            elif node not in self._shared:
                if node.content is None:
                    _make(node, name, fd)
                    _set_file_metadata(node, name, fd)
                else:
                    staged = str(node.content)
                    _set_file_metadata(node, staged, self._staging)
                    os.rename(staged, name, src_dir_fd=self._staging, dst_dir_fd=fd)
            else:
                self._link(node, name, fd)
        return None

    def _link(self, node: Node, name: bytes, fd: int) -> None:
        """Place a node that has several names: all are links to one staged file."""
        staged = self._shared[node]
        if not staged:
            staged = str(node.content) if node.content is not None else self._next_name()
            self._shared[node] = staged
            if node.content is None:
                _make(node, os.fsencode(staged), self._staging)
            _set_file_metadata(node, staged, self._staging)
        os.link(staged, name, src_dir_fd=self._staging, dst_dir_fd=fd, follow_symlinks=False)


def _entries(node: Node) -> Iterator[tuple[bytes, Node]]:
    return iter(sorted((node.children or {}).items()))


def _make(node: Node, name: bytes, fd: int) -> None:
    """Make a file that has no content."""
    if node.kind == stat.S_IFREG:
        os.close(os.open(name, _NEW_FILE, 0o600, dir_fd=fd))
    elif node.kind == stat.S_IFLNK:
        os.symlink(node.target, name, dir_fd=fd)
    else:
        os.mknod(name, node.kind | 0o600, dir_fd=fd)


def _set_file_metadata(node: Node, name: bytes | str, fd: int) -> None:
    """Set mode, time and attributes of a file in the directory `fd`, where only we can be."""
    if node.kind != stat.S_IFLNK:
        if node.xattrs and node.kind == stat.S_IFREG:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            try:
                set_xattrs(file, node.xattrs)  # while the file is writable, as that needs
            finally:
                os.close(file)
        os.chmod(name, kept_mode(node, as_root=os.geteuid() == 0), dir_fd=fd)
    os.utime(name, ns=_times(node), dir_fd=fd, follow_symlinks=False)


def set_directory_metadata(node: Node, fd: int) -> None:
    """Give an open directory the mode, time and attributes that an ordinary user keeps.

    Raises:
        OSError: the file system refuses, but for attributes, of which it may keep what it can.
    """
    if node.xattrs:
        set_xattrs(fd, node.xattrs)
    os.fchmod(fd, kept_mode(node, as_root=os.geteuid() == 0))
    os.utime(fd, ns=_times(node))


def _times(node: Node) -> tuple[int, int]:
    nanoseconds = max(0, min(node.mtime, MAX_MTIME)) * 1_000_000_000
    return nanoseconds, nanoseconds


def set_xattrs(fd: int, xattrs: dict[bytes, bytes]) -> None:
    """Set the `user.*` attributes of an open file; warns once if the file system keeps none.

    Raises:
        OSError: anything else goes wrong.
    """
    for name, value in xattrs.items():
        if name.startswith(b"user.") and not name.startswith(OVERLAY_XATTRS):
            if not hasattr(os, "setxattr"):
                # Some Pythons on musl.
                log.warn_once(
                    "xattr", "Cannot keep extended attributes: this Python cannot set them"
                )
                return
            try:
                os.setxattr(fd, name, value)
            except OSError as error:
                if error.errno not in (errno.ENOTSUP, errno.EPERM, errno.ENOSPC, errno.E2BIG):
                    raise
                log.warn_once("xattr", f"Cannot keep extended attributes: {error.strerror}")
