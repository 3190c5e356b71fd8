"""Image configs: what an image wants run, where and with which environment. Pure.

Reads the configs of registries (OCI's and Docker's are alike) and what engines print when they
inspect an image. Nothing in it is evaluated here or trusted later.
"""

from __future__ import annotations

from dataclasses import dataclass

from enroot_py.errors import InvalidReferenceError, ManifestError
from enroot_py.image.digest import Digest, parse_digest
from enroot_py.image.manifest import load_json

MAX_CONFIG_SIZE = 16 << 20
"""Bytes; far above any real config, far below what would hurt."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """How one layer came about.

    Attributes:
        created: RFC 3339 time, or "".
        created_by: the command.
        comment: free text.
        empty_layer: no layer belongs to this step.
    """

    created: str
    created_by: str
    comment: str
    empty_layer: bool


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """The parts of an image config that matter here; absent ones are empty.

    No text holds a NUL character or a lone surrogate: each can be encoded as UTF-8 and given to
    the kernel. Line feeds and everything else are possible.

    Attributes:
        architecture, os: in the image specification's words ("amd64", "linux").
        entrypoint: words that come before the command; one empty word is how engines write that
            there is none (`docker run --entrypoint ""`), and reads as none.
        cmd: the command when none is given, or the entrypoint's default arguments.
        env: `NAME=value` texts in the order given; not checked for the `=`.
        working_dir: path inside the rootfs, or "".
        user: `USER[:GROUP]`, names or numbers, or "".
        volumes: paths inside the rootfs, sorted.
        labels: (key, value) pairs in the order given.
        created: RFC 3339 time, or "".
        diff_ids: digests of the uncompressed layers, base layer first.
        history: base first.
    """

    architecture: str
    os: str
    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...]
    env: tuple[str, ...]
    working_dir: str
    user: str
    volumes: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    created: str
    diff_ids: tuple[Digest, ...]
    history: tuple[HistoryEntry, ...]


def parse_image_config(data: bytes) -> ImageConfig:
    """Parse an image config as registries keep it.

    Raises:
        ManifestError: if it is malformed. Members that are null count as absent.

    Source: OCI image-spec 1.1, config.md.
    """
    if len(data) > MAX_CONFIG_SIZE:
        raise ManifestError(f"Image config is larger than {MAX_CONFIG_SIZE} bytes")
    document = load_json(data, "Image config", unique=False)
    if not isinstance(document, dict):
        raise ManifestError("Image config is not a JSON object")
    rootfs = _object(document, "rootfs")
    return _build(document, diff_ids=_strings(rootfs, "diff_ids"))


def parse_inspected_config(data: bytes) -> ImageConfig:
    """Parse what `docker inspect IMAGE` or `podman inspect IMAGE` prints.

    That is a list of one object whose members have other capitals (`Config`, `RootFS.Layers`).

    Raises:
        ManifestError: if it is malformed.

    Source: enroot 4.1.2 src/docker.sh, docker::daemon::import().
    """
    document = load_json(data, "Inspected image", unique=False)
    if isinstance(document, list) and len(document) == 1:
        document = document[0]
    if not isinstance(document, dict):
        raise ManifestError("Inspected image is not one JSON object")
    lowered = {key.lower(): value for key, value in document.items()}
    lowered.pop("history", None)  # podman's is of another shape, and nothing needs it
    return _build(lowered, diff_ids=_strings(_object(lowered, "rootfs"), "Layers"))


def _build(document: dict[str, object], *, diff_ids: tuple[str, ...]) -> ImageConfig:
    inner = _object(document, "config")
    try:
        digests = tuple(parse_digest(text) for text in diff_ids)
    except InvalidReferenceError as error:
        raise ManifestError(f"Image config: {error}") from error
    labels = _object(inner, "Labels")
    entrypoint = _strings(inner, "Entrypoint")
    return ImageConfig(
        architecture=_string(document, "architecture"),
        os=_string(document, "os"),
        entrypoint=() if entrypoint == ("",) else entrypoint,
        cmd=_strings(inner, "Cmd"),
        env=_strings(inner, "Env"),
        working_dir=_string(inner, "WorkingDir"),
        user=_string(inner, "User"),
        volumes=tuple(sorted(_text(key, "Volumes") for key in _object(inner, "Volumes"))),
        labels=tuple((_text(key, "Labels"), _string(labels, key)) for key in labels),
        created=_string(document, "created"),
        diff_ids=digests,
        history=_history(document.get("history")),
    )


def _history(value: object) -> tuple[HistoryEntry, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ManifestError("Image config: history is not a list")
    entries = []
    for item in value:
        if not isinstance(item, dict):
            raise ManifestError("Image config: history holds something other than objects")
        entries.append(
            HistoryEntry(
                created=_string(item, "created"),
                created_by=_string(item, "created_by"),
                comment=_string(item, "comment"),
                empty_layer=item.get("empty_layer") is True,
            )
        )
    return tuple(entries)


def _object(document: dict[str, object], key: str) -> dict[str, object]:
    value = document.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ManifestError(f"Image config: {key} is not an object")
    return value


def _strings(document: dict[str, object], key: str) -> tuple[str, ...]:
    value = document.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ManifestError(f"Image config: {key} is not a list")
    return tuple(_text(item, key) for item in value)


def _string(document: dict[str, object], key: str) -> str:
    value = document.get(key)
    return "" if value is None else _text(value, key)


def _text(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise ManifestError(f"Image config: {key} holds something other than text")
    if "\0" in value:
        raise ManifestError(f"Image config: {key} holds a NUL character")
    # JSON can escape half a surrogate pair, which has no UTF-8: show it as other readers do.
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
