"""Names of a layer's members: where they lie, which are whiteouts, what they hide.

Pure.

Source: OCI image-spec 1.1 layer.md, "Whiteouts"; the reserved `.wh..wh.` names are those of aufs.
"""

from __future__ import annotations

from collections.abc import Iterable

from enroot_py.errors import LayerError, UnsafePathError
from enroot_py.layers.entry import Node, quoted

Operation = tuple[bytes, bytes, "Node | bytes | None"]
"""What a member does: in the directory of this path, to this name, this: place a node there, make
it a hard link to a path, or (None) remove what lower layers have there; with no name, everything
that they have in the directory."""

PREFIX = b".wh."
OPAQUE = b".wh..wh..opq"
RESERVED = b".wh..wh."

MAX_NAME = 255
"""Most bytes of one name (Linux's NAME_MAX)."""

MAX_PATH = 16 << 10
"""Most bytes of a path within an image, four times Linux's PATH_MAX."""


def split_path(name: bytes) -> tuple[bytes, bytes]:
    """Split a member's name into its directory and its last name, below the root of the image.

    Leading slashes, empty and `.` components do not count: `/etc/x`, `./etc//x` and `etc/x` are
    the same. Both parts are empty for the root itself.

    Raises:
        UnsafePathError: a component is `..`: no archiver of layers makes those.
        LayerError: the path or its last name is too long.
    """
    path = name[2:] if name[:2] == b"./" else name
    if path[-1:] == b"/":
        path = path[:-1]
    if not path or path[0] in b"./" or b"/." in path or b"//" in path:
        components = [part for part in path.split(b"/") if part not in (b"", b".")]
        if b".." in components:
            raise UnsafePathError(f"a name leads out of its directory: {quoted(name)}")
        path = b"/".join(components)
    slash = path.rfind(b"/")
    base = path[slash + 1 :]
    # Whiteouts of the longest names are longer still.
    longest = MAX_NAME + len(PREFIX) if base[:4] == PREFIX else MAX_NAME
    if len(base) > longest or len(path) > MAX_PATH:
        raise LayerError(f"a name is too long: {quoted(name)} ({len(path)} bytes)")
    return path[:slash] if slash > 0 else b"", base


def is_reserved_directory(path: bytes) -> bool:
    """Tell whether a directory is one of aufs's own, of which nothing belongs into an image.

    Raises:
        LayerError: a component is too long, or is a whiteout, below which nothing can lie.
    """
    for component in path.split(b"/"):
        if len(component) > MAX_NAME:
            raise LayerError(f"a name is too long: {quoted(component)}")
        if component.startswith(RESERVED):
            return True
        if component.startswith(PREFIX):
            raise LayerError(f"something lies below a whiteout: {quoted(path)}")
    return False


def whiteout(parent: bytes, base: bytes) -> Operation | None:
    """Return what a member named `.wh.…` does; None for aufs's own files, which do nothing.

    Raises:
        LayerError: it would remove the directory that it lies in, or that one's parent.
    """
    if base == OPAQUE:
        return parent, b"", None
    if base.startswith(RESERVED):
        return None
    name = base[len(PREFIX) :]
    if name in (b"", b".", b".."):
        raise LayerError(
            f"a whiteout that names nothing: {quoted(base)} in {quoted(b'/' + parent)}"
        )
    return parent, name, None


class Shadow:
    """What upper layers hide of lower ones, going by the paths as they are written.

    A quick answer for deciding which contents to pass over, not the truth: a path through a
    symbolic link is not recognised. The tree built in the end is the truth.
    """

    def __init__(self) -> None:
        self._gone: dict[bytes, set[bytes]] = {}
        self._opaque: set[bytes] = set()

    def add(self, operations: Iterable[Operation]) -> None:
        """Add what one more layer hides of those below it."""
        gone = self._gone
        last: bytes | None = None
        names: set[bytes] = set()
        for parent, base, what in operations:
            if type(what) is Node and what.children is not None:
                continue  # a directory is merged with the one below
            if not base:
                self._opaque.add(parent)
                continue
            if parent is not last:
                names = gone.setdefault(parent, set())
                last = parent
            names.add(base)

    def covers(self, path: bytes) -> bool:
        """Tell whether everything in a directory is hidden."""
        while path not in self._opaque:
            if not path:
                return False
            path, _, base = path.rpartition(b"/")
            if base in self._gone.get(path, ()):
                return True
        return True

    def names(self, path: bytes) -> set[bytes]:
        """Return the names that are hidden in a directory; not to be changed."""
        return self._gone.get(path, _NOTHING)


_NOTHING: set[bytes] = set()
