"""Undo what an injection leaves in a writable rootfs: entries in its loader cache.

They lead to a folder that is gone with the container, and the loader passes over them, unless the
image has a library of the same name outside of the default folders. Imports little: the check runs
at every start.
"""

from __future__ import annotations

import os

from enroot_py.errors import KernelError, UnsupportedError
from enroot_py.linux.path import read_beneath, resolve

CACHE = "/etc/ld.so.cache"
_MARK = b"/enroot/gpu/lib"
_FOLDERS = ("/run/enroot/gpu", "/var/run/enroot/gpu", "/tmp/enroot/gpu")
_LIMIT = 16 << 20


def has_leftover(rootfs: str) -> bool:
    """Tell whether a rootfs's loader cache has entries of ours.

    Args:
        rootfs: absolute host path.
    """
    root_fd = os.open(rootfs, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        content = read_beneath(root_fd, CACHE, limit=_LIMIT)
        return content is not None and _MARK in content
    except KernelError:
        return False
    finally:
        os.close(root_fd)


def strip_cache(content: bytes) -> bytes | None:
    """Return a loader cache without our entries; None if it has none, or cannot be read."""
    if _MARK not in content:
        return None
    from enroot_py.gpu.loader.cache import build_cache, parse_cache, remove_entries

    try:
        cache = parse_cache(content)
    except UnsupportedError:
        return None
    stripped = cache
    for folder in _FOLDERS:
        stripped = remove_entries(stripped, folder)
    return None if stripped == cache else build_cache(stripped)


def cache_without_injection(rootfs: str) -> bytes | None:
    """Return a rootfs's loader cache without our entries; None if there are none to leave out.

    Args:
        rootfs: absolute host path.
    """
    root_fd = os.open(rootfs, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        content = read_beneath(root_fd, CACHE, limit=_LIMIT)
        return strip_cache(content) if content is not None else None
    except KernelError:
        return None
    finally:
        os.close(root_fd)


def restore_cache(rootfs: str) -> bool:
    """Remove our entries from a rootfs's loader cache; tells whether there were any.

    A rootfs that cannot be written is left as it is.

    Args:
        rootfs: absolute host path.
    """
    root_fd = os.open(rootfs, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        content = read_beneath(root_fd, CACHE, limit=_LIMIT)
        stripped = strip_cache(content) if content is not None else None
        if stripped is None:
            return False
        with resolve(root_fd, "/etc") as place:
            temporary = f"{place.path}/.ld.so.cache.enroot-{os.getpid()}"
            with open(temporary, "xb") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(stripped)
            os.rename(temporary, f"{place.path}/ld.so.cache")
        return True
    except (KernelError, OSError):
        return False
    finally:
        os.close(root_fd)
