"""Layers and configs that NVIDIA's Enroot keeps, as files directly in ENROOT_CACHE_PATH.

Each bears the hex digits of the blob's digest, but holds the blob's uncompressed bytes, compressed
anew with zstd. It is opened here, by whoever may; what it holds is for the caller to verify
(docs/adr/0070-files-of-nvidias-cache.md). Nothing is ever written to these files, nor is their
order in time: NVIDIA's Enroot, which knows no locks, may use them at any moment.

Source: enroot 4.1.2 src/docker.sh, docker::_download_extract().
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import BinaryIO

from enroot_py.image.digest import Digest
from enroot_py.image.manifest import Descriptor
from enroot_py.log import printable, warn
from enroot_py.store.blobs import note_use
from enroot_py.store.cache_folders import CacheFolders
from enroot_py.store.locks import is_current, try_lock

_NAME = re.compile(r"[0-9a-f]{64}(\.[0-9A-Za-z]{10})?")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1 << 20
_SLACK = 1 << 20


def recompressed_path(folders: CacheFolders, digest: Digest) -> str:
    """Return where NVIDIA's Enroot keeps a blob; "" if it can't, by the digest's algorithm."""
    return os.path.join(folders.path, digest.hex) if digest.algorithm == "sha256" else ""


def has_recompressed(folders: CacheFolders, descriptor: Descriptor) -> bool:
    """Say whether there is such a file, whatever it may be worth."""
    path = recompressed_path(folders, descriptor.digest)
    try:
        return bool(path) and stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def open_recompressed(folders: CacheFolders, descriptor: Descriptor) -> BinaryIO | None:
    """Open NVIDIA's file of a blob, unverified; None if there is none that can be used.

    While it is open it is not trimmed here, and nobody but this user or root can change what is
    read from it: of a file that somebody else could write to, a copy without a name is opened.
    """
    path = recompressed_path(folders, descriptor.digest)
    if not path:
        return None
    try:
        file = open(os.open(path, _READ), "rb", buffering=0)
    except FileNotFoundError:
        return None
    except OSError as error:
        warn(f"{printable(path)} cannot be used: {error.strerror}")
        return None
    usable: BinaryIO | None = None
    try:
        usable = _usable(file, path, folders, descriptor)
    except OSError as error:
        warn(f"{printable(path)} cannot be used: {error.strerror}")
    finally:
        if usable is not file:
            file.close()
    return usable


def _usable(
    file: BinaryIO, path: str, folders: CacheFolders, descriptor: Descriptor
) -> BinaryIO | None:
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        return None
    # Whoever removes it here holds the lock meanwhile.
    if not try_lock(file.fileno(), path, exclusive=False) or not is_current(file.fileno(), path):
        return None
    note_use(file, status)
    if status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022:
        return file
    return _copy(file, folders, 2 * descriptor.size + _SLACK)


def _copy(file: BinaryIO, folders: CacheFolders, most: int) -> BinaryIO | None:
    """Copy what others may write to; None if it has more bytes than any such file would."""
    fd = os.open(folders.partial, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    copy: BinaryIO = open(fd, "w+b", buffering=0)
    try:
        left = most
        while chunk := file.read(_CHUNK):
            left -= len(chunk)
            if left < 0:
                copy.close()
                return None
            view = memoryview(chunk)
            while view:
                view = view[copy.write(view) :]
    except BaseException:
        copy.close()
        raise
    copy.seek(0)
    return copy


def list_recompressed(folders: CacheFolders) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield digest (or name, of a file on its way), path and status of this user's such files."""
    try:
        with os.scandir(folders.path) as listing:
            found = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in found:
        match = _NAME.fullmatch(entry.name)
        if match is None:
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # gone meanwhile
        if status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode):
            yield (entry.name if match[1] else f"sha256:{entry.name}"), entry.path, status
