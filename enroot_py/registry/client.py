"""Pulls one image from its registry or a mirror: manifests and blobs, every byte checked.

    with RegistryClient(reference, settings) as client:
        image = client.get_manifest(platform)
        for layer in image.manifest.layers:
            client.download_blob(layer, target, progress)

Methods may be called from several threads at once, `get_manifest` first. Where bytes are kept is
not decided here: see `store/`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from enroot_py import log
from enroot_py.errors import ManifestError, NotFoundError, RegistryError, UnsupportedError
from enroot_py.image.config import MAX_CONFIG_SIZE, ImageConfig, parse_image_config
from enroot_py.image.digest import Digest
from enroot_py.image.manifest import (
    FOREIGN_LAYER_TYPES,
    Descriptor,
    Manifest,
    check_image,
    select_manifest,
)
from enroot_py.image.platform import Platform
from enroot_py.image.reference import Reference
from enroot_py.registry.accounts.credentials import PasswordPrompt, ask_on_terminal
from enroot_py.registry.auth import Authenticator
from enroot_py.registry.endpoints import find_endpoints
from enroot_py.registry.failures import TransferError
from enroot_py.registry.repository import BlobTarget, Document, Progress, Repository
from enroot_py.registry.transport import Transport
from enroot_py.settings import Settings

MAX_INDEX_DEPTH = 4

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class ResolvedImage:
    """One platform's image, found and checked; its layers are still to be fetched.

    Attributes:
        reference: by the manifest's digest, without user.
        manifest: with its layers, base layer first.
        manifest_digest: of the manifest's bytes.
        manifest_bytes: as the registry has them.
        index_digest: of the index that the manifest was chosen from, or None.
        config: parsed.
        config_bytes: as the registry has them.
        authenticated: credentials were needed, so the bytes are not everybody's to see.
    """

    reference: Reference
    manifest: Manifest
    manifest_digest: Digest
    manifest_bytes: bytes
    index_digest: Digest | None
    config: ImageConfig
    config_bytes: bytes
    authenticated: bool


class RegistryClient:
    """Pulls the image that a reference names. A context manager.

    Args:
        reference: scheme "docker" or "oras".
        settings: limits, credentials, mirrors, authorities.
        transport: sends the requests; one of its own if None, which it then closes.
        ask_password: asks a person when the reference names a user without a known password.

    Raises:
        SettingsError: if the mirrors cannot be understood.
    """

    def __init__(
        self,
        reference: Reference,
        settings: Settings,
        *,
        transport: Transport | None = None,
        ask_password: PasswordPrompt = ask_on_terminal,
    ) -> None:
        self.reference = reference
        self.settings = settings
        self._transport = transport or Transport(settings)
        self._owns_transport = transport is None
        endpoints = find_endpoints(reference, settings)
        self._repositories = [
            Repository(
                endpoint,
                self._transport,
                Authenticator(
                    endpoint,
                    self._transport,
                    user="" if endpoint.mirror else reference.user,
                    ask_password=ask_password,
                ),
            )
            for endpoint in endpoints
        ]
        self._lock = threading.Lock()

    def __enter__(self) -> RegistryClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._owns_transport:
            self._transport.close()

    def get_manifest(
        self, platform: Platform, *, read_config: Callable[[Descriptor], bytes] | None = None
    ) -> ResolvedImage:
        """Find the image for a platform, and fetch its manifest and config.

        Args:
            platform: what the image has to run on.
            read_config: gives the config's bytes, for a caller who may have them already;
                `read_blob` if None.

        Raises:
            NotFoundError: if there is no such image.
            PlatformError: if there is none for the platform.
            AuthenticationError: if the registry refuses.
            ManifestError, DigestMismatchError, UnsupportedError: if what it sends is not an image.
            RegistryError: for everything between here and there.
        """
        index, document = self._find_manifest(platform)
        manifest = document.parsed
        assert isinstance(manifest, Manifest)
        check_image(manifest)
        config_bytes = (read_config or self.read_blob)(manifest.config)
        config = parse_image_config(config_bytes)
        _check_config(config, manifest, platform, self.reference)
        return ResolvedImage(
            reference=self.reference.pinned(document.digest),
            manifest=manifest,
            manifest_digest=document.digest,
            manifest_bytes=document.data,
            index_digest=index.digest if index else None,
            config=config,
            config_bytes=config_bytes,
            authenticated=self.authenticated,
        )

    def get_artifact(self, platform: Platform) -> Manifest:
        """Fetch a manifest that need not be an image's: any config, any layers.

        Raises:
            As `get_manifest`.
        """
        _, document = self._find_manifest(platform)
        assert isinstance(document.parsed, Manifest)
        return document.parsed

    def resolve_digest(self, platform: Platform) -> Digest:
        """Return the digest of the manifest for a platform, which is fetched to make sure.

        Raises:
            As `get_manifest`.
        """
        return self._find_manifest(platform)[1].digest

    @property
    def authenticated(self) -> bool:
        """Credentials were used so far."""
        return any(
            repository.authenticator.account != "anonymously" for repository in self._repositories
        )

    def read_blob(self, descriptor: Descriptor, *, limit: int = MAX_CONFIG_SIZE) -> bytes:
        """Fetch a small blob.

        Raises:
            ManifestError: if it claims to be larger than `limit` bytes.
            As `download_blob`.
        """
        if descriptor.size > limit:
            raise ManifestError(
                f"{descriptor.digest} is too large for a config: {descriptor.size} bytes"
            )
        buffer = _Buffer()
        self.download_blob(descriptor, buffer)
        return bytes(buffer.data)

    def download_blob(
        self, descriptor: Descriptor, target: BlobTarget, progress: Progress | None = None
    ) -> None:
        """Write a blob's bytes to `target`; returns only if they are the right ones.

        A broken connection is taken up where it broke, and so is what `target` holds already. Bytes
        of another digest or size are fetched once more and then elsewhere; `target` is told to
        restart. A `BlobWriter` of the store is such a target.

        Raises:
            DigestMismatchError: if no endpoint sends the right bytes.
            NotFoundError: if no endpoint has it.
            UnsupportedError: if it may be had only from elsewhere (a non-distributable layer).
            AuthenticationError, RegistryError: as ever.
        """
        report = progress or (lambda received: None)

        def fetch(repository: Repository) -> None:
            repository.download(descriptor, target, report)

        try:
            self._first_that_serves(fetch)
        except NotFoundError as error:
            if descriptor.media_type in FOREIGN_LAYER_TYPES or descriptor.urls:
                raise UnsupportedError(
                    f"The registry does not have the layer {descriptor.digest}, only a link to it",
                    hint="layers that may not be distributed are not fetched from elsewhere: push "
                    "the image with them included",
                ) from error
            raise

    def _find_manifest(self, platform: Platform) -> tuple[Document | None, Document]:
        """Follow indexes down to a manifest: (the first index or None, the manifest)."""
        selector = self.reference.selector()
        asked = self.reference.digest
        first: Document | None = None
        for _ in range(MAX_INDEX_DEPTH):
            document = self._get_document(selector, asked)
            if isinstance(document.parsed, Manifest):
                return first, document
            first = first or document
            entry = select_manifest(document.parsed, platform)
            selector, asked = str(entry.digest), entry.digest
        raise ManifestError(f"Indexes lie within each other without end: {self.reference}")

    def _get_document(self, selector: str, asked: Digest | None) -> Document:
        return self._first_that_serves(lambda repository: repository.get_document(selector, asked))

    def _first_that_serves(self, action: Callable[[Repository], _Result]) -> _Result:
        """Try the mirrors in order, then the registry, whose error is the one that counts."""
        with self._lock:
            repositories = list(self._repositories)
        for repository in repositories[:-1]:
            try:
                return action(repository)
            except NotFoundError:
                log.info(f"The mirror {repository.endpoint.host} does not have {self.reference}")
            except RegistryError as error:
                log.warn(f"The mirror {repository.endpoint.host} cannot serve: {error}")
                if isinstance(error, TransferError):
                    self._drop(repository)
        return action(repositories[-1])

    def _drop(self, repository: Repository) -> None:
        """Ask a mirror that is out of order no more."""
        with self._lock:
            if repository in self._repositories:
                self._repositories.remove(repository)


def _check_config(
    config: ImageConfig, manifest: Manifest, platform: Platform, reference: Reference
) -> None:
    """Compare what an image says about itself with what was asked for."""
    if config.os not in ("", "linux"):
        raise UnsupportedError(f"{reference} is an image for {log.printable(config.os)}")
    if config.architecture != platform.architecture:
        log.warn(
            f"The image is made for another architecture than asked for: "
            f"{config.architecture} != {platform.architecture}"
        )
    if config.diff_ids and len(config.diff_ids) != len(manifest.layers):
        raise ManifestError(
            f"{reference} has {len(manifest.layers)} layers, "
            f"but its config speaks of {len(config.diff_ids)}"
        )


class _Buffer:
    """A small blob in memory; `download_blob` hashes it."""

    hashed = False

    def __init__(self) -> None:
        self.data = bytearray()

    @property
    def offset(self) -> int:
        return len(self.data)

    def write(self, data: bytes, /) -> None:
        self.data += data

    def restart(self) -> None:
        self.data.clear()

    def check(self) -> None:
        """Nothing to check: the bytes were counted and hashed on the way here."""
