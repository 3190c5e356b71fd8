"""Unpack an image once for all its starts, for machines on which nothing can mount it."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

from enroot_py import log
from enroot_py.settings import Settings
from enroot_py.store.cache_folders import open_cache
from enroot_py.store.extractions import hold_extraction


def hold_image_files(image: str, settings: Settings) -> AbstractContextManager[str]:
    """Yield the path of a folder with an image's files; it is there while the block lasts.

    The folder is shared by every start of the image and must not be written to. A mount of it keeps
    it too, so that the block may end once the container has it.

    Args:
        image: absolute host path of the image.
        settings: say where the cache is and how many processors may work.

    Raises:
        SquashfsError: if the image is damaged.
        StoreError: if the cache cannot be used; SpaceError if it is full.
    """

    def extract(folder: str) -> None:
        from enroot_py.squashfs.reader import SquashfsImage  # all later starts do without it

        log.info(f"Unpacking {image}, once: squashfuse is missing or cannot serve it")
        with SquashfsImage(image, max_entries=settings.max_image_entries) as reader:
            reader.extract(folder, processors=settings.max_processors)

    folders = open_cache(settings.cache_path)
    return hold_extraction(folders, os.stat(image), extract)
