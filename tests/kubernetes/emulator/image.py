"""The image of emulated pods: Python, bash, coreutils and Open MPI, copied from this Debian.

Batch scripts on the test Slurm run in the same image, which is why it has Slurm's own commands:
in a pod the launcher's must come before them. There is no entry for the user in /etc/passwd.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

_PYTHON = os.path.basename(os.path.realpath("/usr/bin/python3"))  # python3.11
PACKAGES = (
    "bash", "coreutils", "dash", "grep", "sed", "hostname", "procps", "util-linux",
    f"{_PYTHON}-minimal", f"lib{_PYTHON}-minimal", f"lib{_PYTHON}-stdlib", "python3-minimal",
    "openmpi-bin", "openmpi-common", "libopenmpi3", "libpmix2",
    "openssh-client", "slurm-client", "slurm-wlm-basic-plugins", "libmunge2",
)  # fmt: skip
BARE = ("bash", "coreutils", "dash", "grep", "sed", "hostname")
"""An image without Python."""
_LEFT_OUT = re.compile(
    r"/share/(doc|man|locale|lintian|bug|info|menu|perl5|bash-completion|gdb)/|/etc/(init|systemd)"
    r"|/(include|pkgconfig|gconv|test|lib2to3|pydoc_data|idlelib)/|\.(pyc|a|h|mod)\Z"
    # Fabrics that no pod has, with everything that they are linked to.
    r"|/mca_\w+_(ucx|ofi|psm2?|openib|oshmem)\.so|/liboshmem|/libfabric"
    r"|/(openapi_|rest_|sacctmgr|sreport|slurmrestd)"
)
_CONFIGURATION = ("/etc/ld.so.conf", "/etc/ld.so.conf.d/x86_64-linux-gnu.conf",
                  "/etc/nsswitch.conf", "/etc/protocols", "/etc/services")  # fmt: skip
_MORE = ("/usr/bin/mpirun", "/usr/bin/mpiexec")
_USED_BY_NAME = ("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2", "libgcc_s.so.1")
_FOLDERS = ("tmp", "proc", "sys", "dev", "run", "root", "var/run", "var/lock", "etc", "usr/lib64",
            "srv", "opt", "mnt")  # fmt: skip
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "IN_IMAGE": "yes",
    "OMPI_MCA_btl": "tcp,self",
    # Every pod is a whole node with its tests' few cores.
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}
_ENTRYPOINT = '#!/bin/sh\nFROM_ENTRYPOINT=yes\nexport FROM_ENTRYPOINT\nexec "$@"\n'
_RC = """\
if [ $# -gt 0 ]; then
    exec /entrypoint "$@"
fi
exec /entrypoint sh
"""


def make_image(
    path: Path, *, programs: Iterable[Path] = (), packages: Sequence[str] = PACKAGES
) -> Path:
    """Make a squashfs image of this machine's programs.

    Args:
        path: where the image goes.
        programs: more programs, which go to /usr/local/bin.
        packages: Debian's packages that are in it.
    """
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".image-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        for name in ("usr/bin", "usr/sbin", "usr/lib", "usr/local/bin", *_FOLDERS):
            (root / name).mkdir(parents=True, exist_ok=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            (root / name).symlink_to(f"usr/{name}")
        (root / "tmp").chmod(0o1777)
        for source in _files(packages):
            _copy(source, root)
        for program in programs:
            shutil.copy(program, root / "usr/local/bin" / program.name)
            (root / "usr/local/bin" / program.name).chmod(0o755)
        _write_configuration(root)
        subprocess.run(["/sbin/ldconfig", "-r", str(root)], check=True, stderr=subprocess.DEVNULL)
        options = ["-all-root", "-comp", "lz4", "-noappend", "-quiet", "-no-progress"]
        subprocess.run(
            ["mksquashfs", str(root), str(path), *options], check=True, stdout=subprocess.DEVNULL
        )
    path.chmod(0o644)
    return path


def _write_configuration(root: Path) -> None:
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    lines = "".join(f"{name}={value}\n" for name, value in _ENVIRONMENT.items())
    (root / "etc/environment").write_text(lines)
    (root / "etc/rc").write_text(_RC)
    (root / "entrypoint").write_text(_ENTRYPOINT)
    (root / "entrypoint").chmod(0o755)


def _files(packages: Sequence[str]) -> list[str]:
    listed = subprocess.run(["dpkg", "-L", *packages], check=True, capture_output=True, text=True)
    names = {name for name in listed.stdout.splitlines() if not _LEFT_OUT.search(name)}
    more = _MORE if "openmpi-bin" in packages else ()
    files = sorted({*filter(os.path.isfile, names), *_CONFIGURATION, *more})
    return sorted({*files, *_libraries(files)})


def _libraries(files: list[str]) -> set[str]:
    """The libraries that programs are linked to, and those that the C library loads by name."""
    programs = []
    for name in files:
        with open(name, "rb") as file:
            if not os.path.islink(name) and file.read(4) == b"\x7fELF":
                programs.append(name)
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    found = {name for name in re.findall(r"(/\S+) \(0x", listed) if not _LEFT_OUT.search(name)}
    return found | {f"/lib/x86_64-linux-gnu/{name}" for name in _USED_BY_NAME}


def _copy(source: str, root: Path) -> None:
    """Copy a file, or a link and what it leads to, behind the links of a merged /usr."""
    folder, name = os.path.split(source)
    place = Path(os.path.realpath(folder)) / name
    target = root / str(place).lstrip("/")
    if target.is_symlink() or target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink():
        target.symlink_to(os.readlink(place))
        _copy(os.path.join(os.path.realpath(place.parent), os.readlink(place)), root)
    else:
        shutil.copy(place, target)
