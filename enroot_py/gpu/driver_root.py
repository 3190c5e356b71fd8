"""Where the driver's files, device nodes and kernel files are found.

Everything that discovery reads goes through one `DriverRoot`, and every path that it is asked for
is absolute inside that root; symbolic links are resolved inside it too. So a driver installed in
another root, and a test's fake one, behave as the machine's own.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

_MAX_TEXT = 1 << 20
_MAX_LINKS = 40


class Node(NamedTuple):
    """A device node.

    Attributes:
        path: where it is seen inside the driver root, and in the container.
        source: its absolute host path.
        major, minor: its device number; of a node that is no character device, (-1, -1).
        usable: whether this process may open it for reading and writing.
        owner: "uid:gid mode", for messages.
    """

    path: str
    source: str
    major: int
    minor: int
    usable: bool
    owner: str = ""
    gid: int = -1
    mode: int = 0

    @property
    def is_device(self) -> bool:
        """Whether it is a character device at all."""
        return self.major >= 0


class DriverRoot(NamedTuple):
    """The roots beneath which a driver is looked for; all absolute host paths.

    Attributes:
        root: libraries, programs, firmware and configuration files.
        dev_root, proc_root, sys_root: the roots whose /dev, /proc and /sys count; "" is `root`.
        ldcache: host path of the loader's cache; "" is `/etc/ld.so.cache` inside `root`.
        library_paths, binary_paths, config_paths: folders inside `root` to search instead of the
            usual ones.
    """

    root: str = "/"
    dev_root: str = ""
    proc_root: str = ""
    sys_root: str = ""
    ldcache: str = ""
    library_paths: tuple[str, ...] = ()
    binary_paths: tuple[str, ...] = ()
    config_paths: tuple[str, ...] = ()

    def root_of(self, path: str) -> str:
        """Return the host path of the root that `path` belongs to."""
        for prefix, root in (
            ("/dev/", self.dev_root),
            ("/proc/", self.proc_root),
            ("/sys/", self.sys_root),
        ):
            if path.startswith(prefix):
                return root or self.root
        return self.root

    def resolve(self, path: str) -> str | None:
        """Return the absolute host path of an existing file, links resolved inside the root."""
        root = self.root_of(path)
        if root == "/":
            found = os.path.realpath(path)
            return found if os.path.lexists(found) else None
        return resolve_beneath(root, path)

    def inside(self, host_path: str) -> str:
        """Return the path inside `root` of a resolved host path."""
        if self.root == "/":
            return host_path
        return host_path[len(self.root.rstrip("/")) :] or "/"

    def read(self, path: str) -> str | None:
        """Return a small text file, None if there is none or it may not be read."""
        found = self.resolve(path)
        if found is None:
            return None
        try:
            descriptor = os.open(found, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            data = os.read(descriptor, _MAX_TEXT)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return data.decode("utf-8", "replace")

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder; none if there is no such folder."""
        found = self.resolve(path)
        if found is None:
            return []
        try:
            return sorted(os.listdir(found))
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Tell whether something is there that this user can reach."""
        return self.resolve(path) is not None

    def node(self, path: str) -> Node | None:
        """Return a device node, never opening it; None if there is nothing.

        `access(2)` answers as `open(2)` would, device cgroup included, but has no side effect:
        opening a GPU's node may wake the GPU, which takes seconds.
        """
        found = self.resolve(path)
        if found is None:
            return None
        try:
            facts = os.stat(found)
        except OSError:
            return None
        major, minor = -1, -1
        if stat.S_ISCHR(facts.st_mode):
            major, minor = os.major(facts.st_rdev), os.minor(facts.st_rdev)
        usable = os.access(found, os.R_OK | os.W_OK, effective_ids=True)
        owner = f"{facts.st_uid}:{facts.st_gid} {stat.S_IMODE(facts.st_mode):04o}"
        return Node(path, found, major, minor, usable, owner, facts.st_gid, facts.st_mode)


def resolve_beneath(root: str, path: str) -> str | None:
    """Return the host path of `path` inside `root`, links resolved inside; None if missing.

    For reading trees that nobody changes meanwhile (a driver root). Mount points inside a
    container's rootfs are resolved by the kernel instead, see `linux/path.py`.
    """
    base = root.rstrip("/")
    parts = path.split("/")[::-1]
    resolved: list[str] = []
    links = 0
    while parts:
        part = parts.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if resolved:
                resolved.pop()
            continue
        current = "/".join((base, *resolved, part))
        try:
            target = os.readlink(current)
        except OSError:
            resolved.append(part)
            continue
        links += 1
        if links > _MAX_LINKS:
            return None
        if target.startswith("/"):
            resolved = []
        parts.extend(target.split("/")[::-1])
    found = "/".join((base, *resolved)) if resolved else base or "/"
    return found if os.path.lexists(found) else None


def driver_root(environ: Mapping[str, str]) -> DriverRoot:
    """Return the driver root that the configuration names, by default the machine's own.

    Args:
        environ: the settings' environment; ENROOT_GPU_ROOT and its companions.
    """

    def folder(name: str) -> str:
        text = environ.get(f"ENROOT_GPU_{name}", "")
        return os.path.realpath(text) if text else ""

    def folders(name: str) -> tuple[str, ...]:
        text = environ.get(f"ENROOT_GPU_{name}", "")
        return tuple(part for part in text.split(":") if part)

    return DriverRoot(
        root=folder("ROOT") or "/",
        dev_root=folder("DEV_ROOT"),
        proc_root=folder("PROC_ROOT"),
        sys_root=folder("SYS_ROOT"),
        ldcache=folder("LDCACHE"),
        library_paths=folders("LIBRARY_PATHS"),
        binary_paths=folders("BINARY_PATHS"),
        config_paths=folders("CONFIG_PATHS"),
    )
