"""Manifests and indexes, OCI's and Docker's schema 2: bytes in, checked records out. Pure.

Whatever is ambiguous is refused: two readers must not see two images in the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from enroot_py.errors import InvalidReferenceError, ManifestError, PlatformError, UnsupportedError
from enroot_py.image.digest import Digest, parse_digest
from enroot_py.image.platform import Platform, suitability
from enroot_py.log import printable

MAX_MANIFEST_SIZE = 4 << 20
"""Bytes. Source: OCI distribution-spec 1.1, Pushing Manifests: the size registries accept."""

MAX_LAYERS = 4096
MAX_INDEX_ENTRIES = 4096

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"

INDEX_TYPES = frozenset({OCI_INDEX, DOCKER_INDEX})
MANIFEST_TYPES = frozenset({OCI_MANIFEST, DOCKER_MANIFEST})
ACCEPTED_TYPES = (DOCKER_MANIFEST, DOCKER_INDEX, OCI_MANIFEST, OCI_INDEX)

LAYER_TYPES = frozenset(
    {
        "application/vnd.oci.image.layer.v1.tar",
        "application/vnd.oci.image.layer.v1.tar+gzip",
        "application/vnd.oci.image.layer.v1.tar+zstd",
        "application/vnd.docker.image.rootfs.diff.tar",
        "application/vnd.docker.image.rootfs.diff.tar.gzip",
        "application/vnd.docker.image.rootfs.diff.tar.zstd",
    }
)
FOREIGN_LAYER_TYPES = frozenset(
    {
        "application/vnd.oci.image.layer.nondistributable.v1.tar",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
        "application/vnd.docker.image.rootfs.foreign.diff.tar",
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
    }
)
CONFIG_TYPES = frozenset(
    {
        "application/vnd.oci.image.config.v1+json",
        "application/vnd.docker.container.image.v1+json",
    }
)

_UNSUPPORTED = {
    "application/vnd.docker.distribution.manifest.v1+json": "Docker schema 1 manifest",
    "application/vnd.docker.distribution.manifest.v1+prettyjws": "Docker schema 1 manifest",
    "application/vnd.oci.artifact.manifest.v1+json": "OCI artifact manifest",
}
_SCHEMA_1_HINT = "push the image again with a current tool, which writes schema 2"


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Names a blob or a manifest.

    Attributes:
        media_type: what the bytes are said to be.
        digest: digest of the bytes as they are stored.
        size: number of those bytes.
        annotations: (key, value) pairs in the order given.
        urls: other places that serve the bytes; never asked without need.
        platform: of a manifest in an index, or None.
    """

    media_type: str
    digest: Digest
    size: int
    annotations: tuple[tuple[str, str], ...] = ()
    urls: tuple[str, ...] = ()
    platform: Platform | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """One image.

    Attributes:
        config: the image config's blob.
        layers: base layer first.
        media_type: OCI's or Docker's.
        annotations: (key, value) pairs in the order given.
        artifact_type: what the manifest of something other than an image says it is, or "".
    """

    config: Descriptor
    layers: tuple[Descriptor, ...]
    media_type: str
    annotations: tuple[tuple[str, str], ...] = ()
    artifact_type: str = ""


@dataclass(frozen=True, slots=True)
class Index:
    """Several images under one name, usually one a platform."""

    manifests: tuple[Descriptor, ...]
    media_type: str = OCI_INDEX


def parse_manifest(data: bytes, content_type: str = "") -> Manifest | Index:
    """Parse a manifest or an index.

    Args:
        data: the bytes as the registry sent them.
        content_type: the Content-Type they came with; "" or a general one leaves it to the bytes.

    Raises:
        ManifestError: if they are malformed, ambiguous or larger than allowed.
        UnsupportedError: if they are something else than an image: schema 1, an artifact manifest.
    """
    if len(data) > MAX_MANIFEST_SIZE:
        raise ManifestError(f"Manifest is larger than {MAX_MANIFEST_SIZE} bytes")
    document = _load_object(data)
    media_type = _media_type(document, content_type.partition(";")[0].strip().lower())
    is_index = "manifests" in document
    if is_index and ("layers" in document or "config" in document):
        raise ManifestError("Manifest is ambiguous: it is an index and an image at once")
    if is_index != (media_type in INDEX_TYPES):
        raise ManifestError(f"Manifest is not what its media type says: {media_type}")
    if is_index:
        entries = _list(document, "manifests", MAX_INDEX_ENTRIES)
        return Index(tuple(_descriptor(entry) for entry in entries), media_type)
    return Manifest(
        config=_descriptor(document.get("config")),
        layers=tuple(_descriptor(entry) for entry in _list(document, "layers", MAX_LAYERS)),
        media_type=media_type,
        annotations=_annotations(document.get("annotations")),
        artifact_type=_string(document, "artifactType"),
    )


def select_manifest(index: Index, platform: Platform) -> Descriptor:
    """Return the entry for `platform`: the best variant, and of equals the first.

    Attestations and other entries that are not images are passed over. An entry without a
    platform serves only when it is the only one.

    Raises:
        PlatformError: listing the platforms that there are.
    """
    images = [entry for entry in index.manifests if _is_image(entry)]
    best, best_score = None, 0
    for entry in images:
        score = suitability(platform, entry.platform) if entry.platform else 0
        if score > best_score:
            best, best_score = entry, score
    if best:
        return best
    unnamed = [entry for entry in images if entry.platform is None]
    if len(images) == len(unnamed) == 1:
        return unnamed[0]
    raise PlatformError(
        f"No image for {platform}; available: {available_platforms(index)}",
        hint="choose one with --arch, or another tag",
    )


def available_platforms(index: Index) -> str:
    """Return the platforms of an index as one text, for messages."""
    names = dict.fromkeys(
        str(entry.platform) for entry in index.manifests if entry.platform and _is_image(entry)
    )
    return printable(", ".join(names)) or "none"


def check_image(manifest: Manifest) -> None:
    """Make sure that a manifest is an image's and its layers are of a known kind.

    Raises:
        ManifestError: if there is no layer.
        UnsupportedError: naming the media type: encrypted layers, charts, other artifacts.
    """
    config_type = manifest.config.media_type
    if config_type not in CONFIG_TYPES:
        what = printable(manifest.artifact_type or config_type)
        raise UnsupportedError(
            f"Not a container image: {what}",
            hint="oras:// fetches artifacts of a single file",
        )
    if not manifest.layers:
        raise ManifestError("Image has no layers", hint="there is no file system to import")
    for layer in manifest.layers:
        if layer.media_type.endswith("+encrypted"):
            raise UnsupportedError(f"Encrypted layer: {layer.digest}")
        if layer.media_type not in LAYER_TYPES and layer.media_type not in FOREIGN_LAYER_TYPES:
            raise UnsupportedError(
                f"Layer of unknown media type: {printable(layer.media_type)} ({layer.digest})"
            )


def load_json(data: bytes, what: str, *, unique: bool = True) -> object:
    """Decode JSON from elsewhere.

    Args:
        data: UTF-8.
        what: what it is, for messages.
        unique: refuse an object with the same key twice, which readers take differently.

    Raises:
        ManifestError: if it cannot be decoded.
    """
    hook = _unique_object if unique else None
    try:
        document: object = json.loads(
            data.decode("utf-8"), object_pairs_hook=hook, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{what} is not valid JSON: {printable(str(error)[:200])}") from error
    return document


def _unique_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("an object has the same key twice")
    return document


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _load_object(data: bytes) -> dict[str, object]:
    document = load_json(data, "Manifest")
    if not isinstance(document, dict):
        raise ManifestError("Manifest is not a JSON object")
    return document


def _media_type(document: dict[str, object], content_type: str) -> str:
    """Decide what a document is from its own words, then its label, then its shape."""
    inside = _string(document, "mediaType")
    for name in (inside, content_type):
        if name in _UNSUPPORTED:
            raise UnsupportedError(f"Unsupported: {_UNSUPPORTED[name]}", hint=_SCHEMA_1_HINT)
    if document.get("schemaVersion") == 1 or "fsLayers" in document:
        raise UnsupportedError("Unsupported: Docker schema 1 manifest", hint=_SCHEMA_1_HINT)
    known = INDEX_TYPES | MANIFEST_TYPES
    if inside and inside not in known:
        raise UnsupportedError(f"Unsupported manifest type: {printable(inside)}")
    if inside and content_type in known and inside != content_type:
        raise ManifestError(f"Manifest says it is {inside} but was sent as {content_type}")
    if inside or content_type in known:
        return inside or content_type
    # OCI documents need not name their type; nothing else is told apart by shape.
    if "manifests" in document:
        return OCI_INDEX
    if "layers" in document:
        return OCI_MANIFEST
    raise ManifestError(f"Neither a manifest nor an index (sent as {printable(content_type)!r})")


def _is_image(entry: Descriptor) -> bool:
    if entry.media_type not in MANIFEST_TYPES and entry.media_type not in INDEX_TYPES:
        return False
    if any(key == "vnd.docker.reference.type" for key, _ in entry.annotations):
        return False
    return entry.platform is None or entry.platform.os != "unknown"


def _descriptor(value: object) -> Descriptor:
    if not isinstance(value, dict):
        raise ManifestError("Manifest has a descriptor that is not an object")
    size = value.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**63:
        raise ManifestError("Manifest has a descriptor without a valid size")
    try:
        digest = parse_digest(_string(value, "digest"))
    except InvalidReferenceError as error:
        raise ManifestError(f"Manifest: {error}") from error
    return Descriptor(
        media_type=_string(value, "mediaType"),
        digest=digest,
        size=size,
        annotations=_annotations(value.get("annotations")),
        urls=tuple(_strings(value.get("urls") or [], "urls")),
        platform=_platform(value.get("platform")),
    )


def _platform(value: object) -> Platform | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ManifestError("Manifest has a platform that is not an object")
    return Platform(_string(value, "os"), _string(value, "architecture"), _string(value, "variant"))


def _annotations(value: object) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise ManifestError("Manifest has annotations that are not an object")
    return tuple(zip(value, _strings(value.values(), "annotations"), strict=True))


def _list(document: dict[str, object], key: str, limit: int) -> list[object]:
    value = document.get(key)
    if not isinstance(value, list):
        raise ManifestError(f"Manifest has no list of {key}")
    if len(value) > limit:
        raise ManifestError(f"Manifest has {len(value)} {key}; at most {limit} are allowed")
    return value


def _string(document: dict[str, object], key: str) -> str:
    value = document.get(key, "")
    if not isinstance(value, str):
        if value is None:
            return ""
        raise ManifestError(f"Manifest has a {key} that is not text")
    return value


def _strings(values: Iterable[object], what: str) -> list[str]:
    if isinstance(values, str):
        raise ManifestError(f"Manifest has {what} that are not a list")
    texts = []
    for value in values:
        if not isinstance(value, str):
            raise ManifestError(f"Manifest has {what} that are not text")
        texts.append(value)
    return texts
