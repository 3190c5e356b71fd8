"""Images of a local container engine: their file system as one layer."""

from __future__ import annotations

from enroot_py.image.platform import Platform
from enroot_py.image.reference import Reference, default_name
from enroot_py.layers.entry import ContentSink, Node
from enroot_py.layers.merge import LayerMerger
from enroot_py.operations.progress import Progress
from enroot_py.operations.sources.image_source import ImageSource, SourceImage
from enroot_py.registry.daemon import DaemonImage
from enroot_py.settings import Settings


class DaemonSource(ImageSource):
    """An image of docker's daemon or of podman."""

    def __init__(self, reference: Reference, settings: Settings, platform: Platform) -> None:
        """Note which image of which engine."""
        super().__init__(settings, platform, default_name(reference))
        self._reference = reference
        self._image: DaemonImage | None = None

    def close(self) -> None:
        """Remove what the engine was asked to make."""
        if self._image is not None:
            self._image.close()

    def describe(self) -> SourceImage:
        """Ask the engine for the image.

        Raises:
            As `DaemonImage`.
        """
        image = self._image = DaemonImage(self._reference, self.settings, self.platform)
        self.check_architecture(image.config)
        return SourceImage(image.config, self._reference.canonical(), None)

    def flatten(self, sink: ContentSink, progress: Progress) -> Node:
        """Read the file system that the engine exports.

        Raises:
            RegistryError: if the engine fails.
            As `LayerMerger`.
        """
        assert self._image is not None
        progress.stage("Reading the image's files from the engine")
        merger = LayerMerger(sink, limits=self.limits)
        merger.add_layer(self._image.open, str(self._reference))
        root = merger.finish()
        # The engine's mark for programs that want to know that they run in its containers.
        assert root.children is not None
        root.children.pop(b".dockerenv", None)
        return root
