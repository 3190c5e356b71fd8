"""Which job made a named container: a later one finds what earlier ones have written to it.

The job's id is what enroot's lock file in the container's root folder holds; enroot itself leaves
that file empty, and leaves it out of images.
"""

from __future__ import annotations

import os

_LOCK = ".lock"
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # an image may hold anything of that name
_LONGEST = 20


def write_maker(rootfs: str, job: int) -> None:
    """Note that a job made a container; a disk that is full is no reason to fail."""
    try:
        fd = os.open(os.path.join(rootfs, _LOCK), os.O_WRONLY | os.O_CREAT | _FLAGS, 0o644)
    except OSError:
        return
    try:
        os.write(fd, f"{job}\n".encode("ascii"))
    except OSError:
        pass
    finally:
        os.close(fd)


def read_maker(rootfs: str) -> int:
    """Return the job that made a container, 0 if it is not known."""
    try:
        fd = os.open(os.path.join(rootfs, _LOCK), os.O_RDONLY | _FLAGS)
    except OSError:
        return 0
    try:
        text = os.read(fd, _LONGEST).strip()
    except OSError:
        return 0
    finally:
        os.close(fd)
    return int(text) if text.isdigit() and len(text) < _LONGEST else 0
