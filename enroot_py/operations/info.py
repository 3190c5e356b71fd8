"""Gather the configuration in force: versions, files read, paths and their file systems, settings.

Looks only; nothing is created. Whether all of it is in order is `doctor`'s question.

Source: enroot 4.1.2 enroot.in, enroot::info().
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from enroot_py.settings import VERSION, Settings, config_files, load_settings
from enroot_py.store.file_system import FileSystem, find_file_system


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


def _package_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pyxis-enroot")
    except PackageNotFoundError:
        return "unknown"  # run from a source folder that was never installed
