"""`enroot digest`: which manifest a reference stands for."""

from __future__ import annotations

import os

from enroot_py.errors import InvalidReferenceError
from enroot_py.image.platform import parse_platform
from enroot_py.image.reference import REGISTRY_SCHEMES, parse_reference
from enroot_py.log import printable
from enroot_py.registry.client import RegistryClient
from enroot_py.settings import Settings, load_settings


def digest(uri: str, *, settings: Settings | None = None, arch: str = "") -> str:
    """Return the digest of the manifest that `uri` stands for, "sha256:…".

    Args:
        uri: `docker://[USER@][REGISTRY#]IMAGE[:TAG]`.
        settings: read from files and environment if None.
        arch: which image of an index, as uname or Debian spells it; this machine's if empty.

    Raises:
        InvalidReferenceError: if `uri` is not the reference of an image in a registry.
        RegistryError, NotFoundError: if it cannot be found out.

    Source: enroot 4.1.2 src/docker.sh, docker::digest().
    """
    settings = settings or load_settings()
    reference = parse_reference(uri)
    if reference.scheme not in REGISTRY_SCHEMES:
        raise InvalidReferenceError(
            f"Not the reference of an image in a registry: {printable(uri)}",
            hint="expected docker://[USER@][REGISTRY#]IMAGE[:TAG]",
        )
    platform = parse_platform(arch or os.uname().machine)
    with RegistryClient(reference, settings) as client:
        return str(client.resolve_digest(platform))
