"""A plain srun in the script fits the job, whatever options the job's variables repeat."""

from __future__ import annotations

import pytest

from pyxis_py.kubernetes.launcher.job.allocation import Allocation, Share
from pyxis_py.kubernetes.launcher.job.environment import bind_gpus
from pyxis_py.kubernetes.launcher.srun.options import parse_srun
from pyxis_py.kubernetes.launcher.srun.plan import plan_request
from tests.kubernetes.samples import render, script, variables


def step(options: str, words: str = "") -> list[tuple[int, int]]:
    """Return the tasks and GPUs that a step has of each node of a job with these options."""
    environ = variables(render(script("-p flat", options)))
    nodes, gpus = int(environ["SLURM_NNODES"]), int(environ.get("SLURM_GPUS_ON_NODE", "0"))
    hosts = [f"h{number}" for number in range(nodes)]
    request, _ = plan_request(parse_srun([*words.split(), "prog"], environ), nodes)
    allocation = Allocation(hosts, int(environ["SLURM_CPUS_ON_NODE"]), gpus)
    shares = allocation.allocate(request)
    assert shares is not None
    for share in shares:
        _bind(environ.get("SLURM_GPU_BIND", ""), share)
    return [(len(share.tasks), len(share.gpus)) for share in shares]


def _bind(text: str, share: Share) -> None:
    for place in range(len(share.tasks)):
        assert bind_gpus(text, share, place, 0) or not share.gpus


@pytest.mark.parametrize(("options", "expected"), [
    ("-N2 --gres=gpu:4 --ntasks-per-gpu=1", [(4, 4), (4, 4)]),
    ("-N2 --gres=gpu:4 --ntasks-per-gpu=1 -n8", [(4, 4), (4, 4)]),
    ("-N2 --gpus-per-node=4 --ntasks-per-gpu=2", [(8, 4), (8, 4)]),
    ("-N2 --gpus=8 --ntasks-per-gpu=1", [(4, 4), (4, 4)]),
    ("-N2 -n8 --ntasks-per-gpu=2", [(4, 2), (4, 2)]),
    ("-N2 -n5 --ntasks-per-gpu=1", [(3, 3), (2, 2)]),
    ("-N2 --gpus=8", [(1, 4), (1, 4)]),
    ("-N2 --gpus-per-node=4 --ntasks-per-node=2", [(2, 4), (2, 4)]),
    ("-N2 -n4 --gpus-per-task=h100:2", [(2, 4), (2, 4)]),
    ("-N2 --gpus-per-node=4 --cpus-per-gpu=6", [(1, 4), (1, 4)]),
    ("-N2 -n8 --gpus-per-task=1 --cpus-per-gpu=6", [(4, 4), (4, 4)]),
    ("-N2 -n8 --ntasks-per-gpu=2 --cpus-per-gpu=6", [(4, 2), (4, 2)]),
    ("-N2 -n8 --overcommit -c4", [(4, 0), (4, 0)]),
    ("-N2 -n8 --gres=gpu:4 --gpu-bind=verbose,Map_GPU:0,0x1,2*2", [(4, 4), (4, 4)]),
    ("-N2 -n8 --gres=gpu:4 --gpu-bind=map_gpu:01,,1,", [(4, 4), (4, 4)]),
    ("-N2 -n8 --gres=gpu:4 --gpu-bind=SINGLE:2", [(4, 4), (4, 4)]),
    ("-N2 -n8 --gres=gpu:4 --gpu-bind=single:0", [(4, 4), (4, 4)]),
    ("-N2 -n8 --gres=gpu:4 --gpu-bind=per_task:0", [(4, 4), (4, 4)]),
    ("-N2 -n8 --gres=gpu:4 --gpu-bind=per_task:1,verbose", [(4, 4), (4, 4)]),
    ("-N2 -n8 --gres=gpu:4 --gpu-bind=mask_gpu:1,f", [(4, 4), (4, 4)]),
    ("-N2 -n8 --hint=nomultithread", [(4, 0), (4, 0)]),
    ("-N2 -n8 --ntasks-per-core=1 --ntasks-per-socket=2", [(4, 0), (4, 0)]),
    ("-N2 -n8 --threads-per-core=2 --open-mode=Append", [(4, 0), (4, 0)]),
    ("-N2 -n8 -m PLANE=4", [(4, 0), (4, 0)]),
    ("-N2 -n8 -m Cyclic:Block,NoPack", [(4, 0), (4, 0)]),
    ("-N2 -n8 -m *:*:fcyclic", [(4, 0), (4, 0)]),
    ("-N2 -n8 -m pack", [(4, 0), (4, 0)]),
    ("-N2 -n8 -w a,b -m arbitrary", [(4, 0), (4, 0)]),
])  # fmt: skip
def test_a_plain_srun_has_all_of_the_job(options: str, expected: list[tuple[int, int]]) -> None:
    assert step(options) == expected


@pytest.mark.parametrize(("words", "expected"), [
    ("-n1", [(1, 1)]),
    ("-n4", [(2, 2), (2, 2)]),
    ("-N1 -n4", [(4, 4)]),
    ("--gpus-per-node=1", [(4, 1), (4, 1)]),
    ("--ntasks-per-node=4", [(4, 4), (4, 4)]),
    ("-n2 --gpus-per-task=1", [(1, 1), (1, 1)]),
])  # fmt: skip
def test_a_part_of_a_job_that_counts_tasks_by_gpus(
    words: str, expected: list[tuple[int, int]]
) -> None:
    assert step("-N2 --gres=gpu:4 --ntasks-per-gpu=1", words) == expected
