"""Where a local image is: `PATH[:TAG]`, and what to call what is made of it. Looks at files."""

from __future__ import annotations

import os

from enroot_py.errors import InvalidReferenceError
from enroot_py.store.containers import NAME_CHARACTERS

_ENDINGS = (".gz", ".zst", ".tgz", ".tar", ".oci")


def split_tag(location: str) -> tuple[str, str]:
    """Divide `PATH[:TAG]`: both may hold colons, so the longest path that exists is the path.

    Raises:
        InvalidReferenceError: if it is empty.
    """
    if not location:
        raise InvalidReferenceError("Invalid image reference: the path is missing")
    path = location
    while not os.path.exists(path) and ":" in path:
        path = path.rpartition(":")[0]
    if not os.path.exists(path):
        path = location.partition(":")[0]
    return path, location[len(path) + 1 :]


def default_name(path: str, tag: str = "") -> str:
    """Return what a container is called that is made of a local image: its file's name, and tag.

    Characters that a container's name cannot have become plus signs, as in the names of images
    from registries.
    """
    name = os.path.basename(os.path.abspath(path))
    while name.endswith(_ENDINGS):
        name = name[: name.rindex(".")]
    name = f"{name}+{tag}" if tag else name
    allowed = "".join(letter if letter in NAME_CHARACTERS else "+" for letter in name)
    return allowed.lstrip("-.") or "image"
