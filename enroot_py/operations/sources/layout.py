"""Images in an OCI layout: a folder, or one packed with tar.

Source: OCI image-spec 1.1, image-layout.md; containers-transports(5) for the names.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Protocol

from enroot_py.errors import (
    DigestMismatchError,
    LimitError,
    ManifestError,
    NotFoundError,
)
from enroot_py.image.config import MAX_CONFIG_SIZE, parse_image_config
from enroot_py.image.digest import Digest
from enroot_py.image.manifest import (
    MAX_MANIFEST_SIZE,
    OCI_INDEX,
    Descriptor,
    Index,
    Manifest,
    check_image,
    parse_manifest,
    select_manifest,
)
from enroot_py.image.platform import Platform
from enroot_py.layers.entry import ContentSink, Node
from enroot_py.log import printable
from enroot_py.operations.fetch import HeldLayer, LayerFetcher
from enroot_py.operations.progress import Progress
from enroot_py.operations.sources.archive_file import ArchiveFile
from enroot_py.operations.sources.image_source import ImageSource, SourceImage
from enroot_py.operations.sources.location import default_name, split_tag
from enroot_py.settings import Settings
from enroot_py.store.layout_index import REFERENCE_NAME

_CHUNK = 1 << 20
_MAX_DEPTH = 4


class _Files(Protocol):
    """The files of a layout, wherever they lie."""

    def read(self, name: str, limit: int) -> bytes:
        """Return a small file; raises NotFoundError or LimitError."""
        ...

    def open(self, name: str) -> HeldLayer:
        """Open a large one; raises NotFoundError."""
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...


class LayoutSource(ImageSource):
    """An image in an OCI layout."""

    def __init__(
        self, location: str, settings: Settings, platform: Platform, *, archived: bool
    ) -> None:
        """Note where it is.

        Args:
            location: `PATH[:TAG]`.
            settings, platform: as for ImageSource.
            archived: PATH is a tar archive.
        """
        path, tag = split_tag(location)
        super().__init__(settings, platform, default_name(path, tag))
        self._scheme = "oci-archive" if archived else "oci"
        self._path = path
        self._tag = tag
        self._archived = archived
        self._files: _Files | None = None
        self._manifest: Manifest | None = None

    def close(self) -> None:
        """Close the archive."""
        if self._files is not None:
            self._files.close()

    def describe(self) -> SourceImage:
        """Find the image in the layout's index.

        Raises:
            NotFoundError: if there is no such layout, tag or blob; the hint lists the tags.
            PlatformError: if there is no image for the platform.
            ManifestError, DigestMismatchError, UnsupportedError: if it is no image.
        """
        self._files = self._open_files()
        digest, manifest = self._find_manifest(self._files)
        check_image(manifest)
        data = _read_blob(self._files, manifest.config, MAX_CONFIG_SIZE)
        self._manifest = manifest
        name = os.path.basename(os.path.abspath(self._path))
        provenance = f"{self._scheme}:{name}{self._tag and ':' + self._tag}@{digest}"
        config = parse_image_config(data)
        self.check_architecture(config)
        return SourceImage(config, provenance, None)

    def flatten(self, sink: ContentSink, progress: Progress) -> Node:
        """Flatten the layers, each verified before it is.

        Raises:
            DigestMismatchError: if one is not what its digest says.
            As `LayerMerger`.
        """
        assert self._manifest is not None
        fetcher = LayerFetcher(
            tuple(reversed(self._manifest.layers)),
            {},
            self._verify,
            connections=self.settings.max_processors,
            progress=progress,
            here={layer.digest for layer in self._manifest.layers},
        )
        with fetcher:
            return fetcher.merge(sink, self.limits)

    def _open_files(self) -> _Files:
        if not self._archived:
            return _Folder(self._path)
        temp = self.settings.temp_path
        return _Archive(ArchiveFile(self._path, temp_path=temp, limits=self.limits))

    def _verify(
        self, layer: Descriptor, report: Callable[[int], None], called_off: Callable[[], bool]
    ) -> HeldLayer:
        assert self._files is not None
        held = self._files.open(blob_name(layer.digest))
        try:
            verify_blob(held, layer, report)
        except BaseException:
            held.file.close()
            raise
        return held

    def _find_manifest(self, files: _Files) -> tuple[Digest, Manifest]:
        index = parse_manifest(files.read("index.json", MAX_MANIFEST_SIZE), OCI_INDEX)
        if not isinstance(index, Index):
            raise ManifestError(f"{self._path}: index.json is not an index")
        entries = self._choose(index)
        entry = entries[0]
        if len(entries) > 1:
            entry = select_manifest(Index(entries), self.platform)
        for _ in range(_MAX_DEPTH):
            document = parse_manifest(_read_blob(files, entry, MAX_MANIFEST_SIZE), entry.media_type)
            if isinstance(document, Manifest):
                return entry.digest, document
            entry = select_manifest(document, self.platform)
        raise ManifestError(f"{self._path}: indexes lie within each other without end")

    def _choose(self, index: Index) -> tuple[Descriptor, ...]:
        """Return the images of that name; without one asked for, all, if all have the same."""
        names = [dict(entry.annotations).get(REFERENCE_NAME, "") for entry in index.manifests]
        shown = ", ".join(printable(name) for name in dict.fromkeys(names) if name)
        hint = f"say which, as {self._scheme}:PATH:TAG: {shown}" if shown else ""
        if not self._tag:
            if len(set(names)) > 1:
                raise NotFoundError(f"{self._path} holds several images", hint=hint)
            if not names:
                raise NotFoundError(f"{self._path} holds no image")
            return index.manifests
        entries = tuple(
            entry
            for entry, name in zip(index.manifests, names, strict=True)
            if self._tag in (name, str(entry.digest))
        )
        if not entries:
            raise NotFoundError(f"{self._path} has no image {printable(self._tag)}", hint=hint)
        return entries


class _Folder:
    """A layout in a folder."""

    def __init__(self, path: str) -> None:
        self._path = path
        if not os.path.isdir(path):
            raise NotFoundError(f"No such folder: {path}")
        if not os.path.lexists(os.path.join(path, "index.json")):
            raise NotFoundError(
                f"Not an OCI layout: {path}: no index.json in it",
                hint="a bare root filesystem is imported with dir:",
            )

    def read(self, name: str, limit: int) -> bytes:
        with self.open(name).file as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise LimitError(f"{printable(name)} in {self._path} has more than {limit} bytes")
        return data

    def open(self, name: str) -> HeldLayer:
        path = os.path.join(self._path, name)
        try:
            # O_NONBLOCK: a FIFO in a layout must not be waited for.
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise NotFoundError(f"{error.strerror}: {path}") from error
        held = HeldLayer(open(fd, "rb", buffering=0))
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            held.file.close()
            raise NotFoundError(f"Not a file: {path}")
        return held

    def close(self) -> None:
        return


class _Archive:
    """A layout in a tar archive."""

    def __init__(self, archive: ArchiveFile) -> None:
        self._archive = archive

    def read(self, name: str, limit: int) -> bytes:
        return self._archive.read(name, limit)

    def open(self, name: str) -> HeldLayer:
        return open_member(self._archive, name)

    def close(self) -> None:
        self._archive.close()


def _read_blob(files: _Files, descriptor: Descriptor, limit: int) -> bytes:
    if descriptor.size > limit:
        raise ManifestError(f"{descriptor.digest} is too large: {descriptor.size} bytes")
    data = files.read(blob_name(descriptor.digest), limit)
    if len(data) != descriptor.size or not descriptor.digest.matches(data):
        raise DigestMismatchError(f"Blob {descriptor.digest} has other contents")
    return data


def blob_name(digest: Digest) -> str:
    """Return the name of a blob's file within a layout."""
    return f"blobs/{digest.algorithm}/{digest.hex}"


def open_member(archive: ArchiveFile, name: str) -> HeldLayer:
    """Open a file of an archive, with a descriptor of its own.

    Raises:
        NotFoundError: if there is none of that name.
    """
    member = archive.find(name)
    if member is None:
        raise NotFoundError(f"No {printable(name)} in {archive.path}")
    fd = os.dup(archive.file.fileno())
    return HeldLayer(open(fd, "rb", buffering=0), member.start)


def verify_blob(held: HeldLayer, descriptor: Descriptor, report: Callable[[int], None]) -> None:
    """Read a blob and check its digest.

    Args:
        held: its file.
        descriptor: what it should be.
        report: is told how many bytes have been read.

    Raises:
        DigestMismatchError: if it is something else.
    """
    digest, position = descriptor.digest.new_hash(), 0
    while position < descriptor.size:
        chunk = os.pread(
            held.file.fileno(), min(_CHUNK, descriptor.size - position), held.start + position
        )
        if not chunk:
            break
        digest.update(chunk)
        position += len(chunk)
        report(position)
    if position < descriptor.size or digest.hexdigest() != descriptor.digest.hex:
        raise DigestMismatchError(
            f"Blob {descriptor.digest} has other contents: they hash to {digest.hexdigest()}"
        )
