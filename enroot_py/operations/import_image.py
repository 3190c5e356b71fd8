"""Import an image: fetch it, flatten it, write it to a file.

Source: enroot 4.1.2 src/docker.sh, docker::import().
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from enroot_py import log
from enroot_py.errors import SpaceError, StoreError
from enroot_py.image.platform import parse_platform
from enroot_py.operations.flatten import read_options, write_image
from enroot_py.operations.progress import Progress
from enroot_py.operations.sources.image_source import ImageSource, SourceImage, open_source
from enroot_py.settings import Settings, load_settings
from enroot_py.store.cache_folders import open_cache
from enroot_py.store.file_system import explaining
from enroot_py.store.growing_copy import GrowingCopy
from enroot_py.store.images import SUFFIX, ImageKey, ImageStore, copy_file
from enroot_py.store.trimming import shrink
from enroot_py.store.workspace import NewFile, new_file

_STAGE, _SETTING = "writing the image", "--output"


def import_image(
    uri: str,
    output: str = "",
    *,
    settings: Settings | None = None,
    arch: str = "",
    force: bool = False,
    progress: Progress | None = None,
) -> str:
    """Fetch an image and write it to a squashfs file, which appears whole or not at all.

    The same image, options and reference give the same bytes on every machine. What the cache
    holds is not fetched again, and a finished image not even made again.

    Args:
        uri: e.g. "docker://ubuntu:24.04", "oci:FOLDER:TAG", "tar:FILE".
        output: path of the file; by default the image's name in the current folder.
        settings: in force; read from the configuration if None.
        arch: architecture of the image as uname, Debian or Go spell it; "" for the host's.
        force: replace an existing file.
        progress: is told how it goes.

    Returns:
        The file's absolute path.

    Raises:
        ExistsError: if the file is there.
        EnrootError: for everything else; nothing is left then.
    """
    settings = settings or load_settings()
    with open_source(uri, settings, parse_platform(arch or os.uname().machine)) as source:
        path = os.path.abspath(output or source.default_name + SUFFIX)
        with (
            new_file(path, force=force, stage=_STAGE, setting=_SETTING) as new,
            progress or Progress() as shown,
        ):
            _write(source, new, shown)
            return new.path


def _write(source: ImageSource, output: NewFile, progress: Progress) -> None:
    image = source.describe()
    key = image_key(source, image)
    if key is None:
        _write_uncached(source, image, output.file, progress)
        return
    store = ImageStore(open_cache(source.settings.cache_path))
    with _finished(store, key, progress) as finished:
        if finished is not None:
            copy_file(finished, output.file)
            return
        _write_and_keep(source, image, output, progress, store=store, key=key)
    trim_cache(source.settings)


def _write_uncached(
    source: ImageSource, image: SourceImage, file: BinaryIO, progress: Progress
) -> None:
    finished = source.open_finished(progress)
    if finished is None:
        write_image(source, image, file, progress)
        return
    with finished:
        copy_file(finished, file)


def image_key(source: ImageSource, image: SourceImage) -> ImageKey | None:
    """Return what the finished image is called in the cache; None if it is not to be kept."""
    if image.manifest is None:
        return None
    options = read_options(source.settings)
    return ImageKey(
        manifest=image.manifest,
        architecture=str(source.platform).replace("/", "-").removeprefix("linux-"),
        squash_options=f"{options.identity()} {options.mkfs_time} {options.all_time}",
        provenance=image.provenance,
    )


@contextmanager
def _finished(store: ImageStore, key: ImageKey, progress: Progress) -> Iterator[BinaryIO | None]:
    """Yield the finished image, or None with the duty and the sole right to make it."""
    finished = store.open(key)
    if finished is None:
        lock = store.lock(key)
        if not lock.try_acquire():
            progress.stage("Waiting for another process that imports the same image")
            lock.acquire()
        try:
            finished = store.open(key)
            if finished is None:
                yield None
                return
        finally:
            lock.release()
    log.info("Found the finished image in the cache")
    with finished:
        yield finished


def _write_and_keep(
    source: ImageSource,
    image: SourceImage,
    output: NewFile,
    progress: Progress,
    *,
    store: ImageStore,
    key: ImageKey,
) -> None:
    """Write an image and a copy of it in the cache; a copy without space is no reason to fail."""
    begun = written = False
    try:
        with (
            store.create(key) as new,
            GrowingCopy(output.file, new.file, reserve=image.size) as copy,
        ):
            begun = True
            # A full file system is that of the output until the output is written.
            with explaining(output.path, stage=_STAGE, setting=_SETTING):
                write_image(source, image, output.file, progress, copy=copy)
            written = True
            copy.finish()
    except SpaceError as error:
        if begun and not written:
            raise
        log.warn(f"The image is not kept in the cache: {error}")
    if not written:
        write_image(source, image, output.file, progress)


def trim_cache(settings: Settings) -> None:
    """Shrink the cache to ENROOT_CACHE_LIMIT, if there is one."""
    if settings.cache_limit:
        shrink(open_cache(settings.cache_path), settings.cache_limit)


@contextmanager
def cached_image(
    uri: str,
    *,
    settings: Settings | None = None,
    arch: str = "",
    progress: Progress | None = None,
) -> Iterator[str]:
    """Yield the path of an image in the cache, importing it first if need be.

    For launchers that start containers straight from the cache. The file must not be written to. It
    is not trimmed while the `with` block lasts; whoever has opened or mounted it by then keeps it.

    Args:
        uri, settings, arch, progress: as for `import_image`.

    Raises:
        EnrootError: as `import_image`.
    """
    settings = settings or load_settings()
    source = open_source(uri, settings, parse_platform(arch or os.uname().machine))
    with source, progress or Progress() as shown:
        image = source.describe()
        key = image_key(source, image)
        if key is None:
            with tempfile.TemporaryDirectory(dir=settings.temp_path, prefix="enroot-") as folder:
                path = os.path.join(folder, source.default_name + SUFFIX)
                stage, setting = "writing the image", "ENROOT_TEMP_PATH"
                with new_file(path, stage=stage, setting=setting) as new:
                    _write_uncached(source, image, new.file, shown)
                yield path
            return
        store = ImageStore(open_cache(settings.cache_path))
        with _finished(store, key, shown) as finished:
            if finished is None:
                with store.create(key) as new:
                    write_image(source, image, new.file, shown)
        # Its making is over, and with it the lock; from here on it is held like any other.
        with _finished(store, key, shown) as finished:
            if finished is None:
                raise StoreError(f"The image has been removed from {settings.cache_path}")
            yield store.path(key)
