"""Images in what `docker save` and `podman save` write: a tar archive with `manifest.json`.

Source: moby image/spec/v1.2.md, Combined Image JSON + Filesystem Changeset Format.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from enroot_py.errors import DigestMismatchError, ManifestError, NotFoundError
from enroot_py.image.config import MAX_CONFIG_SIZE, ImageConfig, parse_image_config
from enroot_py.image.digest import Digest, digest_of
from enroot_py.image.manifest import MAX_LAYERS, MAX_MANIFEST_SIZE, Descriptor, load_json
from enroot_py.image.platform import Platform
from enroot_py.layers.compression import decompress
from enroot_py.layers.entry import ContentSink, Node
from enroot_py.log import printable
from enroot_py.operations.fetch import HeldLayer, LayerFetcher, LayerFile
from enroot_py.operations.progress import Progress
from enroot_py.operations.sources.archive_file import ArchiveFile
from enroot_py.operations.sources.image_source import ImageSource, SourceImage
from enroot_py.operations.sources.layout import open_member
from enroot_py.operations.sources.location import default_name, split_tag
from enroot_py.settings import Settings


@dataclass(frozen=True, slots=True)
class _Saved:
    """One image of `manifest.json`: names of files in the archive, base layer first."""

    config: str
    names: tuple[str, ...]
    layers: tuple[str, ...]


class DockerArchiveSource(ImageSource):
    """An image in an archive of docker's own format."""

    def __init__(self, location: str, settings: Settings, platform: Platform) -> None:
        """Note where it is: `FILE[:IMAGE]`."""
        path, name = split_tag(location)
        super().__init__(settings, platform, default_name(path, name))
        self._path = path
        self._name = name
        self._archive: ArchiveFile | None = None
        self._layers: dict[Digest, str] = {}
        self._order: tuple[Descriptor, ...] = ()

    def close(self) -> None:
        """Close the archive."""
        if self._archive is not None:
            self._archive.close()

    def describe(self) -> SourceImage:
        """Find the image in the archive's list.

        Raises:
            NotFoundError: if it is not there; the hint lists those that are.
            ManifestError, LayerError: if the archive is malformed.
        """
        temp = self.settings.temp_path
        archive = self._archive = ArchiveFile(self._path, temp_path=temp, limits=self.limits)
        saved = self._choose(_parse_list(archive.read("manifest.json", MAX_MANIFEST_SIZE)))
        data = archive.read(saved.config, MAX_CONFIG_SIZE)
        config = parse_image_config(data)
        self.check_architecture(config)
        self._order = self._describe_layers(archive, saved, config)
        name = self._name or (saved.names[0] if saved.names else os.path.basename(self._path))
        return SourceImage(config, f"docker-archive:{name}@{digest_of(data)}", None)

    def flatten(self, sink: ContentSink, progress: Progress) -> Node:
        """Flatten the layers, each verified before it is.

        Raises:
            DigestMismatchError: if one is not the one that the image's config names.
            As `LayerMerger`.
        """
        fetcher = LayerFetcher(
            tuple(reversed(self._order)),
            {},
            self._verify,
            connections=self.settings.max_processors,
            progress=progress,
            here={layer.digest for layer in self._order},
        )
        with fetcher:
            return fetcher.merge(sink, self.limits)

    def _choose(self, images: list[_Saved]) -> _Saved:
        shown = ", ".join(printable(name) for image in images for name in image.names)
        hint = f"say which, as docker-archive:FILE:IMAGE: {shown}" if shown else ""
        if not self._name:
            if len(images) != 1:
                raise NotFoundError(f"{self._path} holds {len(images)} images", hint=hint)
            return images[0]
        for image in images:
            if any(_means(self._name, name) for name in image.names):
                return image
        raise NotFoundError(f"{self._path} has no image {printable(self._name)}", hint=hint)

    def _describe_layers(
        self, archive: ArchiveFile, saved: _Saved, config: ImageConfig
    ) -> tuple[Descriptor, ...]:
        if len(config.diff_ids) != len(saved.layers):
            raise ManifestError(
                f"{self._path}: {len(saved.layers)} layers, but the image's config speaks of"
                f" {len(config.diff_ids)}"
            )
        described = []
        for digest, name in zip(config.diff_ids, saved.layers, strict=True):
            member = archive.find(name)
            if member is None:
                raise NotFoundError(f"No layer {printable(name)} in {self._path}")
            self._layers[digest] = name
            described.append(Descriptor("", digest, member.size))
        return tuple(described)

    def _verify(
        self, layer: Descriptor, report: Callable[[int], None], called_off: Callable[[], bool]
    ) -> HeldLayer:
        """Check a layer; its digest is that of its uncompressed archive."""
        assert self._archive is not None
        held = open_member(self._archive, self._layers[layer.digest])
        try:
            digest = layer.digest.new_hash()
            fd = os.open(f"/proc/self/fd/{held.file.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
            with LayerFile(fd, held.start, layer.size, report) as file:
                for chunk in decompress(file, f"Layer {layer.digest.hex[:12]}", self.limits):
                    digest.update(chunk)
            if digest.hexdigest() != layer.digest.hex:
                raise DigestMismatchError(
                    f"Layer {layer.digest} has other contents: they hash to {digest.hexdigest()}"
                )
        except BaseException:
            held.file.close()
            raise
        return held


def _parse_list(data: bytes) -> list[_Saved]:
    document = load_json(data, "manifest.json")
    if not isinstance(document, list) or not document:
        raise ManifestError("manifest.json is not a list of images")
    return [_parse_saved(entry) for entry in document]


def _parse_saved(entry: object) -> _Saved:
    if not isinstance(entry, dict):
        raise ManifestError("manifest.json holds something other than images")
    config, names, layers = (entry.get(key) for key in ("Config", "RepoTags", "Layers"))
    lists = [value if value is not None else [] for value in (names, layers)]
    for value in lists:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ManifestError("manifest.json holds something other than lists of names")
    if not isinstance(config, str) or not lists[1] or len(lists[1]) > MAX_LAYERS:
        raise ManifestError("manifest.json describes an image without config or layers")
    return _Saved(config, tuple(lists[0]), tuple(lists[1]))


def _means(asked: str, name: str) -> bool:
    """Say whether a name that a person gave stands for one that docker gave."""
    forms = [name.removeprefix(prefix) for prefix in ("", "docker.io/", "docker.io/library/")]
    return asked in forms or f"{asked}:latest" in forms
