"""Files as NVIDIA's Enroot leaves them in its cache folder.

Source: enroot 4.1.2 src/docker.sh, docker::_download_extract().
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection
from pathlib import Path

import zstandard

from tests.registry.images import BuiltImage, ImageStore

ZSTD_LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"


def recompress(blob: bytes, media_type: str = "") -> bytes:
    """What a blob becomes: gzip is undone, if it is gzip, and zstd put in its place."""
    if media_type == ZSTD_LAYER:
        return blob
    return zstandard.compress(gzip.decompress(blob) if blob[:2] == b"\x1f\x8b" else blob, 1)


def fill_cache(
    folder: Path, store: ImageStore, image: BuiltImage, *, without: Collection[int] = ()
) -> list[Path]:
    """Put an image's config and layers there, but for the layers of these numbers.

    Returns the layers' paths, base layer first, of those that are not there too.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    manifest = json.loads(store.blobs[image.digest])
    paths = []
    for number, descriptor in enumerate([*manifest["layers"], manifest["config"]]):
        path = folder / descriptor["digest"].removeprefix("sha256:")
        if number not in without:
            path.write_bytes(recompress(store.blobs[descriptor["digest"]], descriptor["mediaType"]))
            path.chmod(0o640)
        paths.append(path)
    return paths[:-1]
