"""What an injection has to know about a container's root filesystem: read once, changes nothing.

The rootfs is untrusted; every path is resolved beneath it.
"""

from __future__ import annotations

import os
from stat import S_ISCHR, S_ISDIR

from enroot_py.errors import KernelError
from enroot_py.gpu.injection import OWN_FOLDER, Injection
from enroot_py.linux.path import read_beneath, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

SAME, FILE, FOLDER, VOLATILE, MISSING = "same", "file", "folder", "volatile", ""

MAX_CACHE = 16 << 20
"""Bytes; an image with a larger loader cache gets LD_LIBRARY_PATH instead."""

_MAX_CONF = 1 << 16
_FOLDERS = ("/run", "/var/run", "/tmp")
_NAME = "enroot/gpu"
_GLIBC = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib64/ld64.so.2")
_MUSL = ("/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1", "/lib/ld-musl-powerpc64le.so.1")


class RootfsFacts(NamedTuple):
    """Facts about one rootfs and about the paths that an injection wants.

    Attributes:
        folder: path in the container of the folder that is ours alone, in memory.
        ephemeral: what is written to the rootfs vanishes with the container.
        writable: the container may write its rootfs.
        libc: "glibc", "musl" or "".
        cache: the loader cache; None if there is none.
        profile: the login shells' start-up file; None if there is none.
        conf: path and content of a drop-in of the loader's configuration that distributions ship.
        existing: for each target what is there: SAME (already the very file), FILE, FOLDER,
            VOLATILE (nothing, but its place is in memory) or MISSING.
        shared_dev: /dev is the host's own.
        devices: for each /dev path asked about, whether the right node (or, for paths to be hidden,
            anything) is there.
    """

    folder: str = OWN_FOLDER
    ephemeral: bool = False
    writable: bool = False
    libc: str = "glibc"
    cache: bytes | None = None
    profile: bytes | None = None
    conf: tuple[str, bytes] | None = None
    existing: tuple[tuple[str, str], ...] = ()
    shared_dev: bool = True
    devices: frozenset[str] = frozenset()

    def kind(self, target: str) -> str:
        """Return what is at a target that was asked about."""
        return dict(self.existing).get(target, MISSING)

    def can_create(self, target: str) -> bool:
        """Tell whether nothing is at a target and something put there would leave no trace."""
        kind = self.kind(target)
        return kind == VOLATILE or (kind == MISSING and self.ephemeral)


def observe_rootfs(
    rootfs: str, injection: Injection, *, ephemeral: bool, writable: bool
) -> RootfsFacts:
    """Read the facts that placing `injection` needs.

    Args:
        rootfs: absolute host path of the mounted root filesystem.
    """
    root_fd = os.open(rootfs, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        observer = _Observer(root_fd)
        targets = {bind.target: bind.source for bind in injection.binds}
        targets.update((program.target, program.source) for program in injection.programs)
        targets.update((link.path, "") for link in injection.links)
        targets.update((text.path, "") for text in injection.texts)
        return RootfsFacts(
            folder=private_folder(root_fd),
            ephemeral=ephemeral,
            writable=writable,
            libc=observer.libc(),
            cache=observer.read("/etc/ld.so.cache", MAX_CACHE),
            profile=observer.read("/etc/profile", _MAX_CONF),
            conf=observer.loader_drop_in() if writable else None,
            existing=tuple((path, observer.kind(path, targets[path])) for path in targets),
            shared_dev=observer.shared_dev(),
            devices=observer.devices(injection),
        )
    finally:
        os.close(root_fd)


def private_folder(root_fd: int) -> str:
    """Return the path, inside the rootfs, of the folder for our files.

    It lies in a folder that is in memory (the usual mounts put a tmpfs on /var/run), so that no
    trace of it stays in the rootfs.
    """
    observer = _Observer(root_fd)
    for folder in _FOLDERS:
        if observer.in_memory(folder):
            return f"{observer.real_path(folder)}/{_NAME}"
    return f"/run/{_NAME}"


class _Observer:
    def __init__(self, root_fd: int) -> None:
        self.root_fd = root_fd
        self.device = os.stat(root_fd).st_dev

    def stat(self, path: str) -> os.stat_result | None:
        try:
            with resolve(self.root_fd, path) as place:
                return os.fstat(place.fd)
        except KernelError:
            return None

    def read(self, path: str, limit: int) -> bytes | None:
        try:
            return read_beneath(self.root_fd, path, limit=limit)
        except KernelError:
            return None

    def real_path(self, path: str) -> str:
        """Return the path inside the rootfs without symbolic links; `path` must exist."""
        root = os.readlink(f"/proc/self/fd/{self.root_fd}")
        with resolve(self.root_fd, path) as place:
            found = os.readlink(place.path)
        return found[len(root.rstrip("/")) :] if found.startswith(root.rstrip("/") + "/") else path

    def in_memory(self, path: str) -> bool:
        """Tell whether a folder is another file system than the rootfs, mounted for this start."""
        facts = self.stat(path)
        return facts is not None and S_ISDIR(facts.st_mode) and facts.st_dev != self.device

    def kind(self, path: str, source: str) -> str:
        facts = self.stat(path)
        if facts is None:
            parent = path.rpartition("/")[0]
            while parent and self.stat(parent) is None:
                parent = parent.rpartition("/")[0]
            return VOLATILE if parent and self.in_memory(parent) else MISSING
        if source:
            try:
                own = os.stat(source)
            except OSError:
                own = None
            if own and (own.st_dev, own.st_ino) == (facts.st_dev, facts.st_ino):
                return SAME
        return FOLDER if S_ISDIR(facts.st_mode) else FILE

    def libc(self) -> str:
        if any(self.stat(path) is not None for path in _GLIBC):
            return "glibc"
        return "musl" if any(self.stat(path) is not None for path in _MUSL) else ""

    def loader_drop_in(self) -> tuple[str, bytes] | None:
        """Find a drop-in that packages ship and nobody edits: it can carry one more line."""
        folder = "/etc/ld.so.conf.d"
        try:
            with resolve(self.root_fd, folder) as place:
                names = sorted(os.listdir(place.path))
        except OSError:
            return None
        for name in names:
            if name.startswith("nvidia") or name == "libc.conf" or name.endswith("-linux-gnu.conf"):
                content = self.read(f"{folder}/{name}", _MAX_CONF)
                if content is not None:
                    return f"{folder}/{name}", content
        return None

    def shared_dev(self) -> bool:
        facts = self.stat("/dev")
        return facts is not None and facts.st_dev == os.stat("/dev").st_dev

    def devices(self, injection: Injection) -> frozenset[str]:
        present = set()
        for device in injection.devices:
            facts = self.stat(device.target)
            if facts is None or not S_ISCHR(facts.st_mode):
                continue
            try:
                same = os.stat(device.source).st_rdev == facts.st_rdev
            except OSError:
                continue  # it vanished meanwhile; putting it in place will say so
            if same:
                present.add(device.target)
        present.update(path for path in injection.hidden if self.stat(path) is not None)
        return frozenset(present)
