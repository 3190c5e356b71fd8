"""How layers are merged, in the slowest and plainest words: the oracle of the random tests.

A file system is a dictionary from paths (tuples of names) to inodes. Layers are lists of actions,
applied from the base layer up, each action by looking at everything.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.layers import archives

Path = tuple[bytes, ...]


class Refused(Exception):
    """The layers are not valid."""


@dataclass(frozen=True)
class Action:
    """One member: kind is one of directory, file, symlink, link, whiteout, opaque, char."""

    kind: str
    path: Path
    target: bytes = b""
    content: bytes = b""
    mode: int = 0o644

    def member(self) -> bytes:
        """The same as a member of an archive."""
        name = b"/".join(self.path)
        if self.kind == "directory":
            return archives.directory(name + b"/", self.mode)
        if self.kind == "symlink":
            return archives.symlink(name, self.target)
        if self.kind == "link":
            return archives.hard_link(name, self.target)
        if self.kind == "char":
            return archives.header(name, 0, archives.CHAR)
        if self.kind == "whiteout":
            return archives.file(b"/".join((*self.path[:-1], b".wh." + self.path[-1])))
        if self.kind == "opaque":
            return archives.file(b"/".join((*self.path, b".wh..wh..opq")))
        return archives.file(name, self.content, mode=self.mode)


@dataclass(eq=False)
class Inode:
    kind: str
    content: bytes = b""
    mode: int = 0o755
    implied: bool = False


@dataclass
class FileSystem:
    nodes: dict[Path, Inode] = field(default_factory=lambda: {(): Inode("directory", implied=True)})
    devices: set[bytes] = field(default_factory=set)

    def resolve(self, path: Path, create: bool) -> Path | None:
        """The real path of a directory, None if it is missing."""
        at: Path = ()
        todo = list(path)
        links = 0
        while todo:
            name = todo.pop(0)
            if name in (b"", b"."):
                continue
            if name == b"..":
                at = at[:-1]
                continue
            node = self.nodes.get((*at, name))
            if node is None:
                if not create:
                    return None
                self.nodes[(*at, name)] = Inode("directory", implied=True)
            elif node.kind == "symlink":
                links += 1
                if links > 40:
                    raise Refused("loop")
                if node.content.startswith(b"/"):
                    at = ()
                todo = [*node.content.split(b"/"), *todo]
                continue
            elif node.kind != "directory":
                if not create:
                    return None
                raise Refused("not a directory")
            at = (*at, name)
        return at

    def below(self, path: Path) -> list[Path]:
        return [other for other in self.nodes if other[: len(path)] == path and other != path]

    def remove(self, path: Path) -> None:
        for other in [*self.below(path), path]:
            self.nodes.pop(other, None)

    def apply(self, layer: list[Action], *, leave_out: bool = False) -> list[Action]:
        """Apply a layer; returns what was applied: all of it, or (`leave_out`) what could be."""
        placed: set[Path] = set()
        applied = []
        for action in layer:
            before = dict(self.nodes)
            try:
                self.act(action, placed)
                applied.append(action)
            except Refused:
                if not leave_out:
                    raise
                self.nodes = before
        return applied

    def act(self, action: Action, placed: set[Path]) -> None:
        """Apply one action of a layer that has put the paths `placed` in place so far."""
        if action.kind == "opaque":
            parent = self.resolve(action.path, create=False)
            if parent is not None:
                for path in self.below(parent):
                    if path not in placed:
                        self.nodes.pop(path)
            return
        name = action.path[-1]
        if action.kind == "whiteout":
            parent = self.resolve(action.path[:-1], create=False)
            if parent is not None:
                for path in [(*parent, name), *self.below((*parent, name))]:
                    if path not in placed:
                        self.nodes.pop(path, None)
            return
        if action.kind == "link":
            linked = self.linked(action.target)
            if linked is None:
                return
            node = linked
        else:
            node = Inode(action.kind, action.target or action.content, action.mode)
        parent = self.resolve(action.path[:-1], create=True)
        assert parent is not None
        path = (*parent, name)
        old = self.nodes.get(path)
        if old is not None and old.kind == node.kind == "directory":
            old.mode, old.implied = node.mode, False
        else:
            self.remove(path)
            self.nodes[path] = node
        placed.update(path[:length] for length in range(1, len(path) + 1))

    def linked(self, target: bytes) -> Inode | None:
        """The inode that a hard link leads to, None if that is a device which was left out."""
        path = tuple(target.split(b"/"))
        parent = self.resolve(path[:-1], create=False)
        node = self.nodes.get((*parent, path[-1])) if parent is not None else None
        if node is None and target in self.devices:
            return None
        if node is None or node.kind == "directory":
            raise Refused("no target")
        return node


def merge(layers: list[list[Action]]) -> FileSystem:
    """Apply layers, base layer first. Device nodes count as not being there."""
    system = FileSystem()
    for layer in layers:
        system.devices |= {b"/".join(action.path) for action in layer if action.kind == "char"}
    for layer in layers:
        system.apply([action for action in layer if action.kind != "char"])
    return system


def valid(layers: list[list[Action]]) -> list[list[Action]]:
    """Return the layers without the actions that would be refused."""
    system = FileSystem()
    return [system.apply(layer, leave_out=True) for layer in layers]


def random_layers(rng: random.Random) -> list[list[Action]]:
    """Return layers over few names, so that their actions meet; some will be refused."""

    def path(most: int = 3) -> Path:
        return tuple(rng.choice((b"a", b"b", b"c")) for _ in range(rng.randint(1, most)))

    def action() -> Action:
        kind = rng.choice(
            (
                "directory",
                "directory",
                "file",
                "file",
                "file",
                "symlink",
                "link",
                "whiteout",
                "opaque",
            )
        )
        if kind == "opaque":
            return Action(kind, path(2))
        target = b"/".join(path())
        if kind == "symlink":
            target = rng.choice((b"", b"/", b"../")) + target
        return Action(
            kind,
            path(),
            target=target if kind in ("symlink", "link") else b"",
            content=b"%d" % rng.randrange(100) if kind == "file" else b"",
            mode=rng.choice((0o644, 0o755, 0o4700, 0)),
        )

    return [[action() for _ in range(rng.randint(3, 12))] for _ in range(rng.randint(2, 4))]
