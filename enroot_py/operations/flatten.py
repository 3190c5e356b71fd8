"""Flatten an image into a squashfs file, or into a root filesystem: the same tree either way."""

from __future__ import annotations

import calendar
import os
import re
from typing import BinaryIO

from enroot_py.errors import SpaceError
from enroot_py.layers.directory import DirectorySink
from enroot_py.layers.entry import Node, walk
from enroot_py.layers.image_files import add_image_files
from enroot_py.operations.progress import Progress
from enroot_py.operations.sources.image_source import ImageSource, SourceImage
from enroot_py.settings import Settings
from enroot_py.squashfs.mksquashfs import open_writer
from enroot_py.squashfs.options import SquashfsOptions, image_options
from enroot_py.store.file_system import space_error
from enroot_py.store.growing_copy import GrowingCopy

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[Zz]|([+-])(\d\d):(\d\d))"
)


def read_options(settings: Settings) -> SquashfsOptions:
    """Return how images are written, SOURCE_DATE_EPOCH included.

    Raises:
        SettingsError: if ENROOT_SQUASH_OPTIONS or that variable cannot be used.
    """
    epoch = settings.environment.get("SOURCE_DATE_EPOCH", "")
    return image_options(settings.squash_options, epoch)


def write_image(
    source: ImageSource,
    image: SourceImage,
    file: BinaryIO,
    progress: Progress,
    *,
    copy: GrowingCopy | None = None,
) -> None:
    """Flatten an image into a squashfs file.

    Args:
        source: described already.
        image: what it said.
        file: empty, open for reading and writing.
        progress: is told how it goes.
        copy: of `file`: begins to follow it. To be finished by the caller.

    Raises:
        EnrootError: whatever `ImageSource.flatten` and the writer raise.
    """
    settings = source.settings
    born = parse_time(image.config.created)
    with open_writer(
        file,
        read_options(settings),
        processors=settings.max_processors,
        mkfs_time=born,
        temp_path=settings.temp_path,
    ) as writer:
        if copy is not None:
            copy.follow(lambda: writer.settled)
        root = source.flatten(writer, progress)
        progress.stage("Creating squashfs filesystem")
        add_image_files(root, writer, image.config, image.provenance, mtime=born)
        writer.finish(root)


def write_rootfs(source: ImageSource, image: SourceImage, path: str, progress: Progress) -> None:
    """Flatten an image into an empty folder: what extracting its squashfs file would give.

    Raises:
        EnrootError: whatever `ImageSource.flatten` and `DirectorySink` raise.
    """
    try:
        with DirectorySink(path) as sink:
            root = source.flatten(sink, progress)
            progress.stage("Creating the root filesystem")
            born = parse_time(image.config.created)
            add_image_files(root, sink, image.config, image.provenance, mtime=born)
            time = read_options(source.settings).all_time
            if time is not None:
                _set_times(root, time)
            sink.finish(root)
    except SpaceError as error:
        if not str(error).startswith(path):
            raise  # the cache's, not the sink's
        raise space_error(
            os.path.dirname(path),
            stage="unpacking the image",
            setting="ENROOT_DATA_PATH",
            cause="No space left",
        ) from error


def _set_times(root: Node, time: int) -> None:
    root.mtime = time
    for _, node in walk(root):
        node.mtime = time


def parse_time(text: str) -> int:
    """Return an RFC 3339 time, such as an image's birth, as seconds since 1970; 0 if it is none.

    Nothing but an image's own words may decide a time in it, or two imports would differ.

    Source: RFC 3339, section 5.6.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return 0
    year, month, day, hour, minute, second = (int(match[at]) for at in range(1, 7))
    if not (year >= 1 and 1 <= month <= 12 and 1 <= day <= 31):
        return 0
    seconds = calendar.timegm((year, month, 1, hour, minute, second)) + (day - 1) * 86400
    if match[7]:
        offset = int(match[8]) * 3600 + int(match[9]) * 60
        seconds += offset if match[7] == "-" else -offset
    return seconds
