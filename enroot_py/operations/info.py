"""Gather the configuration in force: versions, files read, paths and their file systems, settings.

Looks only; nothing is created. Whether all of it is in order is `doctor`'s question. The second
half tells what an image or a container is made of.

Source: enroot 4.1.2 enroot.in, enroot::info(); src/docker.sh, docker::configure(), for the
comments of /etc/rc.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from enroot_py.errors import NotFoundError
from enroot_py.linux.path import read_beneath
from enroot_py.settings import VERSION, Settings, config_files, load_settings
from enroot_py.store.containers import find_container
from enroot_py.store.file_system import FileSystem, find_file_system

_SCRIPT = "/etc/rc"
_LARGEST_SCRIPT = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class PathInfo:
    """One ENROOT_*_PATH setting.

    Attributes:
        variable: e.g. "ENROOT_DATA_PATH".
        path: absolute path on the host; it need not exist.
        exists: whether it does.
        file_system: where it is, or would be; None if that cannot be told.
    """

    variable: str
    path: str
    exists: bool
    file_system: FileSystem | None


@dataclass(frozen=True, slots=True)
class Info:
    """The configuration in force.

    Attributes:
        version: the version of Enroot that this package equals.
        package_version: the version of this package.
        config_files: configuration files in the order in which they are read, and whether they
            are there.
        paths: every ENROOT_*_PATH.
        environment: every ENROOT_* variable, as hooks get it.
    """

    version: str
    package_version: str
    config_files: tuple[tuple[str, bool], ...]
    paths: tuple[PathInfo, ...]
    environment: Mapping[str, str]


def info(*, settings: Settings | None = None) -> Info:
    """Return the configuration in force."""
    settings = settings or load_settings()
    return Info(
        version=VERSION,
        package_version=_package_version(),
        config_files=tuple((path, os.path.isfile(path)) for path in config_files(settings)),
        paths=tuple(map(describe_path, *zip(*setting_paths(settings), strict=True))),
        environment={
            key: value
            for key, value in sorted(settings.environment.items())
            if key.startswith("ENROOT_")
        },
    )


def setting_paths(settings: Settings) -> list[tuple[str, str]]:
    """Return every ENROOT_*_PATH setting: its variable and its absolute path."""
    return [
        ("ENROOT_LIBRARY_PATH", settings.library_path),
        ("ENROOT_SYSCONF_PATH", settings.sysconf_path),
        ("ENROOT_CONFIG_PATH", settings.config_path),
        ("ENROOT_RUNTIME_PATH", settings.runtime_path),
        ("ENROOT_CACHE_PATH", settings.cache_path),
        ("ENROOT_DATA_PATH", settings.data_path),
        ("ENROOT_TEMP_PATH", settings.temp_path),
    ]


def describe_path(variable: str, path: str) -> PathInfo:
    """Return what there is to know about the path of a setting."""
    try:
        file_system = find_file_system(path)
    except OSError:
        file_system = None
    return PathInfo(variable, path, os.path.isdir(path), file_system)


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """What an image or a container says of itself.

    Attributes:
        path: absolute path of the image or the rootfs.
        kind: "image" or "container".
        provenance: the URI that it was imported from, "" if that is not known.
        labels: the image's labels in order, as written behind the provenance.
        size: bytes of an image; 0 for a container, whose size nobody knows without a walk.
        entries: files, folders and links of an image; 0 for a container.
        compression: of an image; "" for a container.
    """

    path: str
    kind: str
    provenance: str
    labels: tuple[tuple[str, str], ...]
    size: int = 0
    entries: int = 0
    compression: str = ""


def describe(target: str, *, settings: Settings | None = None) -> ImageInfo:
    """Return what an image or a container is made of.

    Args:
        target: an image's path, or a container's name.

    Raises:
        NotFoundError: if there is no such image or container.
        SquashfsError: if the image is damaged.
    """
    if os.path.isfile(target):
        return _describe_image(os.path.abspath(target))
    settings = settings or load_settings()
    path = find_container(settings, target)
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        script = read_beneath(fd, _SCRIPT, limit=_LARGEST_SCRIPT) or b""
    finally:
        os.close(fd)
    return ImageInfo(path, "container", *_read_comments(script))


def _describe_image(path: str) -> ImageInfo:
    from enroot_py.squashfs.reader import SquashfsImage
    from enroot_py.squashfs.superblock import read_superblock

    superblock = read_superblock(path)
    script = b""
    with SquashfsImage(path) as image:
        try:
            script = image.read(_SCRIPT)
        except NotFoundError:
            pass  # made by another program
    return ImageInfo(
        path,
        "image",
        *_read_comments(script),
        size=superblock.bytes_used,
        entries=superblock.inode_count,
        compression=superblock.compressor,
    )


def _read_comments(script: bytes) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The provenance and the labels: the comments that the command script begins with."""
    provenance, labels = "", []
    for line in script.decode("utf-8", "replace").split("\n"):
        if not line.startswith("# "):
            break
        key, _, value = line[2:].partition(" ")
        if key == "enroot-provenance:" and not provenance:
            provenance = value
        else:
            labels.append((key, value))
    return provenance, tuple(labels)


def _package_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pyxis-enroot")
    except PackageNotFoundError:
        return "unknown"  # run from a source folder that was never installed
