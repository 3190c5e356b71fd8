"""The tasks that an order asks for."""

from __future__ import annotations

from typing import Any

import pytest

from pyxis_py.kubernetes.launcher.job.allocation import Share
from pyxis_py.kubernetes.launcher.job.job_file import Job, parse_job
from pyxis_py.kubernetes.launcher.job.launch_order import LaunchOrder
from pyxis_py.kubernetes.launcher.node.task_plan import (
    MARK,
    LaunchError,
    PodFacts,
    TaskPlan,
    plan_tasks,
)
from tests.kubernetes.launcher.job.test_launch_order import ORDER
from tests.kubernetes.launcher.pods import job_content

FACTS = PodFacts(
    pod={"PATH": "/image", "IN_IMAGE": "image", "POD_NAME": "pod-1"},
    local={"PYXIS_LAUNCHER_BIN": "/here/bin", "POD_NAME": "pod-1", "SLURMD_NODENAME": "n1"},
    secrets={"T": "secret"},
    directory="/image/work",
    cpus=(2, 3, 6, 7),
)
JOB = parse_job(job_content(2, gpusPerNode=2), {"SLURM_NODEID": "1"})
STEP = ORDER._replace(
    environ={"PATH": "/there/bin:/usr/bin", "IN_IMAGE": "job", "CUDA_VISIBLE_DEVICES": "0,1"},
    bin="/there/bin",
    cpu_bind="",
)


def plan(order: LaunchOrder = STEP, job: Job = JOB, **changes: Any) -> list[TaskPlan]:
    return plan_tasks(order._replace(**changes), job, FACTS)


def test_each_task_has_its_program_place_and_variables() -> None:
    first, second = plan()
    assert (first.number, first.argv, second.argv) == (4, ["a"], ["b", "c d"])
    assert first.environ["PATH"] == "/here/bin:/usr/bin"
    assert first.environ["T"] == "secret"
    assert first.environ["POD_NAME"] == "pod-1"
    assert second.environ["SLURM_PROCID"] == "5"
    assert second.environ["SLURM_LOCALID"] == "1"
    assert second.place.task == 5
    assert first.environ[MARK] == second.environ[MARK] == "test-4711-n-0-0.3.1"


def test_gpus_are_those_of_the_task_or_none_of_the_job_s() -> None:
    assert [task.environ["CUDA_VISIBLE_DEVICES"] for task in plan()] == ["0", "1"]
    for task in plan(share=Share(2, (4, 5), 8, ())):
        assert "CUDA_VISIBLE_DEVICES" not in task.environ
    job = JOB._replace(gpus=0)
    for task in plan(job=job, share=Share(2, (4, 5), 8, ())):
        assert task.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_the_image_wins_where_a_step_asks_for_a_container() -> None:
    assert plan()[0].environ["IN_IMAGE"] == "job"
    assert plan(image_kept=())[0].environ["IN_IMAGE"] == "image"
    assert plan(image_kept=())[0].environ["PATH"] == "/here/bin:/image"
    assert plan(image_kept=("IN_IMAGE",))[0].environ["IN_IMAGE"] == "job"


def test_folders_and_cpus() -> None:
    assert plan()[0].directory == "/d"
    assert plan(directory="")[0].directory == "/image/work"
    assert [task.cpus for task in plan()] == [(), ()]
    assert [task.cpus for task in plan(cpu_bind="cores")] == [(2, 3), (6, 7)]
    with pytest.raises(LaunchError, match="sockets"):
        plan(cpu_bind="sockets")
