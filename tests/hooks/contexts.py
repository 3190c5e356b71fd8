"""Contexts for hooks: a rootfs on disk, settings, and mounts that are only noted down."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from enroot_py.hooks.context import HookContext
from enroot_py.host import observe_host
from enroot_py.linux.kernel import Kernel
from enroot_py.plan.fstab import Mount
from enroot_py.settings import load_settings


class Container:
    """A container-to-be below a temporary folder.

    Attributes:
        rootfs: the folder that becomes the root.
        mounted: what hooks mounted at once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rootfs = folder / "rootfs"
        self.workdir = folder / "work"
        self.sysconf = folder / "sysconf"
        self.config = folder / "config"
        for path in (self.rootfs, self.workdir, self.sysconf, self.config):
            path.mkdir(exist_ok=True)
        self.mounted: list[Mount] = []

    def context(
        self,
        host: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        **settings: object,
    ) -> HookContext:
        """Return a context; `host` and `environ` are the host's and the container's variables."""
        variables = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.folder),
            "ENROOT_SYSCONF_PATH": str(self.sysconf),
            "ENROOT_CONFIG_PATH": str(self.config),
            **(host or {}),
        }
        return HookContext(
            pid=os.getpid(),
            rootfs=str(self.rootfs),
            workdir=str(self.workdir),
            settings=load_settings(variables)._replace(**settings),
            host=observe_host(),
            kernel=Kernel(),
            environ_file=str(self.workdir / "environment"),
            mounts_file=str(self.workdir / "fstab"),
            environ=dict(environ or {}),
            mount=self.mounted.extend,
            is_image=False,
        )

    def write(self, path: str, text: str | bytes, *, mode: int = 0o644) -> Path:
        """Write a file of the rootfs."""
        return write_file(self.rootfs / path.lstrip("/"), text, mode=mode)

    def read(self, path: str) -> str:
        """Read a file of the rootfs."""
        return (self.rootfs / path.lstrip("/")).read_text()

    def hook(self, name: str, text: str, *, mode: int = 0o755, user: bool = False) -> Path:
        """Write a hook into the system's or the user's `hooks.d`."""
        folder = (self.config if user else self.sysconf) / "hooks.d"
        return write_file(folder / name, text, mode=mode)


def write_file(path: Path, text: str | bytes, *, mode: int = 0o644) -> Path:
    """Write a file with exactly this mode, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return path


def inheritable_descriptors() -> set[str]:
    """Return the descriptors that any child gets: those that this process inherited."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.get_inheritable(int(name)):
                found.add(name)
        except OSError:
            continue
    return found


def wait_until_asleep(pid: int, name: str) -> None:
    """Wait until a process is that program and has nothing more to do: it has printed its word
    before it executes the program, and the program itself takes a while to begin.
    """
    deadline = time.monotonic() + 60
    status = Path(f"/proc/{pid}/status")
    while not {f"Name:\t{name}", "State:\tS (sleeping)"} <= set(status.read_text().splitlines()):
        assert time.monotonic() < deadline, status.read_text()
        time.sleep(0.01)


def descriptors_of(pid: int, program: str) -> set[str]:
    """Return the descriptors of a process, once it has become `program` and sleeps: while it loads
    its libraries it has some more.
    """
    wait_until_asleep(pid, program)
    return set(os.listdir(f"/proc/{pid}/fd"))
