"""The tree that layers are applied to, bottom to top, member by member.

Every path is resolved here, beneath the root and component by component, as a kernel with
`openat2(RESOLVE_IN_ROOT)` would: a symbolic link that leads to `/` or above the root leads to the
root of the image. Nothing is cached across a change that could make a resolved path wrong.

The rules of one member in a directory (the same as Docker's and umoci's):

- a directory over a directory gives it new metadata and leaves what lies in it;
- anything else replaces whatever has its name, a non-empty directory too;
- a whiteout removes what lower layers put there, never what its own layer did, whichever of the
  two comes first in the archive;
- missing parents are made; a parent that is neither a directory nor a link to one is an error.

Pure.
"""

from __future__ import annotations

import stat

from enroot_py.errors import LayerError
from enroot_py.layers.entry import Node, new_directory, quoted

MAX_LINKS = 40
"""Symbolic links followed for one path, as in Linux (path_resolution(7))."""


class Tree:
    """An image's tree under construction.

    Attributes:
        root: its root directory.
    """

    def __init__(self, root: Node | None = None) -> None:
        self.root = root or new_directory(implied=True)
        self._resolved: dict[bytes, Node] = {}
        # What the current layer put where, if it has whiteouts: they must not touch that.
        self._touched: dict[Node, set[bytes]] | None = None
        self._purged: set[Node] = set()

    def begin_layer(self, *, whiteouts: bool) -> None:
        """Start applying a layer; `whiteouts` tells whether it has any."""
        self._resolved = {}
        self._touched = {} if whiteouts else None
        self._purged = set()

    def place(self, parent: bytes, name: bytes, node: Node) -> None:
        """Put `node` under `name` in the directory `parent`, or at the root if both are empty.

        Raises:
            LayerError: the path cannot be resolved, or the root would cease to be a directory.
        """
        if not name:
            if node.children is None:
                raise LayerError("the root directory is replaced by something else")
            _adopt(self.root, node)
            return
        directory = self._resolved.get(parent) or self.directory(parent)
        children = directory.children
        assert children is not None
        existing = children.get(name)
        if existing is not None:
            if existing.children is not None and node.children is not None:
                _adopt(existing, node)
                node = existing
            else:
                self._forget(existing)
        children[name] = node
        if self._touched is not None:
            self._touched[directory].add(name)

    def link(self, parent: bytes, name: bytes, target: bytes) -> bool:
        """Give the file of the path `target` one more name; False if there is no such file.

        Raises:
            LayerError: it is a directory, or a path cannot be resolved.
        """
        target_parent, _, target_name = target.rpartition(b"/")
        directory = self.find(target_parent)
        node = directory.children.get(target_name) if directory and directory.children else None
        if node is None:
            return False
        if node.children is not None:
            raise LayerError(f"a hard link to a directory: {quoted(target)}")
        self.place(parent, name, node)
        return True

    def remove(self, parent: bytes, name: bytes) -> None:
        """Remove what lower layers have under `name`, or all they have in `parent` if it is empty.

        Raises:
            LayerError: the path cannot be resolved.
        """
        assert self._touched is not None, "announced to begin_layer"
        directory = self.find(parent)
        if directory is None:
            return
        assert directory.children is not None
        if not name:
            self._purge(directory)
            return
        node = directory.children.get(name)
        if node is None:
            return
        if name not in self._touched.get(directory, ()):
            del directory.children[name]
            self._forget(node)
        elif node.children is not None:
            self._purge(node)

    def _purge(self, directory: Node) -> None:
        """Remove everything below a directory that the current layer did not put there."""
        touched = self._touched
        assert touched is not None
        self._resolved = {}
        pending = [directory]
        while pending:
            directory = pending.pop()
            # Once is enough: the layer adds only what is to stay. It also keeps an archive full of
            # whiteouts for one directory from taking quadratic time.
            if directory in self._purged or directory.children is None:
                continue
            self._purged.add(directory)
            kept = touched.get(directory, ())
            directory.children = {
                name: node for name, node in directory.children.items() if name in kept
            }
            pending += [node for node in directory.children.values() if node.children]

    def _forget(self, node: Node) -> None:
        """Drop resolved paths if one may lead through a node that is going away."""
        if node.children is not None or node.kind == stat.S_IFLNK:
            self._resolved = {}

    def directory(self, path: bytes) -> Node:
        """Return the directory of a path, making what is missing.

        Raises:
            LayerError: a component is something else, or the links form a loop.
        """
        names: list[bytes] = []
        directory = self._resolve(path, names, create=True)
        assert directory is not None
        if self._touched is not None:
            at = self.root
            for name in names:
                self._touched.setdefault(at, set()).add(name)
                assert at.children is not None
                at = at.children[name]
            self._touched.setdefault(at, set())
        self._resolved[path] = directory
        return directory

    def find(self, path: bytes) -> Node | None:
        """Return the directory of a path; None if there is none.

        Raises:
            LayerError: symbolic links form a loop.
        """
        return self._resolved.get(path) or self._resolve(path, [], create=False)

    def _resolve(self, path: bytes, names: list[bytes], *, create: bool) -> Node | None:
        """Walk a path; leaves in `names` that of the directory found, free of links."""
        stack = [self.root]
        pending = path.split(b"/")[::-1] if path else []
        links = 0
        while pending:
            component = pending.pop()
            if component in (b"", b"."):
                continue
            if component == b"..":
                if names:
                    names.pop()
                    stack.pop()
                continue
            children = stack[-1].children
            assert children is not None
            node = children.get(component)
            if node is None:
                if not create:
                    return None
                node = children[component] = new_directory(implied=True)
            elif node.kind == stat.S_IFLNK:
                links += 1
                if links > MAX_LINKS:
                    raise LayerError(f"too many levels of symbolic links: {quoted(path)}")
                if node.target.startswith(b"/"):
                    names.clear()
                    del stack[1:]
                pending += node.target.split(b"/")[::-1]
                continue
            elif node.children is None:
                if not create:
                    return None
                raise LayerError(f"{quoted(component)} is not a directory: {quoted(path)}")
            names.append(component)
            stack.append(node)
        return stack[-1]


def _adopt(directory: Node, new: Node) -> None:
    """Give a directory another's metadata."""
    directory.mode = new.mode
    directory.uid, directory.gid = new.uid, new.gid
    directory.mtime = new.mtime
    directory.xattrs = new.xattrs
    directory.implied = False
