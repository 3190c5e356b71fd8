"""Single files in a registry, as `oras push` puts them there: a squashfs image, or a root
filesystem packed with tar.

Source: OCI image-spec 1.1, manifest.md, Guidelines for Artifact Usage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from enroot_py.errors import NotFoundError, UnsupportedError
from enroot_py.image.digest import Digest
from enroot_py.image.manifest import Descriptor
from enroot_py.image.platform import Platform
from enroot_py.image.reference import Reference, default_name
from enroot_py.layers.entry import ContentSink, Node
from enroot_py.operations.fetch import HeldLayer, LayerFetcher
from enroot_py.operations.progress import Progress
from enroot_py.operations.sources.image_source import ImageSource, SourceImage
from enroot_py.operations.sources.rootfs import empty_config
from enroot_py.registry.client import RegistryClient
from enroot_py.settings import Settings
from enroot_py.squashfs.superblock import MAGIC
from enroot_py.store.blobs import BlobStore


class ArtifactSource(ImageSource):
    """An artifact of one file in a registry."""

    def __init__(self, reference: Reference, settings: Settings, platform: Platform) -> None:
        """Note where it is."""
        super().__init__(settings, platform, default_name(reference))
        self._reference = reference
        self._client: RegistryClient | None = None
        self._store: BlobStore | None = None
        self._file: Descriptor | None = None

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    def describe(self) -> SourceImage:
        """Find the artifact.

        Raises:
            UnsupportedError: if it has more or less than one file.
            As `RegistryClient.get_artifact` and `BlobStore`.
        """
        client = self._client = RegistryClient(self._reference, self.settings)
        manifest = client.get_artifact(self.platform)
        if len(manifest.layers) != 1:
            raise UnsupportedError(
                f"{self._reference} holds {len(manifest.layers)} files",
                hint="an artifact of one squashfs image or tar archive can be imported;"
                " docker:// fetches container images",
            )
        self._file = manifest.layers[0]
        self._store = BlobStore(self.settings.cache_path)
        provenance = self._reference.pinned(self._file.digest).canonical()
        return SourceImage(empty_config(self.platform), provenance, None)

    def open_finished(self, progress: Progress) -> BinaryIO | None:
        """Fetch the file, and return it if it is an image already.

        Raises:
            As `RegistryClient.download_blob` and `BlobStore.create`.
        """
        assert self._file is not None
        with self._fetch(progress) as fetcher:
            fetcher.wait_for(self._file)
            file = fetcher.open(self._file)
        if file.read(len(MAGIC)) == MAGIC:
            return file
        file.close()
        return None

    def flatten(self, sink: ContentSink, progress: Progress) -> Node:
        """Read the root filesystem that the file is an archive of.

        Raises:
            As `open_finished` and `LayerMerger`.
        """
        with self._fetch(progress) as fetcher:
            return fetcher.merge(sink, self.limits)

    def _fetch(self, progress: Progress) -> LayerFetcher:
        assert self._file is not None
        assert self._store is not None
        found: dict[Digest, HeldLayer] = {}
        try:
            found[self._file.digest] = HeldLayer(self._store.open(self._file))
        except NotFoundError:
            pass  # to be downloaded
        return LayerFetcher((self._file,), found, self._obtain, connections=1, progress=progress)

    def _obtain(
        self, layer: Descriptor, report: Callable[[int], None], called_off: Callable[[], bool]
    ) -> HeldLayer:
        client = self._client
        assert client is not None
        assert self._store is not None
        file = self._store.obtain(
            layer,
            lambda writer: client.download_blob(layer, writer, report),
            private=client.authenticated,
            cancelled=called_off,
        )
        return HeldLayer(file)
