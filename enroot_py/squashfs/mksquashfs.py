"""Have mksquashfs write an image, for the options that only it has.

The tree goes to it as a tar stream, so that owners, modes, devices and attributes are those of the
image and not those of files that this user could make. It needs squashfs-tools 4.5 or newer. Not
all of a tree survives: sockets are left out, and the root directory's time is the moment of
writing where mksquashfs ignores `-root-time` for a tar stream (4.5.1 does).
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from enroot_py.errors import SquashfsError, UnsupportedError
from enroot_py.layers.entry import ByteSource, Node, walk
from enroot_py.log import printable
from enroot_py.squashfs.options import SquashfsOptions
from enroot_py.squashfs.writer import SquashfsWriter

_CHUNK = 1 << 20
_TAR_BLOCK = 512
_TYPES = {
    stat.S_IFREG: b"0",
    stat.S_IFLNK: b"2",
    stat.S_IFCHR: b"3",
    stat.S_IFBLK: b"4",
    stat.S_IFDIR: b"5",
    stat.S_IFIFO: b"6",
}
_HARD_LINK = b"1"


def open_writer(
    file: BinaryIO, options: SquashfsOptions, *, processors: int, mkfs_time: int, temp_path: str
) -> SquashfsWriter | MksquashfsWriter:
    """Return what writes an image with these options: this package, or mksquashfs where it must.

    Args:
        file, options, processors, mkfs_time: as for `SquashfsWriter`.
        temp_path: a folder for the contents of files, which mksquashfs gets only at the end.

    Raises:
        UnsupportedError: naming the options, if only mksquashfs has them and it is not installed
            or too old; or if a compressor's library is missing.
    """
    if not options.foreign:
        return SquashfsWriter(file, options, processors=processors, mkfs_time=mkfs_time)
    return MksquashfsWriter(
        file, options, processors=processors, mkfs_time=mkfs_time, temp_path=temp_path
    )


class MksquashfsWriter:
    """Writes one image by mksquashfs; a `ContentSink` like `SquashfsWriter`.

    Attributes:
        mkfs_time: the image's time, unless the options say otherwise.
    """

    def __init__(
        self,
        file: BinaryIO,
        options: SquashfsOptions,
        *,
        processors: int,
        mkfs_time: int,
        temp_path: str,
    ) -> None:
        self.mkfs_time = mkfs_time
        self._file = file
        self._options = options
        self._processors = processors
        self._program = _find_program(options)
        self._spool = tempfile.TemporaryFile(dir=temp_path, prefix="enroot-")

    def __enter__(self) -> MksquashfsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def settled(self) -> int:
        """Up to here the file will not change any more: mksquashfs does not say."""
        return 0

    def close(self) -> None:
        """Remove the contents that were kept."""
        self._spool.close()

    def add(
        self, source: ByteSource, size: int, extents: Sequence[tuple[int, int]] | None = None
    ) -> object:
        """Keep the content of one file; see `ContentSink.add`."""
        start = self._spool.tell()
        for offset, length in [(0, size)] if extents is None else extents:
            self._spool.seek(start + offset)
            while length:
                data = source.take(min(length, _CHUNK))
                self._spool.write(data)
                length -= len(data)
        # Holes stay holes in the spool; the next file begins behind the last one.
        self._spool.truncate(start + size)
        self._spool.seek(start + size)
        return start

    def finish(self, root: Node) -> int:
        """Write the image; returns its size in bytes.

        Raises:
            SquashfsError: if mksquashfs fails; the hint is what it said.
        """
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                self._command(root),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=said,
                pass_fds=[self._file.fileno()],
                # It refuses -mkfs-time beside this variable, which is in the options already.
                env={name: os.environ[name] for name in os.environ if name != "SOURCE_DATE_EPOCH"},
            )
            assert process.stdin is not None
            try:
                with process:
                    for piece in _tar_stream(root, self._spool):
                        process.stdin.write(piece)
            except BrokenPipeError:
                pass  # its exit status and its words tell more
            if process.returncode:
                said.seek(0)
                raise SquashfsError(
                    f"mksquashfs failed with status {process.returncode}; ENROOT_SQUASH_OPTIONS "
                    f"calls for it: {', '.join(self._options.foreign)}",
                    hint=printable(_complaint(said.read(_CHUNK).decode("utf-8", "replace"))),
                )
        return os.fstat(self._file.fileno()).st_size

    def _command(self, root: Node) -> list[str]:
        options = self._options
        command = [self._program, "-", f"/proc/self/fd/{self._file.fileno()}", "-tar", "-noappend"]
        command += ["-quiet", "-no-progress", "-all-root", "-exports"]
        command += ["-root-mode", f"{root.mode:o}", "-root-time", str(max(root.mtime, 0))]
        if not options.processors:
            command += ["-processors", str(self._processors)]
        if not {"-mkfs-time", "-fstime"} & set(options.words):
            time = self.mkfs_time if options.mkfs_time is None else options.mkfs_time
            command += ["-mkfs-time", str(max(time, 0))]
        if options.all_time is not None and "-all-time" not in options.words:
            command += ["-all-time", str(options.all_time)]
        return [*command, *options.words]


def _complaint(text: str) -> str:
    """What mksquashfs says is wrong: it stands above its usage or a list, or else at the end."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if line.partition(":")[0].endswith(("mksquashfs", "ERROR"))]
    return (marked or lines[-1:] or [""])[0]


def _find_program(options: SquashfsOptions) -> str:
    names = ", ".join(options.foreign)
    program = shutil.which("mksquashfs")
    if program is None:
        raise UnsupportedError(
            f"ENROOT_SQUASH_OPTIONS has what only mksquashfs can do ({names}), which is missing",
            hint="install squashfs-tools, or leave these options out",
        )
    answer = subprocess.run([program, "-version"], capture_output=True, check=False).stdout
    version = re.search(rb"version (\d+)\.(\d+)", answer)
    # Before that it could not read a tar stream.
    if version is None or (int(version[1]), int(version[2])) < (4, 5):
        raise UnsupportedError(
            f"ENROOT_SQUASH_OPTIONS has what only mksquashfs can do ({names}), and {program}"
            " is too old",
            hint="install squashfs-tools 4.5 or newer, or leave these options out",
        )
    return program


def _tar_stream(root: Node, spool: BinaryIO) -> Iterator[bytes]:
    """Yield a pax archive of everything below `root`."""
    names: dict[int, bytes] = {}
    for path, node in walk(root):
        if node.kind == stat.S_IFSOCK:
            continue  # an archive cannot hold one
        first = names.setdefault(id(node), path)
        yield from _tar_header(path, node, b"" if first == path else first)
        if node.kind != stat.S_IFREG or first != path or node.content is None:
            continue
        assert isinstance(node.content, int)
        spool.seek(node.content)
        left = node.size
        while left:
            data = spool.read(min(left, _CHUNK))
            left -= len(data)
            yield data
        yield bytes(-node.size % _TAR_BLOCK)
    yield bytes(2 * _TAR_BLOCK)


def _tar_header(path: bytes, node: Node, first_name: bytes) -> Iterator[bytes]:
    kind = _HARD_LINK if first_name else _TYPES[node.kind]
    link = first_name or node.target
    size = node.size if kind == _TYPES[stat.S_IFREG] else 0
    # mksquashfs takes no time without a fraction.
    records = {b"path": path, b"size": b"%d" % size, b"mtime": b"%d.0" % max(node.mtime, 0)}
    if link:
        records[b"linkpath"] = link
    for name, value in (node.xattrs or {}).items():
        records[b"SCHILY.xattr." + name] = value
    pax = b"".join(_pax_record(key, value) for key, value in records.items())
    yield _ustar_header(b"pax", 0o644, len(pax), b"x", b"", (0, 0))
    yield pax + bytes(-len(pax) % _TAR_BLOCK)
    yield _ustar_header(path[-99:], node.mode, min(size, 0o77777777777), kind, link, node.device)


def _pax_record(key: bytes, value: bytes) -> bytes:
    """A record begins with its own length in decimal, which counts those digits too."""
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest) + 1
    while len(b"%d" % length) + len(rest) != length:
        length = len(b"%d" % length) + len(rest)
    return b"%d" % length + rest


def _ustar_header(
    name: bytes, mode: int, size: int, kind: bytes, link: bytes, device: tuple[int, int]
) -> bytes:
    def field(value: int, width: int) -> bytes:
        return b"%0*o\0" % (width - 1, value)

    header = name.ljust(100, b"\0") + field(mode, 8) + field(0, 8) + field(0, 8)
    header += field(size, 12) + field(0, 12) + b" " * 8 + kind + link[:100].ljust(100, b"\0")
    header += b"ustar\00000" + bytes(64) + field(device[0], 8) + field(device[1], 8)
    header = header.ljust(_TAR_BLOCK, b"\0")
    checksum = b"%06o\0 " % sum(header)
    return header[:148] + checksum + header[156:]
