"""Make a container's root filesystem out of an image."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from enroot_py import log
from enroot_py.errors import BusyError, ExistsError, UsageError
from enroot_py.settings import Settings, load_settings
from enroot_py.squashfs.reader import SquashfsImage
from enroot_py.store.cache_folders import make_private_folder
from enroot_py.store.containers import container_path, find_processes
from enroot_py.store.removal import remove_container
from enroot_py.store.workspace import new_folder

_SETTING = "ENROOT_DATA_PATH"


def create(
    image: str, name: str = "", *, settings: Settings | None = None, force: bool = False
) -> str:
    """Unpack an image into a container; returns the container's path.

    The container has its name only when it is complete. One that is replaced keeps its name and
    stays as it is until then.

    Args:
        image: path of a squashfs image.
        name: of the container; the image file's name without `.sqsh` if empty.
        settings: read from the system if None.
        force: replace a container of that name, as ENROOT_FORCE_OVERRIDE does.

    Raises:
        NotFoundError, SquashfsError: if there is no such image, or it is damaged.
        InvalidNameError: if a container cannot have this name.
        ExistsError: if there is a container of that name already.
        BusyError: if the container to be replaced is in use.
        SpaceError, StoreError: if the data folder is full or cannot be used.

    Source: enroot 4.1.2 src/runtime.sh, runtime::create().
    """
    settings = settings or load_settings()
    if not image:
        raise UsageError("Nothing to create a container from", hint="name an image file")
    image = os.path.realpath(image)
    with SquashfsImage(image, max_entries=settings.max_image_entries) as reader:
        name = name or _default_name(image)
        with new_container(name, settings=settings, force=force) as folder:
            log.info(f"Extracting {image}...")
            reader.extract(folder, processors=settings.max_processors)
        return container_path(settings, name)


def _default_name(image: str) -> str:
    return os.path.basename(image).removesuffix(".sqsh")


@contextmanager
def new_container(name: str, *, settings: Settings, force: bool = False) -> Iterator[str]:
    """Make a container: yields the empty folder to be filled, which then gets the name.

    A container that is replaced stays as it is until the new one is complete.

    Args:
        name: of the container.
        settings: say where containers are; ENROOT_FORCE_OVERRIDE is like `force`.
        force: replace a container of that name.

    Raises:
        InvalidNameError: if a container cannot have this name.
        ExistsError: if there is a container of that name already.
        BusyError: if the container to be replaced is in use.
        SpaceError, StoreError: if the data folder is full or cannot be used.
    """
    path = container_path(settings, name)
    force = force or settings.force_override
    if os.path.lexists(path):
        if not force:
            raise ExistsError(
                f"File already exists: {path}",
                hint="`enroot remove` it, choose another name, or replace it with --force",
            )
        if find_processes([path]).get(path):
            # Said before the work and not after it.
            raise BusyError(f"{path} is in use: processes run in it", hint="end them first")
    make_private_folder(settings.data_path, _SETTING)
    with new_folder(path, force=force, stage="unpacking an image", setting=_SETTING) as new:
        yield new.unfinished
        if force and os.path.lexists(path):
            remove_container(path)
