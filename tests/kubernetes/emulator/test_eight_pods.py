"""Eight pods at once: the long script, and a rendezvous that finds its host by name."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from pyxis_py.kubernetes.launcher.zipapp import build_launcher
from tests.kubernetes.emulator.comparison import sections
from tests.kubernetes.emulator.jobs import FOLDER, cluster_for, render_script

pytestmark = [pytest.mark.kernel, pytest.mark.soak]

# As torchrun's c10d backend: the node of that name serves, and ranks are given as nodes come.
BODY = """\
#!/bin/bash
#SBATCH -J eight
#SBATCH -N8
#SBATCH --ntasks-per-node=1
#SBATCH -t 10
#SBATCH -o out.txt
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
for round in 1 2 3; do
    srun --kill-on-bad-exit=1 python3 rendezvous.py --nnodes=$SLURM_NNODES --nproc-per-node=4 \\
        --rdzv-endpoint=$head:2940$round
done
mpirun ring
"""


@pytest.mark.parametrize("target", ["kueue", "kueue-job", "volcano"])
def test_a_rendezvous_and_mpi(tmp_path: Path, image: Path, target: str) -> None:
    shutil.copy(FOLDER / "rendezvous.py", tmp_path)
    (tmp_path / "job.sh").write_text(BODY)
    rendering = render_script(tmp_path / "job.sh", target=target, launcher=build_launcher())  # type: ignore[arg-type]
    with cluster_for(rendering, image, tmp_path, lag=1.0) as cluster:
        assert cluster.finish(120).complete, cluster.logs()
    lines = (tmp_path / "out.txt").read_text().splitlines()
    total = sum(rank * rank for rank in range(32))
    expected = [f"rank {rank} of 32, local {rank % 4}: {total}" for rank in range(32)]
    assert sorted(lines[:96]) == sorted(expected * 3)
    ring = [f"{rank} of 8: 28 {rank + 1 if rank else 8}" for rank in range(8)]
    assert sorted(line.rpartition(" ")[0] for line in lines[96:]) == ring


def test_the_long_script(tmp_path: Path, image: Path) -> None:
    for name in ("steps.sh", "rendezvous.py"):
        shutil.copy(FOLDER / name, tmp_path)
    script = tmp_path / "steps.sh"
    script.write_text(script.read_text().replace("--nodes=4", "--nodes=8"))
    rendering = render_script(script, launcher=build_launcher(), arguments=["argument"])
    with cluster_for(rendering, image, tmp_path, lag=1.0) as cluster:
        cluster.finish(180)
        end = cluster.pod(0).end
        assert end is not None and end.status == 3, cluster.logs()
    (output,) = tmp_path.glob("*.out")
    found = sections(output.read_text())
    (title,) = (title for title in found if title.startswith("the batch script"))
    assert found[title][0] == "8 nodes, on the first: yes"
    ranks = [line for line in found["a rendezvous as torchrun makes it"] if "rank" in line]
    assert len(ranks) == 8  # the script's step is one of four nodes
    ring = [line for line in found["an MPI program"] if re.match(r"\d+ of 16", line)]
    assert len(ring) == 16
