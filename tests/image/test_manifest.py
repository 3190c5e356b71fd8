"""Manifests and indexes: what is ambiguous or malformed is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from enroot_py.errors import EnrootError, ManifestError, PlatformError, UnsupportedError
from enroot_py.image.manifest import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    MAX_MANIFEST_SIZE,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Index,
    Manifest,
    check_image,
    parse_manifest,
    select_manifest,
)
from enroot_py.image.platform import parse_platform

HEX = "0123456789abcdef" * 4
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
GZIP_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def entry(media_type: str = GZIP_LAYER, **more: Any) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{HEX}", "size": 10, **more}


def manifest(**more: Any) -> dict[str, Any]:
    return {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": entry(OCI_CONFIG),
        "layers": [entry()],
        **more,
    }


def index(*entries: Any, **more: Any) -> dict[str, Any]:
    return {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": list(entries), **more}


def parse(document: Any, content_type: str = "") -> Manifest | Index:
    return parse_manifest(json.dumps(document).encode(), content_type)


def without(document: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in keys}


def test_a_manifest_comes_out_whole() -> None:
    layer = entry(annotations={"a": "b"}, urls=["https://x/y"])
    found = parse(manifest(layers=[layer, entry()], annotations={"k": "v"}), OCI_MANIFEST)
    assert isinstance(found, Manifest)
    assert found.media_type == OCI_MANIFEST and found.annotations == (("k", "v"),)
    assert found.config.media_type == OCI_CONFIG
    assert found.layers[0].annotations == (("a", "b"),)
    assert found.layers[0].urls == ("https://x/y",)
    assert (str(found.layers[1].digest), found.layers[1].size) == (f"sha256:{HEX}", 10)
    check_image(found)


@pytest.mark.parametrize(
    ("document", "content_type", "media_type"),
    [
        (manifest(), "", OCI_MANIFEST),
        (manifest(), "application/json", OCI_MANIFEST),
        (manifest(), "text/plain; charset=utf-8", OCI_MANIFEST),
        (manifest(), OCI_MANIFEST + "; charset=utf-8", OCI_MANIFEST),
        (manifest(mediaType=DOCKER_MANIFEST), DOCKER_MANIFEST, DOCKER_MANIFEST),
        (without(manifest(), "mediaType"), "", OCI_MANIFEST),
        (without(manifest(), "mediaType"), DOCKER_MANIFEST, DOCKER_MANIFEST),
        (without(manifest(), "mediaType", "schemaVersion"), "", OCI_MANIFEST),
        (manifest(mediaType=None), "", OCI_MANIFEST),
        (index(entry(OCI_MANIFEST)), "", OCI_INDEX),
        (index(mediaType=DOCKER_INDEX), DOCKER_INDEX, DOCKER_INDEX),
        (without(index(), "mediaType"), "", OCI_INDEX),
        (without(index(), "mediaType"), DOCKER_INDEX, DOCKER_INDEX),
    ],
)
def test_the_type_is_known_from_inside_from_the_label_or_from_the_shape(
    document: Any, content_type: str, media_type: str
) -> None:
    assert parse(document, content_type).media_type == media_type


@pytest.mark.parametrize(
    ("document", "content_type"),
    [
        (manifest(manifests=[]), ""),
        (index(layers=[]), ""),
        (index(config=None), ""),
        (manifest(mediaType=OCI_INDEX), ""),
        (index(mediaType=OCI_MANIFEST), ""),
        (manifest(), OCI_INDEX),
        (manifest(), DOCKER_MANIFEST),
        (index(), OCI_MANIFEST),
        (without(index(), "mediaType"), OCI_MANIFEST),
        (without(manifest(), "mediaType"), OCI_INDEX),
        ({}, ""),
        ({}, OCI_MANIFEST),
        ({"schemaVersion": 2}, "text/html"),
        ([], ""),
        (None, ""),
        ("text", ""),
        (manifest(mediaType=3), ""),
        (manifest(layers=None), ""),
        (manifest(layers={}), ""),
        (manifest(layers="x"), ""),
        (manifest(layers=[None]), ""),
        (manifest(layers=[[]]), ""),
        (manifest(layers=[entry()] * 5000), ""),
        (manifest(config=None), ""),
        (manifest(config="x"), ""),
        (manifest(layers=[entry(size=-1)]), ""),
        (manifest(layers=[entry(size=1.5)]), ""),
        (manifest(layers=[entry(size="10")]), ""),
        (manifest(layers=[entry(size=True)]), ""),
        (manifest(layers=[entry(size=2**63)]), ""),
        (manifest(layers=[without(entry(), "size")]), ""),
        (manifest(layers=[without(entry(), "digest")]), ""),
        (manifest(layers=[entry(digest=None)]), ""),
        (manifest(layers=[entry(digest=7)]), ""),
        (manifest(layers=[entry(digest="sha256:../../x")]), ""),
        (manifest(layers=[entry(digest=f"sha256:{HEX.upper()}")]), ""),
        (manifest(layers=[entry(digest=f"md5:{HEX[:32]}")]), ""),
        (manifest(layers=[entry(urls="https://x")]), ""),
        (manifest(layers=[entry(urls=[1])]), ""),
        (manifest(layers=[entry(annotations=[])]), ""),
        (manifest(layers=[entry(annotations={"a": 1})]), ""),
        (manifest(layers=[entry(mediaType=1)]), ""),
        (index(entry(OCI_MANIFEST, platform="linux")), ""),
        (index(entry(OCI_MANIFEST, platform={"os": 1})), ""),
        (index(*[entry(OCI_MANIFEST)] * 5000), ""),
    ],
)
def test_what_is_malformed_or_ambiguous_is_refused(document: Any, content_type: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(document, content_type)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe{}",
        b'{"layers": [], "layers": [1]}',
        b'{"layers": NaN}',
        b'{"layers": Infinity}',
        b"[" * 100000,
        b'{"a":' * 100000,
        b'{"layers": ' + b"9" * 10000 + b"}",
        b" " * (MAX_MANIFEST_SIZE + 1),
    ],
)  # fmt: skip
def test_bytes_that_are_no_json_are_refused(data: bytes) -> None:
    with pytest.raises(ManifestError):
        parse_manifest(data)


@pytest.mark.parametrize(
    ("document", "content_type"),
    [
        ({"schemaVersion": 1, "fsLayers": []}, ""),
        ({"schemaVersion": 1}, "application/vnd.docker.distribution.manifest.v1+prettyjws"),
        ({}, "application/vnd.docker.distribution.manifest.v1+json"),
        ({"mediaType": "application/vnd.oci.artifact.manifest.v1+json", "blobs": []}, ""),
        ({"mediaType": "application/vnd.example", "layers": []}, ""),
    ],
)
def test_other_kinds_are_named(document: Any, content_type: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        parse(document, content_type)
    assert (
        "schema 1" in str(caught.value)
        or "application" in str(caught.value)
        or ("artifact" in str(caught.value))
    )


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"layers": []}, ManifestError),
        ({"layers": [entry(GZIP_LAYER + "+encrypted")]}, UnsupportedError),
        ({"layers": [entry("application/x")]}, UnsupportedError),
        ({"layers": [entry("")]}, UnsupportedError),
        ({"config": entry("application/vnd.cncf.helm.config.v1+json")}, UnsupportedError),
        ({"config": entry("application/vnd.oci.empty.v1+json")}, UnsupportedError),
    ],
)  # fmt: skip
def test_manifests_of_other_things_are_no_images(changes: Any, error: type[EnrootError]) -> None:
    found = parse(manifest(**changes))
    assert isinstance(found, Manifest)
    with pytest.raises(error):
        check_image(found)


def platform(name: str, variant: str = "", **more: Any) -> dict[str, Any]:
    described = {"os": "linux", "architecture": name}
    if variant:
        described["variant"] = variant
    return entry(OCI_MANIFEST, platform={**described, **more})


def numbered(*entries: dict[str, Any]) -> Index:
    """An index whose entries are told apart by their sizes: 0, 1, 2, …"""
    found = parse(index(*({**one, "size": size} for size, one in enumerate(entries))))
    assert isinstance(found, Index)
    return found


ATTESTATION = entry(
    OCI_MANIFEST,
    platform={"os": "linux", "architecture": "amd64"},
    annotations={"vnd.docker.reference.type": "attestation-manifest"},
)
UNKNOWN = entry(OCI_MANIFEST, platform={"os": "unknown", "architecture": "unknown"})


@pytest.mark.parametrize(
    ("entries", "arch", "chosen"),
    [
        ([platform("amd64")], "x86_64", 0),
        ([platform("arm64"), platform("amd64")], "x86_64", 1),
        ([platform("amd64"), platform("amd64")], "x86_64", 0),
        ([ATTESTATION, UNKNOWN, platform("amd64")], "x86_64", 2),
        ([platform("amd64", os="windows"), platform("amd64")], "x86_64", 1),
        ([platform("amd64", "v3"), platform("amd64")], "x86_64", 1),
        ([platform("arm", "v6"), platform("arm", "v7")], "armv7l", 1),
        ([platform("arm64", "v8")], "aarch64", 0),
        ([entry(OCI_MANIFEST)], "x86_64", 0),
        ([entry(OCI_INDEX)], "x86_64", 0),
        ([ATTESTATION, entry(OCI_MANIFEST)], "x86_64", 1),
        ([{**platform("amd64"), "mediaType": "application/x"}, platform("amd64")], "amd64", 1),
    ],
)  # fmt: skip
def test_selection(entries: list[dict[str, Any]], arch: str, chosen: int) -> None:
    assert select_manifest(numbered(*entries), parse_platform(arch)).size == chosen


@pytest.mark.parametrize(
    ("entries", "available"),
    [
        ([], "none"),
        ([UNKNOWN, ATTESTATION], "none"),
        ([platform("arm64"), platform("s390x")], "linux/arm64, linux/s390x"),
        ([platform("amd64", os="windows")], "windows/amd64"),
        ([entry(OCI_MANIFEST), entry(OCI_MANIFEST)], "none"),
        ([entry(OCI_MANIFEST), platform("arm64")], "linux/arm64"),
        ([platform("\x1b[2J")], "linux/\\x1b[2J"),
    ],
)
def test_no_match_lists_what_there_is(entries: list[dict[str, Any]], available: str) -> None:
    with pytest.raises(PlatformError) as caught:
        select_manifest(numbered(*entries), parse_platform("amd64"))
    assert str(caught.value) == f"No image for linux/amd64; available: {available}"


def test_descriptors_are_values() -> None:
    found = parse(manifest())
    assert isinstance(found, Manifest)
    assert found.layers[0] == Descriptor(GZIP_LAYER, found.layers[0].digest, 10)
