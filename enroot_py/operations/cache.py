"""Show what the cache holds, and trim it."""

from __future__ import annotations

from enroot_py.settings import Settings, load_settings
from enroot_py.store import trimming
from enroot_py.store.cache_folders import find_cache
from enroot_py.store.trimming import CacheEntry as CacheEntry


def list_cache(*, settings: Settings | None = None) -> list[CacheEntry]:
    """Return what the cache holds of this user's, least recently used first; makes nothing."""
    settings = settings or load_settings()
    return trimming.list_entries(find_cache(settings.cache_path))


def prune_cache(*, nvidia: bool = False, settings: Settings | None = None) -> list[CacheEntry]:
    """Remove what nothing needs from the cache; returns what was removed.

    That is: blobs that belong to no image, downloads that were interrupted more than a day ago, and
    what killed processes left. Safe while imports run.

    Args:
        nvidia: remove what NVIDIA's Enroot keeps in the same folder too, which is not safe while
            an import of NVIDIA's Enroot runs.
        settings: in force; read from the configuration if None.
    """
    folders = find_cache((settings or load_settings()).cache_path)
    removed = trimming.prune(folders)
    return removed + trimming.remove_recompressed(folders) if nvidia else removed


def limit_cache(size: int | None = None, *, settings: Settings | None = None) -> list[CacheEntry]:
    """Remove the least recently used entries until the cache fits; returns what was removed.

    What is in use stays. Safe while imports run.

    Args:
        size: bytes; ENROOT_CACHE_LIMIT if None.
        settings: in force; read from the configuration if None.
    """
    settings = settings or load_settings()
    limit = settings.cache_limit if size is None else size
    if size is None and not limit:
        return []  # no limit is set
    return trimming.shrink(find_cache(settings.cache_path), limit)
