"""The image of the pods, made once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.kubernetes.emulator.image import make_image

_RING = Path(__file__).resolve().parents[2] / "slurm/ring.c"


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A squashfs image with Python, bash, Open MPI, and an MPI program `ring`."""
    folder = tmp_path_factory.mktemp("image")
    subprocess.run(["mpicc", "-O1", "-o", str(folder / "ring"), str(_RING)], check=True)
    return make_image(folder / "tools.sqsh", programs=[folder / "ring"])
