"""The cluster itself: without it nothing that the other tests say means anything."""

from __future__ import annotations

import pytest

from tests.slurm.rig import NODES, Rig

pytestmark = pytest.mark.slurm


def test_steps_run_on_all_nodes_as_the_user(rig: Rig) -> None:
    done = rig.run("srun", f"-N{NODES}", "sh", "-c", "echo $SLURMD_NODENAME $(id -un)")
    expected = {f"node{number} {rig.user.pw_name}" for number in range(1, NODES + 1)}
    assert set(done.stdout.splitlines()) == expected, done.stderr


def test_nodes_have_their_own_folders(rig: Rig) -> None:
    done = rig.run(
        "srun", "-w", "node1,node2", "sh", "-c",
        f"echo > {rig.base}/local/mark-$SLURMD_NODENAME",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for number in (1, 2):
        names = [path.name for path in rig.node(number).glob("mark-*")]
        assert names == [f"mark-node{number}"]
