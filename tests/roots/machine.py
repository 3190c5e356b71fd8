"""A root file system made of this machine's own programs, for machines without a network.

Programs come with the shared objects that they need; whatever belongs to a GPU driver is left out.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

DRIVER = ("libcuda.so", "libnvidia-", "libcudadebugger", "libnvcuvid")
PROGRAMS = ("sh", "env", "true", "ls", "cat")


def dependencies(files: Iterable[Path]) -> set[Path]:
    """Return the shared objects that files need, by the dynamic loader's own account."""
    listed = subprocess.run(
        ["ldd", *map(str, files)], capture_output=True, text=True, check=False
    ).stdout
    words = {word.rstrip(":") for word in listed.split() if word.startswith("/")}
    return {Path(word) for word in words if not Path(word).name.startswith(DRIVER)}


def copy_into(root: Path, files: Iterable[Path]) -> None:
    """Copy files, links followed, to the same paths below `root`."""
    for file in files:
        target = root / str(file).lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)


def build_machine_rootfs(root: Path, extra: Iterable[Path] = ()) -> Path:
    """Make a root file system with a shell, a few programs and their libraries.

    Args:
        extra: shared objects whose dependencies are taken too.
    """
    for name in ("dev", "proc", "sys", "tmp", "run", "etc", "root", "var"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        if not (root / name).exists():
            (root / name).symlink_to(f"usr/{name}")
    (root / "var/run").symlink_to("/run")
    (root / "var/lock").symlink_to("/run")
    found = [Path(path) for name in PROGRAMS if (path := shutil.which(name))]
    for program in found:
        shutil.copy(program, root / "usr/bin" / program.name)
    copy_into(root, dependencies([*found, *extra]))
    (root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
    (root / "etc/ld.so.conf.d").mkdir(exist_ok=True)
    (root / "etc/ld.so.conf.d/x86_64-linux-gnu.conf").write_text(
        "/usr/local/lib\n/lib/x86_64-linux-gnu\n/usr/lib/x86_64-linux-gnu\n"
    )
    subprocess.run(["/sbin/ldconfig", "-r", str(root)], check=True, stderr=subprocess.DEVNULL)
    return root
