"""Local tar archives that hold other files: which there are, and where in the archive they lie.

For what skopeo, podman and docker save. Their layers are read straight out of the archive; nothing
is unpacked. Not for layers themselves: see `layers.tar_stream`.
"""

from __future__ import annotations

import os
import stat
import tempfile
from dataclasses import dataclass
from typing import BinaryIO

from enroot_py.errors import LayerError, LimitError, NotFoundError
from enroot_py.layers.compression import decompress
from enroot_py.layers.entry import Limits
from enroot_py.layers.tar_header import BLOCK, has_valid_checksum, parse_number, parse_pax
from enroot_py.log import printable
from enroot_py.store.file_system import explaining

MAX_MEMBERS = 100_000
_MAX_EXTENSION = 1 << 20
_MAX_LINKS = 8
_REGULAR = (b"0", b"\0", b"7")
_LINKS = (b"1", b"2")


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive: its place and size in bytes, or for a link the name it leads to."""

    start: int
    size: int
    target: str


class ArchiveFile:
    """An archive, open. Owns its file.

    Attributes:
        path: of the archive, as given.
    """

    def __init__(self, path: str, *, temp_path: str, limits: Limits) -> None:
        """Open an archive and read its headers.

        Args:
            path: a host path.
            temp_path: where a compressed archive is decompressed to, and one that comes through a
                pipe is put, under no name.
            limits: for what it expands to.

        Raises:
            NotFoundError: if it cannot be opened.
            LayerError: if it is no archive, or a damaged one.
            SpaceError: if there is no room to decompress it.
        """
        self.path = path
        self.file = _open(path, temp_path, limits)
        try:
            self._members = _read_members(self.file.fileno(), path)
        except BaseException:
            self.file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def find(self, name: str) -> Member | None:
        """Return a regular file by its name, links within the archive followed."""
        for _ in range(_MAX_LINKS):
            member = self._members.get(_normal(name))
            if member is None or not member.target:
                return member
            name = member.target
        return None

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of a small file.

        Raises:
            NotFoundError: if there is none of that name.
            LimitError: if it has more than `limit` bytes.
        """
        member = self.find(name)
        if member is None:
            raise NotFoundError(f"No {printable(name)} in {self.path}")
        if member.size > limit:
            raise LimitError(f"{printable(name)} in {self.path} has {member.size} bytes")
        return os.pread(self.file.fileno(), member.size, member.start)


def _open(path: str, temp_path: str, limits: Limits) -> BinaryIO:
    try:
        file: BinaryIO = open(path, "rb", buffering=0)
    except OSError as error:
        raise NotFoundError(f"{error.strerror}: {path}") from error
    with explaining(path, stage="reading the archive", setting="the URI"):
        # A pipe (`docker save X | enroot import docker-archive:/dev/stdin`) can be read but once.
        seekable = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        if seekable and has_valid_checksum(os.pread(file.fileno(), BLOCK, 0)):
            return file
    with (
        file,
        explaining(temp_path, stage="decompressing the archive", setting="ENROOT_TEMP_PATH"),
    ):
        plain: BinaryIO = tempfile.TemporaryFile(dir=temp_path, prefix="enroot-", buffering=0)
        try:
            for chunk in decompress(file, path, limits):
                view = memoryview(chunk)
                while view:
                    view = view[plain.write(view) :]
        except BaseException:
            plain.close()
            raise
    return plain


def _read_members(fd: int, path: str) -> dict[str, Member]:
    """Read the headers, skipping what lies between them."""
    members: dict[str, Member] = {}
    end = os.fstat(fd).st_size
    position = 0
    extension: dict[bytes, bytes] = {}
    while position + BLOCK <= end:
        header = os.pread(fd, BLOCK, position)
        if not header.strip(b"\0"):
            break
        if not has_valid_checksum(header):
            raise LayerError(f"{path}: not a tar archive, or a damaged one")
        position += BLOCK
        flag = header[156:157]
        size = parse_number(header[124:136], "size")
        if flag in (b"x", b"L", b"K"):
            _check_size(size, min(_MAX_EXTENSION, end - position), path)
            _extend(extension, flag, os.pread(fd, size, position))
        else:
            if b"size" in extension and flag in _REGULAR:
                size = int(extension[b"size"]) if extension[b"size"].isdigit() else -1
            size = size if flag in (*_REGULAR, b"g") else 0
            _check_size(size, end - position, path)
            _add(members, header, flag, extension, Member(position, size, ""))
            extension = {}
        if len(members) > MAX_MEMBERS:
            raise LimitError(f"{path} holds more than {MAX_MEMBERS} files")
        position += size + -size % BLOCK
    if not members:
        raise LayerError(f"{path}: the archive is empty")
    return members


def _check_size(size: int, limit: int, path: str) -> None:
    if not 0 <= size <= limit:
        raise LayerError(f"{path}: the archive is truncated, or damaged")


def _extend(extension: dict[bytes, bytes], flag: bytes, data: bytes) -> None:
    if flag == b"x":
        parse_pax(data, extension)
    else:
        key = b"path" if flag == b"L" else b"linkpath"
        extension[key] = data.partition(b"\0")[0]


def _add(
    members: dict[str, Member],
    header: bytes,
    flag: bytes,
    extension: dict[bytes, bytes],
    member: Member,
) -> None:
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0] if header[257:262] == b"ustar" else b""
    if prefix and header[257:263] == b"ustar\0":
        name = prefix + b"/" + name
    path = os.fsdecode(extension.get(b"path", name))
    if flag in _LINKS:
        target = os.fsdecode(extension.get(b"linkpath", header[157:257].partition(b"\0")[0]))
        if flag == b"2":
            target = os.path.join(os.path.dirname(path), target)
        members[_normal(path)] = Member(0, 0, target)
    elif flag in _REGULAR:
        members[_normal(path)] = member


def _normal(name: str) -> str:
    # Names are keys here and no paths; ".." can only lead to another key.
    return os.path.normpath("/" + name)
