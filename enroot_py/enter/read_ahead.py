"""Have an image's server unpack the shell and its C library while the container is set up.

What a container starts with is the same for nearly all images, and until it runs there are some
milliseconds in which the server has nothing to do. The kernel is asked to read the files ahead: it
sends the requests and does not wait for the answers.

Source: posix_fadvise(2); elf(5).
"""

from __future__ import annotations

import os
from stat import S_ISREG

from enroot_py.errors import KernelError
from enroot_py.linux.path import Place, resolve

_HEADER = 4096
_LONGEST_PATH = 255
_MOST_ENTRIES = 64
_INTERPRETER = 3  # PT_INTERP
_STEP = 128 << 10
"""The kernel reads no more ahead at a time where the device does not say otherwise."""

_LARGEST = 4 << 20


def read_ahead(root_fd: int, program: str) -> None:
    """Read a program, its loader and the C library beside that ahead; what fails is left out.

    Args:
        root_fd: the rootfs.
        program: path inside.
    """
    try:
        with resolve(root_fd, program) as place:
            loader = _find_loader(_read(place))
        if loader:
            with resolve(root_fd, loader) as place:
                _read(place)
                with resolve(place.folder_fd, "libc.so.6") as library:
                    _read(library)
    except (KernelError, OSError):
        return


def _read(place: Place) -> bytes:
    """Ask for a file to be read, and return its first bytes."""
    if not S_ISREG(os.fstat(place.fd).st_mode):
        return b""
    fd = os.open(place.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        size = min(os.fstat(fd).st_size, _LARGEST)
        for start in range(0, size, _STEP):
            os.posix_fadvise(fd, start, _STEP, os.POSIX_FADV_WILLNEED)
        return os.pread(fd, _HEADER, 0)
    finally:
        os.close(fd)


def _find_loader(header: bytes) -> str:
    """Return the path of an ELF program's loader, "" if it has none."""
    if header[:6] != b"\x7fELF\x02\x01":
        return ""
    start = int.from_bytes(header[32:40], "little")
    size = int.from_bytes(header[54:56], "little")
    count = int.from_bytes(header[56:58], "little")
    for entry in range(start, start + size * min(count, _MOST_ENTRIES), size or 1):
        if int.from_bytes(header[entry : entry + 4], "little") == _INTERPRETER:
            offset = int.from_bytes(header[entry + 8 : entry + 16], "little")
            path = header[offset : offset + _LONGEST_PATH].partition(b"\0")[0]
            return os.fsdecode(path) if path.startswith(b"/") else ""
    return ""
