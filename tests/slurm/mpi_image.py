"""An image that has Debian's OpenMPI in it: nothing of the host's has to be mounted."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.slurm.images import make_image

PROGRAM = "/usr/bin/ring"
"""The program in the image, made of ring.c."""


def make_mpi_image(path: Path) -> Path:
    """Make the usual image, and in it OpenMPI, PMIx, their components, and a program."""
    make_image(path)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        root = Path(folder)
        (root / "usr/bin").mkdir(parents=True)
        for name in ("lib", "lib64"):
            (root / "usr" / name).mkdir()
            (root / name).symlink_to(f"usr/{name}")
        source = Path(__file__).with_name("ring.c")
        program = f"{root}{PROGRAM}"
        _run("mpicc", "-O1", "-o", program, str(source))
        components = _components()
        for file in [*components, *_libraries([program, *components])]:
            _copy(file, root)
        # What is in the image already stays: more is added to it.
        _run("mksquashfs", str(root), str(path), "-all-root", "-quiet", "-no-progress")
    return path


def _components() -> list[str]:
    """What OpenMPI and PMIx load while they run; no program names it."""
    libraries = Path(_run("mpicc", "-showme:libdirs").split()[0])
    folders = [libraries / "openmpi3", *libraries.parents[1].glob("pmix2/lib/pmix")]
    files = [str(file) for folder in folders for file in folder.glob("*.so")]
    assert any("mca_pmix" in file for file in files), folders
    return files


def _libraries(files: list[str]) -> list[str]:
    """The libraries of programs and libraries, the loader included."""
    return sorted(set(re.findall(r"(/\S+) \(0x", _run("ldd", *files))))


def _copy(file: str, root: Path) -> None:
    # /lib and /lib64 are links to folders of /usr, on the host as in the image.
    target = Path(f"{root}{re.sub('^/lib', '/usr/lib', file)}")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, target)


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
