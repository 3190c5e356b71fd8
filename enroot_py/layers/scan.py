"""Read a root filesystem as a tree, to write it into an image.

The filesystem may be in use, and what runs in it may be hostile: directories are opened one by one
without following links, and going back up must lead to where we came from. Files and directories of
this user that their mode keeps from being read are opened up for the moment of reading.

Left out, as enroot leaves them out: whatever is below `/dev`, the lock file, the folder of a
bundle, and what its mounts leave behind, empty files and directories of mode 0000. (enroot leaves
out directories of mode 0000 with everything in them; those that hold something are kept here.)

Source: enroot 4.1.2 src/runtime.sh, runtime::export().
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Sequence

from enroot_py import log
from enroot_py.errors import StoreError
from enroot_py.layers.entry import OVERLAY_XATTRS, ContentSink, Node

NOT_EXPORTED = frozenset({b".lock", b".enroot"})
"""Names in the root directory that belong to the container, not to its image."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: should the name have become a fifo since it was looked at, opening it must not wait.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DENIED = (errno.EACCES, errno.EPERM)


def scan_directory(path: str, sink: ContentSink, exclude: Collection[bytes] = NOT_EXPORTED) -> Node:
    """Give the contents of a directory tree to `sink` and return the tree.

    Names are read in byte order, so the same tree gives the same sequence of contents.

    Args:
        path: the root directory.
        sink: takes the contents.
        exclude: names in the root directory to leave out.

    Raises:
        ForeignFileError: something of another user cannot be read.
        StoreError: something else cannot be read, or changes meanwhile.
        OSError: the sink cannot write.
    """
    try:
        return _Scanner(path, sink).scan(exclude)
    except _SinkFailedError as failure:
        raise failure.error from None
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror}") from error


class ForeignFileError(StoreError):
    """Something of another user, or of one of this user's subordinate ids, cannot be read."""


class _SinkFailedError(Exception):
    """Carries what a sink said past the handler of what reading says."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class _Frame:
    """A directory being read.

    Attributes:
        node: its node.
        names: what is still to be read, last one first.
        identity: device and inode number, by which it is known again.
        restore_mode: the mode to give back to it, -1 if it was not changed.
    """

    __slots__ = ("identity", "names", "node", "restore_mode")

    def __init__(self, fd: int, restore_mode: int) -> None:
        status = os.fstat(fd)
        if restore_mode >= 0:
            mode = restore_mode
        else:
            mode = stat.S_IMODE(status.st_mode)
        self.node = _node(status, mode)
        self.node.xattrs = _read_xattrs(fd)
        self.names = sorted(map(os.fsencode, os.listdir(fd)), reverse=True)
        self.identity = (status.st_dev, status.st_ino)
        self.restore_mode = restore_mode


class _Scanner:
    """Walks a tree depth first, with one open directory at a time, however deep it is."""

    def __init__(self, path: str, sink: ContentSink) -> None:
        self._root_path = path
        self._sink = sink
        self._links: dict[tuple[int, int], Node] = {}
        self._stack: list[_Frame] = []
        self._path: list[bytes] = []
        self._fd = -1

    def scan(self, exclude: Collection[bytes]) -> Node:
        self._fd = os.open(self._root_path, _DIRECTORY)
        try:
            root = _Frame(self._fd, -1)
            root.names = [name for name in root.names if name not in exclude]
            self._stack.append(root)
            while True:
                frame = self._stack[-1]
                if frame.names:
                    self._read(frame, frame.names.pop())
                elif len(self._stack) > 1:
                    self._leave()
                else:
                    return root.node
        finally:
            while len(self._stack) > 1:
                self._leave()
            os.close(self._fd)

    def _name(self, name: bytes) -> str:
        """Return the path of `name` in the current directory, for messages."""
        return os.path.join(self._root_path, os.fsdecode(b"/".join([*self._path, name])))

    def _read(self, frame: _Frame, name: bytes) -> None:
        """Read one name of the current directory into its node."""
        try:
            status = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return  # removed since the directory was listed
        kind = stat.S_IFMT(status.st_mode)
        identity = (status.st_dev, status.st_ino)
        assert frame.node.children is not None
        if kind == stat.S_IFDIR:
            self._enter(frame, name, status)
        elif identity in self._links:
            frame.node.children[name] = self._links[identity]
        else:
            node = self._read_file(name, kind, status)
            if node is not None:
                frame.node.children[name] = node
                if status.st_nlink > 1:
                    self._links[identity] = node

    def _enter(self, frame: _Frame, name: bytes, status: os.stat_result) -> None:
        """Read a directory's names and make it the current one."""
        restore_mode = -1
        mode = stat.S_IMODE(status.st_mode)
        try:
            fd = os.open(name, _DIRECTORY, dir_fd=self._fd)
            if mode & 0o500 != 0o500 and status.st_uid == os.geteuid() != 0:
                # It can be listed, but what is in it not be looked at.
                os.close(fd)
                fd = self._open_up(name, status, mode | 0o700)
                restore_mode = mode
        except OSError as error:
            if error.errno not in _DENIED:
                raise
            if not mode and status.st_uid != os.geteuid():
                return
            fd = self._open_up(name, status, mode | 0o700)
            restore_mode = mode
        below = _Frame(fd, restore_mode)
        if self._stack == [frame] and name == b"dev":
            below.names.clear()
        elif not mode and not below.names:
            os.fchmod(fd, mode)
            os.close(fd)
            return
        assert frame.node.children is not None
        frame.node.children[name] = below.node
        self._stack.append(below)
        self._path.append(name)
        os.close(self._fd)
        self._fd = fd

    def _leave(self) -> None:
        """Go back to the parent of the current directory."""
        frame = self._stack.pop()
        self._path.pop()
        above = os.open("..", _DIRECTORY, dir_fd=self._fd)
        if frame.restore_mode >= 0:
            os.fchmod(self._fd, frame.restore_mode)
        os.close(self._fd)
        self._fd = above
        status = os.fstat(above)
        if (status.st_dev, status.st_ino) != self._stack[-1].identity:
            raise StoreError(f"{self._name(b'')} is being changed while it is read")

    def _read_file(self, name: bytes, kind: int, status: os.stat_result) -> Node | None:
        """Return the node of anything but a directory; None for what is to be left out."""
        mode = stat.S_IMODE(status.st_mode)
        node = _node(status, mode)
        if kind == stat.S_IFREG:
            if not mode and not status.st_size:
                return None
            fd = self._open_file(name, status)
            try:
                self._read_content(node, name, fd)
            finally:
                os.close(fd)
        elif kind == stat.S_IFLNK:
            node.target = os.readlink(name, dir_fd=self._fd)
        elif kind in (stat.S_IFCHR, stat.S_IFBLK):
            node.device = (os.major(status.st_rdev), os.minor(status.st_rdev))
        return node

    def _open_file(self, name: bytes, status: os.stat_result) -> int:
        try:
            fd = os.open(name, _FILE, dir_fd=self._fd)
        except OSError as error:
            if error.errno not in _DENIED:
                raise
            mode = stat.S_IMODE(status.st_mode)
            fd = self._open_up(name, status, mode | 0o400)
            os.fchmod(fd, mode)
        if not _is_same(os.fstat(fd), status):
            os.close(fd)
            raise StoreError(f"{self._name(name)} is being changed while it is read")
        return fd

    def _open_up(self, name: bytes, status: os.stat_result, mode: int) -> int:
        """Open a file or directory of this user for reading, after giving it `mode`."""
        if status.st_uid != os.geteuid():
            raise ForeignFileError(
                f"Cannot read {self._name(name)}: it belongs to user {status.st_uid}",
                hint="only root, or a user namespace with that user in its map, can read it",
            )
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
        try:
            if not _is_same(os.fstat(handle), status):
                raise StoreError(f"{self._name(name)} is being changed while it is read")
            # What the handle holds was seen to be ours, and no link: the name plays no part.
            path = f"/proc/self/fd/{handle}"
            os.chmod(path, mode)
            return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            os.close(handle)

    def _read_content(self, node: Node, name: bytes, fd: int) -> None:
        status = os.fstat(fd)
        node.xattrs = _read_xattrs(fd)
        node.size = status.st_size
        if not node.size:
            return
        extents = None
        if status.st_blocks * 512 < node.size:
            extents = _find_extents(fd, node.size)
        source = _FileSource(fd, [(0, node.size)] if extents is None else extents, self._name(name))
        if extents == [(0, node.size)]:
            extents = None
        try:
            node.content = self._sink.add(source, node.size, extents)
        except OSError as error:
            raise _SinkFailedError(error) from error


class _FileSource:
    """Gives the bytes of a file's extents, one after the other; a `ByteSource`."""

    def __init__(self, fd: int, extents: Sequence[tuple[int, int]], name: str) -> None:
        self._fd = fd
        self._extents = list(extents)[::-1]
        self._name = name

    def take(self, size: int) -> bytes:
        """Return exactly `size` bytes; raises StoreError if the file is shorter than it was."""
        parts = []
        while size:
            offset, length = self._extents.pop()
            try:
                data = os.pread(self._fd, min(size, length), offset)
            except OSError as error:
                raise StoreError(f"Cannot read {self._name}: {error.strerror}") from error
            if not data:
                raise StoreError(f"{self._name} is being changed while it is read")
            if len(data) < length:
                self._extents.append((offset + len(data), length - len(data)))
            size -= len(data)
            parts.append(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _is_same(status: os.stat_result, earlier: os.stat_result) -> bool:
    """Tell whether it is the same file still: numbers are used again, but not for another type."""
    return os.path.samestat(status, earlier) and stat.S_IFMT(status.st_mode) == stat.S_IFMT(
        earlier.st_mode
    )


def _find_extents(fd: int, size: int) -> list[tuple[int, int]]:
    """Return where a file has data, as `(offset, length)`."""
    extents = []
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break
            raise
        end = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        if start < end:
            extents.append((start, end - start))
    return extents


def _node(status: os.stat_result, mode: int) -> Node:
    return Node(
        stat.S_IFMT(status.st_mode),
        mode,
        uid=status.st_uid,
        gid=status.st_gid,
        mtime=status.st_mtime_ns // 1_000_000_000,
    )


def _read_xattrs(fd: int) -> dict[bytes, bytes] | None:
    """Return the attributes that belong to a file rather than to where it is stored."""
    if not hasattr(os, "listxattr"):
        # Some Pythons on musl.
        log.warn_once("xattr", "Extended attributes are left out: this Python cannot read them")
        return None
    try:
        names = os.listxattr(fd)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        return None
    xattrs = {}
    for name in map(os.fsencode, names):
        if name.startswith((b"user.", b"trusted.", b"security.capability")) and not name.startswith(
            OVERLAY_XATTRS
        ):
            xattrs[name] = os.getxattr(fd, name)
    return xattrs or None
