"""What a full, read-only or failing file system is called, and on which path and setting.

The kernel says "No space left on device" and nothing else; users have five paths that may be on
five file systems. Not for anything inside a rootfs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EDQUOT, EFBIG, EIO, ENOSPC, EPERM, EROFS, ESTALE

from enroot_py.errors import EnrootError, SpaceError, StoreError
from enroot_py.settings import format_size as format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

NETWORK_KINDS = (
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "ceph", "9p", "fuse.sshfs",
)  # fmt: skip
"""Types of file systems that several machines may share."""

_NAMED = (EACCES, EPERM, EROFS, ESTALE, EIO, EFBIG)


class FileSystem(NamedTuple):
    """The file system that a path is on.

    Attributes:
        mount_point: absolute path, e.g. "/home"; "?" if /proc does not tell.
        kind: its type, e.g. "ext4".
        size: bytes in all; 0 where it does not say (ramfs), and then `free` means nothing.
        free: bytes that this user may still write, quotas left aside.
        free_inodes: files that may still be made; -1 where there is no such limit.
        options: mount options, e.g. ("rw", "nosuid").
    """

    mount_point: str
    kind: str
    size: int
    free: int
    free_inodes: int
    options: tuple[str, ...]


def find_file_system(path: str) -> FileSystem:
    """Return the file system of `path`, or of its nearest parent that exists.

    Raises:
        OSError: if no parent can be looked at.
    """
    path = os.path.abspath(path)
    while True:
        try:
            status = os.stat(path)
            break
        except (FileNotFoundError, NotADirectoryError):
            path = os.path.dirname(path)
    space = os.statvfs(path)
    mount_point, kind, options = _find_mount(os.path.realpath(path), status.st_dev)
    return FileSystem(
        mount_point=mount_point,
        kind=kind,
        size=space.f_blocks * space.f_frsize,
        free=space.f_bavail * space.f_frsize,
        free_inodes=space.f_favail if space.f_files else -1,
        options=options,
    )


def _find_mount(path: str, device: int) -> tuple[str, str, tuple[str, ...]]:
    """Return mount point, type and options of the longest mount above `path` on that device.

    Source: proc(5), /proc/pid/mountinfo.
    """
    number = f"{os.major(device)}:{os.minor(device)}"
    best: tuple[str, str, tuple[str, ...]] = ("?", "?", ())
    best_rank = (False, -1)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields, _, rest = line.partition(" - ")
            _, _, mount_device, _, point, options, *_ = fields.split(" ")
            point = _unescape(point)
            if path != point and not path.startswith(point.rstrip("/") + "/"):
                continue
            # btrfs gives files other device numbers than its mount: then the path alone decides.
            rank = (mount_device == number, len(point))
            if rank >= best_rank:  # of two mounts in one place the later one is on top
                best, best_rank = (point, rest.split(" ")[0], tuple(options.split(","))), rank
    return best


def _unescape(text: str) -> str:
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escape, character)
    return text


def space_error(path: str, *, stage: str, setting: str, cause: str, needed: int = 0) -> SpaceError:
    """Return the error for a file system that is full, or too small.

    Args:
        path: what was written, an absolute host path.
        stage: what was being done, e.g. "storing a layer".
        setting: the variable or option that moves it elsewhere, e.g. "ENROOT_CACHE_PATH".
        cause: the kernel's words.
        needed: bytes that were asked for, 0 if not known.
    """
    try:
        system = find_file_system(path)
        where = f"{system.mount_point} ({system.kind}, {format_size(system.free)} free"
        where += ", no inodes free)" if system.free_inodes == 0 else ")"
    except OSError:
        where = "an unknown file system"
    asked = f", {format_size(needed)} needed" if needed else ""
    return SpaceError(
        f"{cause} while {stage}: {path} on {where}{asked}",
        hint=f"free some space there, or have {setting} point to a larger file system",
    )


@contextmanager
def explaining(path: str, *, stage: str, setting: str) -> Iterator[None]:
    """Turn what the kernel says about a file being written into an error that names it.

    Args:
        path, stage, setting: as in `space_error`.

    Raises:
        SpaceError: for a full file system or quota.
        StoreError: for one that is read-only, stale, failing or forbidden.
    """
    try:
        yield
    except EnrootError:
        raise  # a KernelError is an OSError too, and says what it is about
    except OSError as error:
        if error.errno in (ENOSPC, EDQUOT):
            cause = "No space left" if error.errno == ENOSPC else "Disk quota exceeded"
            raise space_error(path, stage=stage, setting=setting, cause=cause) from error
        if error.errno in _NAMED:
            limit = "files are limited in size (ulimit -f, or by the file system); "
            raise StoreError(
                f"{error.strerror} while {stage}: {error.filename or path}",
                hint=f"{limit if error.errno == EFBIG else ''}{setting} may point elsewhere",
            ) from error
        raise
