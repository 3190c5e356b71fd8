"""What every source of images has in common, and which one a URI means."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO

from enroot_py import log
from enroot_py.image.config import ImageConfig
from enroot_py.image.digest import Digest
from enroot_py.image.platform import Platform
from enroot_py.image.reference import DAEMON_SCHEMES, parse_reference
from enroot_py.layers.entry import ContentSink, Limits, Node
from enroot_py.operations.progress import Progress
from enroot_py.settings import Settings

LOCAL_SCHEMES = ("oci", "oci-archive", "docker-archive", "tar", "dir")
"""Schemes that are followed by a path: `oci:PATH[:TAG]`."""

_SCHEME = re.compile(r"([a-z][a-z-]*):(//)?(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SourceImage:
    """What is known of an image before its contents are read.

    Attributes:
        config: what it wants run, and the like; an empty one for bare root filesystems.
        provenance: the URI that is written into it: without user, with a digest where there is one,
            the same on every machine.
        manifest: digest that everything in it follows from; None if there is none, and then the
            image is made anew each time.
        size: what may have to be fetched into the cache for it, in bytes.
    """

    config: ImageConfig
    provenance: str
    manifest: Digest | None
    size: int = 0


class ImageSource(ABC):
    """One image, somewhere. A context manager: it may hold connections, files and processes."""

    def __init__(self, settings: Settings, platform: Platform, default_name: str) -> None:
        """Note what is asked for; nothing is looked at yet.

        Args:
            settings: in force.
            platform: what the image has to run on.
            default_name: of a container or, with `.sqsh`, a file, when none is asked for.
        """
        self.settings = settings
        self.platform = platform
        self.default_name = default_name

    def __enter__(self) -> ImageSource:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of whatever is held; harmless when done already."""
        return

    @abstractmethod
    def describe(self) -> SourceImage:
        """Find the image and return what is known of it without its layers.

        Raises:
            NotFoundError: if it is not there.
            EnrootError: whatever else keeps it from being had.
        """

    def open_finished(self, progress: Progress) -> BinaryIO | None:
        """Open the squashfs image that this source has instead of layers, if it has one.

        After `describe` and before `flatten`, which is not needed then.
        """
        return None

    @abstractmethod
    def flatten(self, sink: ContentSink, progress: Progress) -> Node:
        """Read the contents into `sink` and return the tree; once, after `describe`.

        Raises:
            LayerError: if a layer is malformed, or larger than the limits allow.
            EnrootError: whatever else keeps it from being had.
        """

    def check_architecture(self, config: ImageConfig) -> None:
        """Warn if an image is made for another architecture than asked for."""
        if config.architecture and config.architecture != self.platform.architecture:
            log.warn(
                "The image is made for another architecture than asked for: "
                f"{config.architecture} != {self.platform.architecture}"
            )

    @property
    def limits(self) -> Limits:
        """What the layers may bring at most."""
        limits = Limits(max_bytes=self.settings.max_image_size)
        if self.settings.max_image_entries:
            limits = Limits(limits.max_bytes, self.settings.max_image_entries)
        return limits


def open_source(uri: str, settings: Settings, platform: Platform) -> ImageSource:
    """Return the source that a URI means; nothing is looked at yet.

    Raises:
        InvalidReferenceError: naming what is wrong with it.
    """
    match = _SCHEME.fullmatch(uri)
    if match and match[1] in LOCAL_SCHEMES:
        return _open_local(match[1], match[3], settings, platform)
    reference = parse_reference(uri)
    if reference.scheme in DAEMON_SCHEMES:
        from enroot_py.operations.sources.daemon import DaemonSource

        return DaemonSource(reference, settings, platform)
    if reference.scheme == "oras":
        from enroot_py.operations.sources.artifact import ArtifactSource

        return ArtifactSource(reference, settings, platform)
    from enroot_py.operations.sources.registry import RegistrySource

    return RegistrySource(reference, settings, platform)


def _open_local(scheme: str, path: str, settings: Settings, platform: Platform) -> ImageSource:
    if scheme in ("oci", "oci-archive"):
        from enroot_py.operations.sources.layout import LayoutSource

        return LayoutSource(path, settings, platform, archived=scheme == "oci-archive")
    if scheme == "docker-archive":
        from enroot_py.operations.sources.docker_archive import DockerArchiveSource

        return DockerArchiveSource(path, settings, platform)
    from enroot_py.operations.sources.rootfs import RootfsFolderSource, RootfsTarSource

    if scheme == "tar":
        return RootfsTarSource(path, settings, platform)
    return RootfsFolderSource(path, settings, platform)
