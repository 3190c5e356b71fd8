"""Images that lack what the launcher runs on."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyxis_py.kubernetes.launcher.zipapp import build_launcher
from tests.kubernetes.emulator.image import BARE, make_image
from tests.kubernetes.emulator.jobs import cluster_for, render_script

pytestmark = pytest.mark.kernel

BODY = """\
#!/bin/bash
#SBATCH -N2
#SBATCH --ntasks-per-node=1
#SBATCH -t 10
#SBATCH -o out.txt
command -v python3 || echo no Python
srun -l bash -c 'echo $SLURM_PROCID of $SLURM_NTASKS; type -t python3 || true' | sort
scontrol show hostnames | wc -l
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image without Python."""
    return make_image(tmp_path_factory.mktemp("bare") / "bare.sqsh", packages=BARE)


def test_an_init_container_brings_python(tmp_path: Path, image: Path, bare: Path) -> None:
    (tmp_path / "job.sh").write_text(BODY)
    rendering = render_script(tmp_path / "job.sh", launcher=build_launcher(), bring_python=True)
    with cluster_for(rendering, bare, tmp_path, python=image) as cluster:
        assert cluster.finish().complete, cluster.logs()
    found = (tmp_path / "out.txt").read_text().splitlines()
    assert found == ["no Python", "0: 0 of 2", "1: 1 of 2", "2"]


def test_without_one_the_pod_says_what_is_missing(tmp_path: Path, bare: Path) -> None:
    (tmp_path / "job.sh").write_text(BODY)
    rendering = render_script(tmp_path / "job.sh", launcher=build_launcher())
    with cluster_for(rendering, bare, tmp_path) as cluster:
        assert not cluster.finish().complete
        assert "python3: not found" in cluster.pod(0).log()
