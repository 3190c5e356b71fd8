"""`index.json` of an OCI image layout: which images its blobs make up, by name.

Kept so that skopeo, crane and umoci can read the cache, and so that trimming knows what belongs
together. Reading an image layout that somebody else made is in `operations/layout_source`.

Source: OCI image-spec 1.1, image-layout.md, index.json file.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from enroot_py.errors import EnrootError, StoreError
from enroot_py.image.manifest import OCI_INDEX, Descriptor, Index, parse_manifest
from enroot_py.store.cache_folders import SETTING
from enroot_py.store.locks import FileLock
from enroot_py.store.workspace import new_file

REFERENCE_NAME = "org.opencontainers.image.ref.name"
"""Annotation that holds an image's name. Source: OCI image-spec 1.1, annotations.md."""

_LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'


@dataclass(frozen=True, slots=True)
class NamedManifest:
    """One line of the index: a manifest, and the name that it was last pulled by ("" for none)."""

    descriptor: Descriptor
    name: str


def read_index(layout: str) -> tuple[NamedManifest, ...]:
    """Return what an OCI layout's index lists; nothing if it has none that can be read."""
    try:
        with open(os.path.join(layout, "index.json"), "rb") as file:
            index = parse_manifest(file.read(), OCI_INDEX)
    except (OSError, EnrootError):
        # Another tool's half-written file, or none: the blobs are usable without.
        return ()
    if not isinstance(index, Index):
        return ()
    return tuple(
        NamedManifest(entry, dict(entry.annotations).get(REFERENCE_NAME, ""))
        for entry in index.manifests
    )


def record_image(layout: str, descriptor: Descriptor, name: str) -> None:
    """Enter an image under its name; an older image of that name and platform loses it.

    A shared layout whose index is another user's stays as it is.

    Args:
        layout: absolute path of the layout.
        descriptor: of the image's manifest, whose blob is stored already.
        name: e.g. "nvcr.io/nvidia/cuda:12.4".
    """
    try:
        with FileLock(os.path.join(layout, "index.json.lock")):
            listed = read_index(layout)
            others = [
                entry
                for entry in listed
                if (entry.name, entry.descriptor.platform) != (name, descriptor.platform)
            ]
            same = [entry.descriptor.digest for entry in listed if entry not in others]
            if same != [descriptor.digest]:
                _write_index(layout, [*others, NamedManifest(descriptor, name)])
    except (PermissionError, StoreError):
        return  # a shared layout, whose index another user keeps


def forget_images(layout: str, digests: frozenset[str]) -> None:
    """Take the images out of the index whose manifests' digests are given."""
    try:
        with FileLock(os.path.join(layout, "index.json.lock")):
            listed = read_index(layout)
            kept = [entry for entry in listed if str(entry.descriptor.digest) not in digests]
            if len(kept) < len(listed):
                _write_index(layout, kept)
    except (PermissionError, StoreError):
        return  # a shared layout, whose index another user keeps


def _write_index(layout: str, entries: list[NamedManifest]) -> None:
    version = os.path.join(layout, "oci-layout")
    if not os.path.exists(version):
        _write(version, _LAYOUT)
    manifests = [_to_json(entry) for entry in entries]
    document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}
    _write(os.path.join(layout, "index.json"), json.dumps(document, indent=1).encode())


def _write(path: str, data: bytes) -> None:
    with new_file(path, force=True, stage="listing what the cache holds", setting=SETTING) as new:
        new.file.write(data)


def _to_json(entry: NamedManifest) -> dict[str, object]:
    descriptor = entry.descriptor
    document: dict[str, object] = {
        "mediaType": descriptor.media_type,
        "digest": str(descriptor.digest),
        "size": descriptor.size,
    }
    if descriptor.platform is not None:
        platform = {
            "os": descriptor.platform.os,
            "architecture": descriptor.platform.architecture,
        }
        if descriptor.platform.variant:
            platform["variant"] = descriptor.platform.variant
        document["platform"] = platform
    if entry.name:
        document["annotations"] = {REFERENCE_NAME: entry.name}
    return document
