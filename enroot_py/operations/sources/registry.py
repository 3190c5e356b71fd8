"""Images in a registry, through the cache: what is there is not fetched again.

Nor is what NVIDIA's Enroot has there, as far as it can be verified (`takeover`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from enroot_py.errors import EnrootError, NotFoundError
from enroot_py.image.config import parse_image_config
from enroot_py.image.digest import Digest
from enroot_py.image.manifest import Descriptor, Manifest, parse_manifest
from enroot_py.image.platform import Platform
from enroot_py.image.reference import Reference, default_name
from enroot_py.layers.entry import ContentSink, Node
from enroot_py.operations.fetch import HeldLayer, LayerFetcher
from enroot_py.operations.progress import Progress
from enroot_py.operations.sources.image_source import ImageSource, SourceImage
from enroot_py.operations.sources.takeover import Takeover, read_config
from enroot_py.registry.client import RegistryClient, ResolvedImage
from enroot_py.settings import Settings
from enroot_py.store.blobs import BlobStore, BlobWriter
from enroot_py.store.cache_folders import SETTING
from enroot_py.store.file_system import find_file_system, space_error
from enroot_py.store.layout_index import read_index, record_image
from enroot_py.store.trimming import remove_stale_partials


class RegistrySource(ImageSource):
    """An image that a registry serves."""

    def __init__(self, reference: Reference, settings: Settings, platform: Platform) -> None:
        super().__init__(settings, platform, default_name(reference))
        self._reference = reference
        self._client: RegistryClient | None = None
        self._private = False
        self._image: ResolvedImage | None = None
        self._opened: BlobStore | None = None
        self._takeover: Takeover | None = None
        self._asking = threading.Lock()

    @property
    def _store(self) -> BlobStore:
        if self._opened is None:
            self._opened = BlobStore(self.settings.cache_path)
        return self._opened

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    def describe(self) -> SourceImage:
        """Find the image: in the cache if it is asked for by digest, else at the registry.

        Raises:
            As `RegistryClient.get_manifest` and `BlobStore`.
        """
        image = self._find_cached() or self._ask_registry()
        self._image = image
        size = sum(layer.size for layer in image.manifest.layers)
        return SourceImage(image.config, image.reference.canonical(), image.manifest_digest, size)

    def flatten(self, sink: ContentSink, progress: Progress) -> Node:
        """Flatten the layers while they arrive.

        Raises:
            As `RegistryClient.download_blob`, `BlobStore.create` and `LayerMerger`.
        """
        assert self._image is not None
        layers = tuple(reversed(self._image.manifest.layers))
        found = self._open_found(layers)
        missing = {layer.digest: layer for layer in layers if layer.digest not in found}
        takeover = self._takeover = Takeover(
            self._store.folders, self._image.manifest, self._image.config, self.limits
        )
        here = {digest for digest, layer in missing.items() if takeover.may_have(layer)}
        if missing.keys() - here:
            remove_stale_partials(self._store.folders)
            self._check_space(sum(missing[digest].size for digest in missing.keys() - here))
            self._connect()
        fetcher = LayerFetcher(
            layers,
            found,
            self._obtain,
            connections=self.settings.max_connections,
            progress=progress,
            here=here,
        )
        with fetcher:
            return fetcher.merge(sink, self.limits)

    def _connect(self) -> RegistryClient:
        """Return the registry's client; an image found in the cache has needed none so far."""
        with self._asking:
            if self._client is None:
                self._ask_registry()
            assert self._client is not None
            return self._client

    def _ask_registry(self) -> ResolvedImage:
        client = self._client = RegistryClient(self._reference, self.settings)
        image = client.get_manifest(self.platform, read_config=self._read_config)
        self._private = image.authenticated
        size = len(image.manifest_bytes)
        descriptor = Descriptor(
            image.manifest.media_type, image.manifest_digest, size, platform=self.platform
        )
        self._store.put(descriptor, image.manifest_bytes, private=self._private)
        layout = self._store.folders.layout(private=self._private)
        record_image(layout, descriptor, str(self._reference))
        return image

    def _read_config(self, descriptor: Descriptor) -> bytes:
        client = self._client
        assert client is not None

        def download(writer: BlobWriter) -> None:
            writer.restart()
            data = read_config(self._store.folders, descriptor)
            writer.write(client.read_blob(descriptor) if data is None else data)

        with self._store.obtain(descriptor, download, private=client.authenticated) as file:
            return file.read()

    def _find_cached(self) -> ResolvedImage | None:
        """Return an image that this repository has served before under this very digest."""
        asked = self._reference.digest
        if asked is None:
            return None
        for layout in self._store.folders.layouts:
            for entry in read_index(layout):
                if entry.descriptor.digest == asked and self._is_same_repository(entry.name):
                    return self._read_cached(entry.descriptor, asked)
        return None

    def _is_same_repository(self, name: str) -> bool:
        digest = self._reference.digest
        assert digest is not None
        repository = str(self._reference).removesuffix(f"@{digest}")
        return name.startswith((f"{repository}:", f"{repository}@"))

    def _read_cached(self, descriptor: Descriptor, digest: Digest) -> ResolvedImage | None:
        try:
            data = self._store.read(descriptor)
            manifest = parse_manifest(data, descriptor.media_type)
            assert isinstance(manifest, Manifest)
            config_bytes = self._store.read(manifest.config)
            config = parse_image_config(config_bytes)
        except EnrootError:
            return None  # trimmed, or never complete: the registry has it
        if config.architecture != self.platform.architecture:
            return None  # whether that is an error is decided where images are chosen
        reference = self._reference.pinned(digest)
        return ResolvedImage(
            reference, manifest, digest, data, None, config, config_bytes, self._private
        )

    def _open_found(self, layers: tuple[Descriptor, ...]) -> dict[Digest, HeldLayer]:
        found: dict[Digest, HeldLayer] = {}
        for layer in layers:
            if layer.digest not in found:
                try:
                    found[layer.digest] = HeldLayer(self._store.open(layer))
                except NotFoundError:
                    continue
        return found

    def _check_space(self, needed: int) -> None:
        path = self._store.folders.path
        system = find_file_system(path)
        if system.size and system.free < needed:
            raise space_error(
                path,
                stage="downloading the layers",
                setting=SETTING,
                cause="Not enough space left",
                needed=needed,
            )

    def _obtain(
        self, layer: Descriptor, report: Callable[[int], None], called_off: Callable[[], bool]
    ) -> HeldLayer:
        assert self._takeover is not None
        held = self._takeover.open(layer, report)
        if held is not None:
            return held
        client = self._connect()
        file = self._store.obtain(
            layer,
            lambda writer: client.download_blob(layer, writer, report),
            private=self._private,
            cancelled=called_off,
        )
        return HeldLayer(file)
