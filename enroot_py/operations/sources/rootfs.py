"""Bare root filesystems: a tar archive, or a folder. They have no config and no digest."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import BinaryIO

from enroot_py.errors import NotFoundError
from enroot_py.image.config import ImageConfig
from enroot_py.image.platform import Platform
from enroot_py.layers.entry import ContentSink, Node
from enroot_py.layers.merge import LayerMerger
from enroot_py.layers.scan import scan_directory
from enroot_py.operations.progress import Progress
from enroot_py.operations.sources.image_source import ImageSource, SourceImage
from enroot_py.operations.sources.location import default_name
from enroot_py.settings import Settings


def empty_config(platform: Platform) -> ImageConfig:
    """Return the config of an image that wants nothing: it starts a shell."""
    return ImageConfig(
        architecture=platform.architecture, os="linux", entrypoint=(), cmd=(), env=(),
        working_dir="", user="", volumes=(), labels=(), created="", diff_ids=(), history=(),
    )  # fmt: skip


class _RootfsSource(ImageSource):
    """A root filesystem at a path of this machine."""

    scheme = ""

    def __init__(self, path: str, settings: Settings, platform: Platform) -> None:
        """Note where it is."""
        super().__init__(settings, platform, default_name(path))
        self._path = path

    def describe(self) -> SourceImage:
        """Make sure that it is there.

        Raises:
            NotFoundError: if not.
        """
        self._check()
        provenance = f"{self.scheme}:{os.path.basename(os.path.abspath(self._path))}"
        return SourceImage(empty_config(self.platform), provenance, None)

    @abstractmethod
    def _check(self) -> None: ...


class RootfsTarSource(_RootfsSource):
    """A root filesystem in a tar archive, compressed with gzip or zstd or not at all."""

    scheme = "tar"

    def _check(self) -> None:
        # Not opened yet: of a pipe the other end might take that for all.
        if not os.path.exists(self._path):
            raise NotFoundError(f"No such file: {self._path}")

    def flatten(self, sink: ContentSink, progress: Progress) -> Node:
        """Read the archive, as the only layer of an image.

        Raises:
            As `LayerMerger`.
        """
        progress.stage(f"Reading {self._path}")
        merger = LayerMerger(sink, limits=self.limits)
        merger.add_layer(self._open, os.path.basename(self._path))
        return merger.finish()

    def _open(self) -> BinaryIO:
        try:
            return open(self._path, "rb", buffering=0)
        except OSError as error:
            raise NotFoundError(f"{error.strerror}: {self._path}") from error


class RootfsFolderSource(_RootfsSource):
    """A root filesystem in a folder."""

    scheme = "dir"

    def _check(self) -> None:
        if not os.path.isdir(self._path):
            raise NotFoundError(f"No such folder: {self._path}")

    def flatten(self, sink: ContentSink, progress: Progress) -> Node:
        """Read the folder.

        Raises:
            StoreError: if something in it cannot be read.
        """
        progress.stage(f"Reading {self._path}")
        return scan_directory(self._path, sink)
