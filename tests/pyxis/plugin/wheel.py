"""This package as pip installs it: a wheel, in a virtual environment outside the source tree."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

TREE = Path(__file__).resolve().parents[3]


def build_wheel(folder: Path) -> Path:
    """Build the wheel into a folder, with the build backend and no network."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def install_wheel(wheel: Path, folder: Path) -> Path:
    """Make a virtual environment with the wheel in it; return the folder of its commands.

    The dependencies are those of the environment that the tests run in.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--isolated", "install", "-q"]
    options = ["--no-deps", "--no-index", "--no-cache-dir", "--no-compile"]
    subprocess.run([*pip, *options, str(wheel)], check=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    # Added behind the environment's own; .pth files of that folder, as of this tree, don't count.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"
