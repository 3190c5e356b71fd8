"""What a cache holds, and making it smaller: least recently used first, never what is in use.

What belongs to other users of a shared cache is not seen. Files of NVIDIA's Enroot, which lie in
the same folder, are listed, but neither counted nor removed unless their removal is asked for: it
may be using them, and knows no locks.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from enroot_py.errors import EnrootError
from enroot_py.image.digest import Digest
from enroot_py.image.manifest import Index, Manifest, parse_manifest
from enroot_py.store.blobs import blob_path
from enroot_py.store.cache_folders import CacheFolders
from enroot_py.store.extractions import remove_extraction
from enroot_py.store.images import SUFFIX
from enroot_py.store.layout_index import forget_images, read_index
from enroot_py.store.locks import is_current, try_lock
from enroot_py.store.recompressed import list_recompressed
from enroot_py.store.removal import remove_unfinished

BLOB, IMAGE, EXTRACTION, PARTIAL = "blob", "image", "extraction", "partial"
NVIDIA = "nvidia"

_FRESH = 24 * 3600.0
"""Seconds for which an interrupted download is kept, for the next import to continue it."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One thing in the cache.

    Attributes:
        kind: "blob" (layer, config or manifest), "image" (finished), "extraction", "partial" (an
            interrupted download) or "nvidia" (a layer or config that NVIDIA's Enroot keeps).
        name: a digest, or a file name.
        path: absolute host path.
        size: bytes on the disk.
        used: when it was last used, in seconds since 1970.
        references: names of the images that it belongs to, sorted; empty if no image needs it.
    """

    kind: str
    name: str
    path: str
    size: int
    used: float
    references: tuple[str, ...]


def list_entries(folders: CacheFolders) -> list[CacheEntry]:
    """Return what the cache holds of this user's, least recently used first."""
    names, manifests = _references(folders)
    entries = [*_blobs(folders, names), *_images(folders, manifests)]
    entries += _partials(folders)
    entries += _extractions(folders)
    entries += _recompressed(folders, names)
    return sorted(entries, key=lambda entry: (entry.used, entry.path))


def prune(folders: CacheFolders) -> list[CacheEntry]:
    """Remove what nothing needs; returns what was removed.

    That is: blobs that belong to no image the cache knows, downloads that were interrupted more
    than a day ago, and whatever killed processes left unfinished.
    """
    remove_unfinished_of(folders)
    oldest = time.time() - _FRESH
    unneeded = [
        entry
        for entry in list_entries(folders)
        if entry.kind == BLOB and not entry.references and entry.used < oldest
    ]
    return remove_stale_partials(folders) + _remove_all(folders, unneeded)


def remove_unfinished_of(folders: CacheFolders) -> None:
    """Remove what killed processes left unfinished in a cache, but nothing still in the making."""
    for folder in (folders.images, folders.extracted, folders.private, *folders.layouts):
        remove_unfinished(folder)


def remove_recompressed(folders: CacheFolders) -> list[CacheEntry]:
    """Remove what NVIDIA's Enroot keeps, but for what an import here is using just now.

    Returns what was removed. For when nobody uses NVIDIA's Enroot any more.
    """
    return [entry for entry in _recompressed(folders, {}) if _remove(entry)]


def remove_stale_partials(folders: CacheFolders) -> list[CacheEntry]:
    """Remove downloads that were interrupted more than a day ago; returns what was removed."""
    oldest = time.time() - _FRESH
    return [entry for entry in _partials(folders) if entry.used < oldest and _remove(entry)]


def shrink(folders: CacheFolders, limit: int) -> list[CacheEntry]:
    """Remove the least recently used entries until the cache has at most `limit` bytes.

    Returns what was removed. Of the rest each is in use.
    """
    entries = [entry for entry in list_entries(folders) if entry.kind != NVIDIA]
    excess = sum(entry.size for entry in entries) - limit
    removed = []
    for entry in entries:
        if excess <= 0:
            break
        if _remove(entry):
            removed.append(entry)
            excess -= entry.size
    _forget(folders, removed)
    return removed


def _remove_all(folders: CacheFolders, entries: Iterable[CacheEntry]) -> list[CacheEntry]:
    removed = [entry for entry in entries if _remove(entry)]
    _forget(folders, removed)
    return removed


def _forget(folders: CacheFolders, removed: list[CacheEntry]) -> None:
    """Take the images out of the indexes that lack a blob now."""
    gone = {entry.name for entry in removed if entry.kind == BLOB}
    for layout in folders.layouts if gone else ():
        broken = [
            str(entry.descriptor.digest)
            for entry in read_index(layout)
            if str(entry.descriptor.digest) in gone
            or gone.intersection(map(str, _needed(layout, entry.descriptor.digest)))
        ]
        forget_images(layout, frozenset(broken))


def _remove(entry: CacheEntry) -> bool:
    """Remove one entry unless it is in use; say whether it is gone."""
    try:
        if entry.kind == EXTRACTION:
            return remove_extraction(entry.path)
        fd = os.open(entry.path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not try_lock(fd, entry.path) or not is_current(fd, entry.path):
                return False
            os.unlink(entry.path)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # another user's
    return True


def _references(folders: CacheFolders) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return the images' names by path of each blob, and by hex digest of each manifest."""
    by_path: dict[str, set[str]] = {}
    by_manifest: dict[str, set[str]] = {}
    for layout in folders.layouts:
        for entry in read_index(layout):
            digest = entry.descriptor.digest
            name = entry.name or str(digest)
            by_manifest.setdefault(digest.hex, set()).add(name)
            for needed in (digest, *_needed(layout, digest)):
                for holder in folders.layouts:
                    by_path.setdefault(blob_path(holder, needed), set()).add(name)
    return by_path, by_manifest


def _needed(layout: str, digest: Digest) -> Iterator[Digest]:
    try:
        with open(blob_path(layout, digest), "rb") as file:
            manifest = parse_manifest(file.read())
    except (OSError, EnrootError):
        return
    if isinstance(manifest, Manifest):
        yield manifest.config.digest
        yield from (layer.digest for layer in manifest.layers)
    elif isinstance(manifest, Index):
        yield from (entry.digest for entry in manifest.manifests)


def _files(folder: str) -> Iterator[tuple[str, str, os.stat_result]]:
    try:
        with os.scandir(folder) as listing:
            found = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in found:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # gone meanwhile
        if status.st_uid == os.geteuid():
            yield entry.name, entry.path, status


def _blobs(folders: CacheFolders, names: dict[str, set[str]]) -> Iterator[CacheEntry]:
    for layout in folders.layouts:
        for algorithm in ("sha256", "sha512"):
            for name, path, status in _files(os.path.join(layout, "blobs", algorithm)):
                references = tuple(sorted(names.get(path, ())))
                yield _entry(BLOB, f"{algorithm}:{name}", path, status, references)


def _images(folders: CacheFolders, manifests: dict[str, set[str]]) -> Iterator[CacheEntry]:
    for name, path, status in _files(folders.images):
        if name.endswith(SUFFIX) and stat.S_ISREG(status.st_mode):
            references = tuple(sorted(manifests.get(name.partition("-")[0], ())))
            yield _entry(IMAGE, name, path, status, references)


def _partials(folders: CacheFolders) -> Iterator[CacheEntry]:
    for name, path, status in _files(folders.partial):
        if stat.S_ISREG(status.st_mode):
            # Its last write counts: nobody reads what is only half there.
            size, used = status.st_blocks * 512, status.st_mtime
            yield CacheEntry(PARTIAL, name.replace("-", ":", 1), path, size, used, ())


def _extractions(folders: CacheFolders) -> Iterator[CacheEntry]:
    for name, path, status in _files(folders.extracted):
        if stat.S_ISDIR(status.st_mode) and not name.startswith("."):
            size = sum(_sizes(path))
            yield CacheEntry(EXTRACTION, name, path, size, status.st_mtime, ())


def _recompressed(folders: CacheFolders, names: dict[str, set[str]]) -> Iterator[CacheEntry]:
    for name, path, status in list_recompressed(folders):
        blob = blob_path(folders.layouts[0], Digest("sha256", os.path.basename(path)))
        yield _entry(NVIDIA, name, path, status, tuple(sorted(names.get(blob, ()))))


def _sizes(path: str) -> Iterator[int]:
    for folder, _, files in os.walk(path, onerror=None):
        for name in files:
            try:
                yield os.lstat(os.path.join(folder, name)).st_blocks * 512
            except OSError:
                continue


def _entry(
    kind: str, name: str, path: str, status: os.stat_result, references: tuple[str, ...]
) -> CacheEntry:
    used = max(status.st_atime, status.st_mtime)
    return CacheEntry(kind, name, path, status.st_blocks * 512, used, references)
