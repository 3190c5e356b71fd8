"""A small root filesystem, and the installed commands to start it with, in folders of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.hooks.contexts import write_file

PROGRAMS = ("sh", "cat", "id", "ls", "env", "grep", "readlink", "echo", "true", "sleep", "touch")


class Sandbox:
    """A container named "box" and everything that starting it needs.

    Attributes:
        rootfs: its root filesystem.
        programs: the folder of the installed commands.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rootfs = folder / "data/enroot/box"
        self.sysconf = folder / "sysconf"
        self.programs = Path(sys.executable).parent
        make_rootfs(self.rootfs)
        for name in ("run", "home"):
            (folder / name).mkdir(mode=0o700)
        self.environ = {
            "HOME": str(folder / "home"),
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "PYTHONDONTWRITEBYTECODE": "1",
            "ENROOT_SYSCONF_PATH": str(self.sysconf),
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_RUNTIME_DIR": str(folder / "run"),
        }

    def call(
        self, *words: str, stdin: str = "", **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run an installed command: `call("enroot", "start", …)`."""
        return subprocess.run(
            [str(self.programs / words[0]), *words[1:]],
            input=stdin,
            env={**self.environ, **environ},
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def start(self, *words: str, **environ: str) -> str:
        """Start the container with options and a command; return its stdout."""
        done = self.call("enroot", "start", *words, **environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def hook(self, name: str, text: str, *, mode: int = 0o755) -> Path:
        """Write a hook of the user, which runs beside the standard ones."""
        return write_file(self.folder / "config/enroot/hooks.d" / name, text, mode=mode)


@contextmanager
def sandbox_in(folder: Path) -> Iterator[Sandbox]:
    """Make a sandbox and let its folder be removed in the end: mount points have mode 0000."""
    sandbox = Sandbox(folder)
    yield sandbox
    for path, names, _ in os.walk(folder):
        for name in names:
            if not os.path.islink(f"{path}/{name}"):
                os.chmod(f"{path}/{name}", 0o700)


def make_rootfs(rootfs: Path) -> None:
    """Make a root filesystem with one program of many names (Debian's busybox-static)."""
    for name in ("bin", "etc", "dev", "proc", "sys", "tmp", "usr/bin", "root", "mnt"):
        (rootfs / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", rootfs / "bin/busybox")
    for name in PROGRAMS:
        (rootfs / "bin" / name).symlink_to("busybox")
    (rootfs / "bin/busybox").chmod(0o755)


def identity(pid: int | str, kind: str) -> str:
    """Return which namespace of a kind a process is in."""
    return os.readlink(f"/proc/{pid}/ns/{kind}")
