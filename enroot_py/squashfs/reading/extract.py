"""Unpack a whole image into a folder, with several processes.

The calling process reads the tables and makes the folders; then processes forked from it, which
share its memory, take portions of the files one after another from a pipe. Portions follow the
order of the fragments, not that of the tree: whoever wrote the image may have met the files in any
order, and a fragment should be decompressed once. A large file is several portions. What is left
(second names of files, the folders' own modes and times) comes last.

Nothing is followed or replaced: the destination is empty and the caller's own, every file is made
with O_EXCL, and every folder on the way was made here. Modes and attributes are those that
`layers.directory` gives (docs/adr/0021-extraction-as-a-user.md).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING

from enroot_py import log
from enroot_py.layers.directory import set_directory_metadata, set_xattrs
from enroot_py.layers.entry import Node, kept_mode
from enroot_py.squashfs.file_content import FRAGMENT_SHIFT, FileBlocks, split_blocks
from enroot_py.squashfs.output import write_all
from enroot_py.squashfs.reading.workers import run_portions

if TYPE_CHECKING:
    from enroot_py.squashfs.reader import SquashfsImage

_PORTION_COST = 4 << 20
_FILE_COST = 16 << 10
_SEGMENT_SIZE = 32 << 20
_NEAR_FRAGMENTS = 4
_WRITE_BATCH = 1 << 20
_PATH_STEP = 3072
_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_Run = tuple[int, int, list[bytes]]
"""Number of the first fragment, number of a folder, and names in it whose fragments are close."""


def extract_image(image: SquashfsImage, destination: str, *, processors: int) -> None:
    """Unpack all of `image` into the existing, empty folder `destination`.

    Device nodes are left out with one warning. After an error the folder holds a part of the
    image; whoever made it removes it.

    Args:
        image: open.
        destination: a host path.
        processors: processes to share the work; 1 does it in this one.

    Raises:
        SquashfsError: if the image is damaged.
        OSError: if the destination cannot be written to, or is full.
    """
    root = image.read_tree()
    root_fd = os.open(destination, _FOLDER_FLAGS)
    # Modes are given when files are made, so nothing may be masked. A new file has no readers.
    umask = os.umask(0)
    try:
        job = _Extraction(image, root, root_fd)
        job.make_folders()
        run_portions(job.do_portion, job.portion_count, processors=processors)
        job.finish()
    finally:
        os.umask(umask)
        os.close(root_fd)


class _Extraction:
    """One image on its way into one folder."""

    def __init__(self, image: SquashfsImage, root: Node, root_fd: int) -> None:
        self._image = image
        self._root_fd = root_fd
        self._folders: list[tuple[bytes, Node]] = [(b"", root)]
        self._portions: list[list[_Run]] = []
        # (folder, name, offset, size, content) of the portions of large files.
        self._segments: list[tuple[bytes, bytes, int, int, FileBlocks]] = []
        self._large: list[tuple[bytes, bytes, Node]] = []
        # By id(), of files with several names: the one under which it is made.
        self._first: dict[int, tuple[int, bytes]] = {}
        self._links: list[tuple[Node, int, bytes]] = []
        self._block_size = image.superblock.block_size
        self._plan(root)

    @property
    def portion_count(self) -> int:
        return len(self._portions) + len(self._segments)

    def _plan(self, root: Node) -> None:
        """Sort the files by where their bytes are, and cut them into portions of equal cost."""
        shared = {id(node) for node in self._image.linked_nodes()}
        runs: list[_Run] = []
        stack = [(b"", root)]
        self._folders.clear()
        while stack:
            path, folder = stack.pop()
            number = len(self._folders)
            self._folders.append((path, folder))
            prefix = path + b"/" if path else b""
            children = folder.children
            assert children is not None
            below = []
            names: list[tuple[int, bytes]] = []
            for name, node in children.items():
                if node.children is not None:
                    below.append((prefix + name, node))
                elif id(node) not in shared or self._is_first(node, number, name):
                    names.append((_fragment_of(node), name))
            runs += _split_runs(number, names)
            stack += reversed(below)
        runs.sort()
        self._portions = list(self._cut(runs))

    def _cut(self, runs: list[_Run]) -> Iterator[list[_Run]]:
        """Yield portions of about equal cost; sets large files aside."""
        portion: list[_Run] = []
        cost = 0
        for fragment, number, names in runs:
            path, folder = self._folders[number]
            assert folder.children is not None
            first = 0
            for index, name in enumerate(names):
                cost += _FILE_COST + self._cost(path, name, folder.children[name])
                if cost >= _PORTION_COST:
                    yield [*portion, (fragment, number, names[first : index + 1])]
                    portion, cost, first = [], 0, index + 1
            if first < len(names):
                portion.append((fragment, number, names[first:]))
        if portion:
            yield portion

    def _is_first(self, node: Node, folder: int, name: bytes) -> bool:
        if id(node) in self._first:
            self._links.append((node, folder, name))
            return False
        self._first[id(node)] = folder, name
        return True

    def _cost(self, path: bytes, name: bytes, node: Node) -> int:
        """Bytes to be written; large files are set aside."""
        content = node.content
        if node.size < 2 * _SEGMENT_SIZE or not isinstance(content, FileBlocks):
            return node.size
        self._large.append((path, name, node))
        count = _SEGMENT_SIZE // self._block_size
        pieces = split_blocks(content, node.size, block_size=self._block_size, count=count)
        self._segments += [(path, name, *piece) for piece in pieces]
        return 0

    def make_folders(self) -> None:
        """Make all folders, and large files with their size."""
        for path, _ in self._folders[1:]:
            if len(path) <= _PATH_STEP:
                os.mkdir(path, 0o700, dir_fd=self._root_fd)
                continue
            parent, _, name = path.rpartition(b"/")
            with _Folder(self._root_fd, parent) as fd:
                os.mkdir(name, 0o700, dir_fd=fd)
        for path, name, node in self._large:
            with _Folder(self._root_fd, path) as folder:
                fd = os.open(name, _FILE_FLAGS, 0o600, dir_fd=folder)
                try:
                    os.ftruncate(fd, node.size)
                finally:
                    os.close(fd)

    def do_portion(self, number: int) -> None:
        """Write one portion's files; large files' portions have the first numbers."""
        if number < len(self._segments):
            self._write_segment(*self._segments[number])
            return
        for _, folder_number, names in self._portions[number - len(self._segments)]:
            path, folder = self._folders[folder_number]
            assert folder.children is not None
            with _Folder(self._root_fd, path) as fd:
                for name in names:
                    self._make(folder.children[name], name, fd)

    def _make(self, node: Node, name: bytes, folder: int) -> None:
        kind = node.kind
        if kind == stat.S_IFREG:
            if node.size < 2 * _SEGMENT_SIZE or not isinstance(node.content, FileBlocks):
                self._make_file(node, name, folder)
        elif kind == stat.S_IFLNK:
            os.symlink(node.target, name, dir_fd=folder)
            os.utime(name, (node.mtime, node.mtime), dir_fd=folder, follow_symlinks=False)
        elif kind in (stat.S_IFIFO, stat.S_IFSOCK):
            os.mknod(name, kind | kept_mode(node, as_root=os.geteuid() == 0), dir_fd=folder)
            os.utime(name, (node.mtime, node.mtime), dir_fd=folder)
        else:
            log.warn_once("device", "Device nodes of the image are left out")

    def _make_file(self, node: Node, name: bytes, folder: int) -> None:
        mode = kept_mode(node, as_root=os.geteuid() == 0)
        # Writing takes set-user-ID away again, and attributes can only be set on what its owner
        # may write to: then the mode comes last.
        late = mode & _SPECIAL_BITS or node.xattrs
        fd = os.open(name, _FILE_FLAGS, 0o600 if late else mode, dir_fd=folder)
        try:
            if node.content is not None:
                self._write_pieces(fd, 0, self._image.read_content(node.content, node.size))
                if isinstance(node.content, FileBlocks):
                    os.ftruncate(fd, node.size)
            if node.xattrs:
                set_xattrs(fd, node.xattrs)
            if late:
                os.fchmod(fd, mode)
            os.utime(fd, (node.mtime, node.mtime))
        finally:
            os.close(fd)

    def _write_segment(
        self, path: bytes, name: bytes, offset: int, size: int, content: FileBlocks
    ) -> None:
        with _Folder(self._root_fd, path) as folder:
            fd = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                self._write_pieces(fd, offset, self._image.read_content(content, size))
            finally:
                os.close(fd)

    def _write_pieces(self, fd: int, position: int, pieces: Iterator[bytes | int]) -> None:
        """Write a file's pieces from `position` on, several at a time; holes are left out."""
        batch: list[bytes] = []
        size = 0
        for piece in pieces:
            if isinstance(piece, bytes):
                batch.append(piece)
                size += len(piece)
                if size < _WRITE_BATCH:
                    continue
            write_all(fd, batch, position)
            position += size + (piece if isinstance(piece, int) else 0)
            batch.clear()
            size = 0
        write_all(fd, batch, position)

    def finish(self) -> None:
        """Make second names, complete large files, and give the folders what they should have."""
        for path, name, node in self._large:
            with _Folder(self._root_fd, path) as folder:
                fd = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                try:
                    set_directory_metadata(node, fd)
                finally:
                    os.close(fd)
        for node, folder_number, name in self._links:
            if node.kind in (stat.S_IFCHR, stat.S_IFBLK):
                continue
            first_folder, first_name = self._first[id(node)]
            source, target = self._folders[first_folder][0], self._folders[folder_number][0]
            with _Folder(self._root_fd, source) as old, _Folder(self._root_fd, target) as new:
                os.link(first_name, name, src_dir_fd=old, dst_dir_fd=new, follow_symlinks=False)
        while self._folders:
            path, node = self._folders.pop()
            with _Folder(self._root_fd, path) as fd:
                set_directory_metadata(node, fd)


class _Folder:
    """A folder below another one, open for a while, however long its path is."""

    def __init__(self, root_fd: int, path: bytes) -> None:
        step, rest = _split_path(path)
        self._fd = os.open(step or b".", _FOLDER_FLAGS, dir_fd=root_fd)
        while rest:
            step, rest = _split_path(rest)
            above = self._fd
            try:
                self._fd = os.open(step, _FOLDER_FLAGS, dir_fd=above)
            finally:
                os.close(above)

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _fragment_of(node: Node) -> int:
    """Number of the fragment with a file's bytes; those without come first, together."""
    content = node.content
    if isinstance(content, FileBlocks):
        content = content.tail
    return content >> FRAGMENT_SHIFT if isinstance(content, int) and content >= 0 else -1


def _split_runs(folder: int, names: list[tuple[int, bytes]]) -> Iterator[_Run]:
    """Split a folder's files where the next one's fragment is not near."""
    names.sort()
    run: list[bytes] = []
    first = last = 0
    for fragment, name in names:
        if run and fragment - last > _NEAR_FRAGMENTS:
            yield first, folder, run
            run = []
        if not run:
            first = fragment
        run.append(name)
        last = fragment
    if run:
        yield first, folder, run


def _split_path(path: bytes) -> tuple[bytes, bytes]:
    """Split off as much as one system call can take."""
    if len(path) <= _PATH_STEP:
        return path, b""
    cut = path.rindex(b"/", 0, _PATH_STEP)
    return path[:cut], path[cut + 1 :]
