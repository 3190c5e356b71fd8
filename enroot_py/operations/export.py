"""Make an image out of a container's root filesystem."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from errno import EPERM
from typing import BinaryIO

from enroot_py import log
from enroot_py.errors import UnsupportedError, UsageError
from enroot_py.gpu.rootfs.leftover import cache_without_injection
from enroot_py.layers.entry import ContentSink, Node, walk
from enroot_py.layers.scan import ForeignFileError, scan_directory
from enroot_py.settings import Settings, load_settings
from enroot_py.squashfs.mksquashfs import open_writer
from enroot_py.squashfs.options import SquashfsOptions, image_options
from enroot_py.store.containers import find_container
from enroot_py.store.workspace import new_file


def export(
    name: str, output: str = "", *, settings: Settings | None = None, force: bool = False
) -> str:
    """Write a container's root filesystem into an image; returns the image's absolute path.

    The same tree gives the same bytes. Owner and group of everything are 0. The image has its name
    only when it is complete; one that is replaced stays as it is until then.

    Args:
        name: of the container.
        output: path of the image; NAME.sqsh in the current folder if empty.
        settings: read from the system if None.
        force: replace a file of that name, as ENROOT_FORCE_OVERRIDE does.

    Raises:
        NotFoundError: if there is no such container, or no folder for the image.
        ExistsError: if there is a file of the image's name already.
        StoreError: if something in the container cannot be read, another user's files for one, or
            the image not be written.
        SpaceError: if the image's file system is full.
        SettingsError, UnsupportedError: if ENROOT_SQUASH_OPTIONS cannot be used.

    Source: enroot 4.1.2 src/runtime.sh, runtime::export().
    """
    settings = settings or load_settings()
    if not name:
        raise UsageError("Nothing to export", hint="name a container; `enroot list` shows them")
    rootfs = find_container(settings, name)
    options = _export_options(settings)
    with new_file(
        output or f"{os.path.basename(rootfs)}.sqsh",
        force=force or settings.force_override,
        stage="writing the image",
        setting="--output",
    ) as new:
        log.info(f"Creating {new.path}...")
        try:
            _write_image(rootfs, new.file, options, settings)
        except ForeignFileError as error:
            _write_as_mapped_root(rootfs, new.file, options, settings, error)
    return new.path


def _write_image(rootfs: str, file: BinaryIO, options: SquashfsOptions, settings: Settings) -> None:
    with open_writer(
        file,
        options,
        processors=settings.max_processors,
        mkfs_time=0,
        temp_path=settings.temp_path,
    ) as writer:
        root = scan_directory(rootfs, writer)
        _forget_gpus(root, rootfs, writer)
        # An image is as old as the youngest thing in it, not as the clock says.
        writer.mkfs_time = _latest_time(root, options)
        writer.finish(root)


def _write_as_mapped_root(
    rootfs: str,
    file: BinaryIO,
    options: SquashfsOptions,
    settings: Settings,
    refusal: ForeignFileError,
) -> None:
    """Begin again in a child that may read what belongs to this user's subordinate ids.

    Raises:
        ForeignFileError: the refusal, if that is no help: the files are another user's.
        OSError: the image cannot be written.
    """
    # Only for such files; what it needs would slow every other export.
    from enroot_py.linux.subordinate import run_as_mapped_root

    def write() -> None:
        try:
            _write_image(rootfs, file, options, settings)
        except ForeignFileError as error:
            raise PermissionError(EPERM, str(error)) from error
        file.flush()

    file.seek(0)
    file.truncate()
    try:
        run_as_mapped_root(write)
    except (UnsupportedError, PermissionError):
        raise refusal from None


class _Bytes:
    """Gives bytes that are in memory; a `ByteSource`."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def take(self, size: int) -> bytes:
        taken, self.content = self.content[:size], self.content[size:]
        return taken


def _forget_gpus(root: Node, rootfs: str, sink: ContentSink) -> None:
    """Write the loader's cache without the entries that a start with GPUs added to it.

    The rootfs keeps them: the container may be running.
    """
    folder = (root.children or {}).get(b"etc")
    node = (folder.children or {}).get(b"ld.so.cache") if folder is not None else None
    if node is None or node.kind != stat.S_IFREG or not node.size:
        return
    content = cache_without_injection(rootfs)
    if content is not None:
        node.content, node.size = sink.add(_Bytes(content), len(content)), len(content)


def _export_options(settings: Settings) -> SquashfsOptions:
    """With SOURCE_DATE_EPOCH later times become that one; earlier ones are kept.

    Source: mksquashfs(1), SOURCE_DATE_EPOCH, which the original's export leaves to it.
    """
    options = image_options(
        settings.squash_options, settings.environment.get("SOURCE_DATE_EPOCH", "")
    )
    if "-all-time" in options.words or options.all_time is None:
        return options
    return replace(options, all_time=None, latest_time=options.all_time)


def _latest_time(root: Node, options: SquashfsOptions) -> int:
    latest = max((node.mtime for _, node in walk(root)), default=root.mtime)
    latest = max(latest, root.mtime, 0)
    return latest if options.latest_time is None else min(latest, options.latest_time)
