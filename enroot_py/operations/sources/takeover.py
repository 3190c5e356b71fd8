"""Layers and configs that NVIDIA's Enroot has in the cache folder, verified before they are used.

They are compressed anew, so the registry's digest says nothing about them. The image's config does:
it names the digest of each layer's uncompressed bytes, and is verified itself. A layer is therefore
decompressed once to be hashed, and again to be flattened: no byte reaches an image that has not
been verified (docs/adr/0070-files-of-nvidias-cache.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import BinaryIO

from enroot_py import log
from enroot_py.errors import EnrootError, LayerError, LimitError
from enroot_py.image.config import MAX_CONFIG_SIZE, ImageConfig
from enroot_py.image.digest import Digest
from enroot_py.image.manifest import Descriptor, Manifest
from enroot_py.layers.compression import decompress
from enroot_py.layers.entry import Limits
from enroot_py.log import printable
from enroot_py.operations.fetch import HeldLayer
from enroot_py.store.cache_folders import CacheFolders
from enroot_py.store.recompressed import has_recompressed, open_recompressed, recompressed_path

_CHUNK = 1 << 20


class Takeover:
    """The layers of one image, as far as NVIDIA's Enroot has them.

    Args:
        folders: of the cache.
        manifest: the image's.
        config: the image's, verified.
        limits: what its layers may bring.
    """

    def __init__(
        self, folders: CacheFolders, manifest: Manifest, config: ImageConfig, limits: Limits
    ) -> None:
        self._folders = folders
        self._limits = limits
        self._diff_ids = find_diff_ids(manifest, config)

    def may_have(self, layer: Descriptor) -> bool:
        """Say whether a file is there that may be this layer."""
        return layer.digest in self._diff_ids and has_recompressed(self._folders, layer)

    def open(self, layer: Descriptor, report: Callable[[int], None]) -> HeldLayer | None:
        """Open a layer and verify it; None if it is not there, or anything else than it should be.

        Args:
            report: is told how many of the layer's bytes, as the registry has them, that comes to;
                may raise to call it off.
        """
        diff_id = self._diff_ids.get(layer.digest)
        file = None if diff_id is None else open_recompressed(self._folders, layer)
        if file is None or diff_id is None:
            return None
        held = HeldLayer(file, size=os.fstat(file.fileno()).st_size)
        try:
            fault = self._find_fault(held, layer, diff_id, report)
            if not fault:
                file.seek(0)
                return held
            log.warn(f"{fault}. The layer is fetched from the registry instead")
        except BaseException:
            file.close()
            raise
        file.close()
        return None

    def _find_fault(
        self, held: HeldLayer, layer: Descriptor, diff_id: Digest, report: Callable[[int], None]
    ) -> str:
        path = printable(recompressed_path(self._folders, layer.digest))
        found = diff_id.new_hash()
        try:
            for chunk in decompress(held.file, path, self._limits):
                found.update(chunk)
                report(layer.size * held.file.tell() // max(held.size, 1))
        except (LayerError, LimitError) as error:
            return str(error)
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        if found.hexdigest() != diff_id.hex:
            return f"{path} does not hold what the image's config says of this layer"
        return ""


def find_diff_ids(manifest: Manifest, config: ImageConfig) -> dict[Digest, Digest]:
    """Return the digest of each layer's uncompressed bytes by the layer's digest.

    Nothing for layers of which the config says nothing, or not the same everywhere.
    """
    if len(manifest.layers) != len(config.diff_ids):
        return {}
    found: dict[Digest, Digest] = {}
    doubtful = set()
    for layer, diff_id in zip(manifest.layers, config.diff_ids, strict=True):
        if found.setdefault(layer.digest, diff_id) != diff_id:
            doubtful.add(layer.digest)
    return {digest: diff_id for digest, diff_id in found.items() if digest not in doubtful}


def read_config(folders: CacheFolders, descriptor: Descriptor) -> bytes | None:
    """Return a config that NVIDIA's Enroot keeps, verified; None if there is none of use."""
    if descriptor.size > MAX_CONFIG_SIZE:
        return None
    file = open_recompressed(folders, descriptor)
    if file is None:
        return None
    with file:
        data = _decompressed(file, descriptor)
    return data if data is not None and descriptor.digest.matches(data) else None


def _decompressed(file: BinaryIO, descriptor: Descriptor) -> bytes | None:
    data = b""
    try:
        for chunk in decompress(file, "Image config", Limits(max_bytes=descriptor.size)):
            data += chunk
    except (EnrootError, OSError):
        return None
    return data
