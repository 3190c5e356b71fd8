"""Numbers of nodes and tasks, from srun's options and the job's variables."""

from __future__ import annotations

import json

import pytest

from pyxis_py.kubernetes.launcher.job.command_line import CommandLineError
from pyxis_py.kubernetes.launcher.job.step_request import StepRequest
from pyxis_py.kubernetes.launcher.srun.options import parse_srun
from pyxis_py.kubernetes.launcher.srun.plan import plan_request

JOB = {"SLURM_JOB_NUM_NODES": "4", "SLURM_NNODES": "4"}
TASKS = {**JOB, "SLURM_NTASKS": "8", "SLURM_NPROCS": "8"}


def plan(words: str, environ: dict[str, str] = JOB, nodes: int = 4) -> StepRequest:
    return plan_request(parse_srun([*words.split(), "prog"], environ), nodes)[0]


@pytest.mark.parametrize(
    ("words", "environ", "nodes", "ntasks"),
    [
        ("", JOB, (4, 4), 4),
        ("", TASKS, (4, 4), 8),
        ("-N2", JOB, (2, 2), 2),
        ("-N2", TASKS, (2, 2), 8),
        ("-n2", JOB, (2, 2), 2),
        ("-n2", TASKS, (2, 2), 2),
        ("-N1 -n1", TASKS, (1, 1), 1),
        ("-N1-3 -n2", JOB, (1, 3), 2),
        ("--ntasks-per-node=3", JOB, (4, 4), 12),
        ("--ntasks-per-node=3 -N2", JOB, (2, 2), 6),
        ("-w b", {}, (1, 1), 1),
        ("-w b,c", {}, (2, 2), 2),
        ("-w b", JOB, (4, 4), 4),
        ("-N1 -n1 -w b", JOB, (1, 1), 1),
        ("-N1 -w b,c", JOB, (1, 1), 1),
        ("--ntasks-per-gpu=2 --gpus=4", {}, (1, 1), 8),
        ("--ntasks-per-gpu=2 --gpus-per-node=4 -N2", TASKS, (2, 2), 16),
    ],
)
def test_numbers(words: str, environ: dict[str, str], nodes: tuple[int, int], ntasks: int) -> None:
    request = plan(words, environ)
    assert (request.nodes, request.ntasks) == (nodes, ntasks)


def test_a_number_of_tasks_on_each_node_that_does_not_fit_is_ignored_with_a_warning() -> None:
    request, warnings = plan_request(parse_srun(["--ntasks-per-node=1", "prog"], TASKS), 4)
    assert request.per_node == 0
    assert "--ntasks-per-node=1" in warnings[0]


def test_fewer_tasks_than_nodes_on_the_command_line_is_warned_about() -> None:
    assert "2 tasks" in plan_request(parse_srun(["-N4", "-n2", "prog"], {}), 4)[1][0]
    assert plan_request(parse_srun(["-n2", "prog"], JOB), 4)[1] == []


@pytest.mark.parametrize(
    ("words", "whole"),
    [("", True), ("--exact", False), ("--exclusive", False), ("-c2", False), ("-c2 --whole", True),
     ("--overlap", True)],
)  # fmt: skip
def test_a_step_has_its_nodes_whole_unless_it_says_otherwise(words: str, whole: bool) -> None:
    assert plan(words).whole is whole


@pytest.mark.parametrize(
    ("words", "expected"),
    [("", ("block", 0)), ("-m cyclic", ("cyclic", 0)), ("-m cyclic:block", ("cyclic", 0)),
     ("-m *:cyclic", ("block", 0)), ("-m plane=3", ("plane", 3)),
     ("-m block,NoPack", ("block", 0))],
)  # fmt: skip
def test_distributions(words: str, expected: tuple[str, int]) -> None:
    request = plan(words)
    assert (request.distribution, request.plane) == expected


def test_an_arbitrary_distribution_takes_its_tasks_from_the_list() -> None:
    srun = parse_srun(["-m", "arbitrary", "prog"], JOB)
    request, _ = plan_request(srun, 4, ["b", "a", "b"])
    assert request.required == ("b", "a", "b")
    assert request.ntasks == 3
    srun = parse_srun(["-m", "arbitrary", "-n2", "prog"], JOB)
    assert plan_request(srun, 4, ["b", "a", "b"])[0].required == ("b", "a")
    with pytest.raises(CommandLineError, match="names 1 host"):
        plan_request(srun, 4, ["b"])


@pytest.mark.parametrize("words", ["-m plane", "-m plane=0", "-m nosuch", "-m arbitrary", "-N5",
                                   "-N3-2"])  # fmt: skip
def test_contradictions_are_refused(words: str) -> None:
    with pytest.raises(CommandLineError):
        plan(words)


def test_a_request_survives_its_journey() -> None:
    request = plan("-N2-3 -n4 -w a,b -x c -r 0 -m plane=2 --exact -c2 --gpus-per-task=1")
    content = json.loads(json.dumps(request._asdict()))
    assert StepRequest.from_json(content) == request


@pytest.mark.parametrize("content", [{}, {"nodes": 3}])
def test_what_is_no_request_is_an_error(content: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError)):
        StepRequest.from_json(content)
