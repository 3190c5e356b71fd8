"""Variables of the body, of steps and of tasks."""

from __future__ import annotations

from typing import Any

import pytest

from pyxis_py.kubernetes.launcher.job.allocation import Share
from pyxis_py.kubernetes.launcher.job.environment import (
    Step,
    apply_image,
    bind_gpus,
    body_environment,
    export_environment,
    image_variables,
    local_variables,
    move_path,
    step_environment,
    task_environment,
)
from pyxis_py.kubernetes.launcher.job.job_file import Job, parse_job
from tests.kubernetes.launcher.pods import job_content

POD = {
    "PATH": "/image/bin",
    "FROM_IMAGE": "image",
    "BOTH": "image",
    "POD_NAME": "pod-0",
    "HOSTNAME": "test-4711-n-0-0",
    "SLURM_JOB_ID": "4711",
    "SLURM_NODEID": "0",
    "SLURM_NNODES": "2",
}


def job(environ: dict[str, str] = POD, **changes: Any) -> Job:
    return parse_job(job_content(2, **changes), environ)


def body(job: Job, secrets: dict[str, str] | None = None) -> dict[str, str]:
    return body_environment(job, POD, secrets or {}, 1000)


def test_the_image_s_variables_win_over_exported_ones_as_under_pyxis() -> None:
    environ = body(job(exportEnv={"BOTH": "job", "MINE": "job"}), {"TOKEN": "secret"})
    assert (environ["BOTH"], environ["MINE"], environ["TOKEN"]) == ("image", "job", "secret")


def test_but_not_over_those_of_container_env() -> None:
    found = job(exportEnv={"BOTH": "job", "FROM_IMAGE": "job"}, containerEnv=["BOTH"])
    environ = body(found)
    assert (environ["BOTH"], environ["FROM_IMAGE"]) == ("job", "image")


def test_the_body_has_what_slurm_gives_a_batch_script() -> None:
    environ = body(job(timeLimitSeconds=60))
    expected = {
        "ENVIRONMENT": "BATCH",
        "SLURMD_NODENAME": "test-4711-n-0-0",
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_GTIDS": "0",
        "SLURM_JOB_NODELIST": "test-4711-n-0-[0-1]",
        "SLURM_JOB_START_TIME": "1000",
        "SLURM_JOB_END_TIME": "1060",
    }
    assert expected.items() <= environ.items()
    assert "CUDA_VISIBLE_DEVICES" not in environ
    assert "SLURM_JOB_END_TIME" not in body(job())


def test_gpus_of_the_job_are_visible_to_the_body() -> None:
    assert body(job(gpusPerNode=4))["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"


@pytest.mark.parametrize(("count", "expected"), [("0", None), ("", None), ("2", "2")])
def test_the_restart_count_is_set_from_the_first_restart_on(
    count: str, expected: str | None
) -> None:
    pod = {**POD, "SLURM_RESTART_COUNT": count}
    assert body_environment(job(), pod, {}, 0).get("SLURM_RESTART_COUNT") == expected


def step(**changes: Any) -> Step:
    fields: dict[str, Any] = {
        "job_id": "4711", "number": 3, "hosts": ("n0", "n1"),
        "shares": (Share(0, (0, 1), 4, ()), Share(1, (2,), 4, ())), "cpus_per_task": 0,
        "distribution": "block", "launcher": ("10.0.0.1", 6818), "umask": 0o27, **changes,
    }  # fmt: skip
    return Step(**fields)


def test_a_step_has_its_numbers_and_not_the_pod_s_names() -> None:
    base = {**POD, "PYXIS_LAUNCHER_BIN": "/tmp/x", "MINE": "1"}
    environ = step_environment(base, step())
    expected = {
        "SLURM_STEP_ID": "3",
        "SLURM_STEPID": "3",
        "SLURM_STEP_NODELIST": "n[0-1]",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NUM_TASKS": "3",
        "SLURM_STEP_TASKS_PER_NODE": "2,1",
        "SLURM_TASKS_PER_NODE": "2,1",
        "SLURM_NTASKS": "3",
        "SLURM_NPROCS": "3",
        "SLURM_NNODES": "2",
        "SLURM_DISTRIBUTION": "block",
        "SLURM_UMASK": "0027",
        "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",
        "MINE": "1",
    }
    assert expected.items() <= environ.items()
    assert not {"POD_NAME", "HOSTNAME", "PYXIS_LAUNCHER_BIN"} & set(environ)


def test_cpus_per_task_is_set_where_srun_was_asked_for_it() -> None:
    assert step_environment({}, step(cpus_per_task=2))["SLURM_CPUS_PER_TASK"] == "2"


def test_preserve_env_keeps_the_job_s_numbers() -> None:
    environ = step_environment({"SLURM_NTASKS": "64"}, step(preserve=True))
    assert environ["SLURM_NTASKS"] == "64"


def test_a_task_has_its_own_numbers_and_its_node_s_names() -> None:
    local = local_variables(job(), POD, "/tmp/bin", "10.0.0.1 6818")
    share = Share(1, (2, 5), 4, (2, 3))
    environ = task_environment({"A": "1"}, share, (1, 1), local)
    expected = {
        "SLURM_NODEID": "1",
        "SLURM_PROCID": "5",
        "SLURM_LOCALID": "1",
        "SLURM_GTIDS": "2,5",
        "SLURM_CPUS_ON_NODE": "4",
        "SLURM_STEP_GPUS": "2,3",
        "SLURM_GPUS_ON_NODE": "2",
        "SLURMD_NODENAME": "test-4711-n-0-0",
        "POD_NAME": "pod-0",
        "A": "1",
    }
    assert expected.items() <= environ.items()


def test_the_folder_of_commands_moves_with_a_step_to_another_pod() -> None:
    assert move_path("/tmp/a/bin:/bin:/x", "/tmp/a/bin", "/tmp/b/bin") == "/tmp/b/bin:/bin:/x"
    assert move_path("/tmp/b/bin:/bin", "", "/tmp/b/bin") == "/tmp/b/bin:/bin"


def test_the_image_wins_in_a_step_that_asks_for_a_container() -> None:
    image = image_variables(POD)
    assert image == {"PATH": "/image/bin", "FROM_IMAGE": "image", "BOTH": "image"}
    found = apply_image({"BOTH": "job", "FROM_IMAGE": "job", "MINE": "1"}, image, ["BOTH"])
    assert found == {"PATH": "/image/bin", "FROM_IMAGE": "image", "BOTH": "job", "MINE": "1"}


ENVIRON = {"A": "1", "B": "2", "PATH": "/bin", "SLURM_JOB_ID": "4"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ENVIRON),
        ("ALL", ENVIRON),
        ("ALL,C=3", {**ENVIRON, "C": "3"}),
        ("NONE", {"PATH": "/bin", "SLURM_JOB_ID": "4"}),
        ("A", {"A": "1", "PATH": "/bin", "SLURM_JOB_ID": "4"}),
        ("A,NOSUCH,C=x y", {"A": "1", "C": "x y", "PATH": "/bin", "SLURM_JOB_ID": "4"}),
        ("C='1,2',B", {"C": "1,2", "B": "2", "PATH": "/bin", "SLURM_JOB_ID": "4"}),
        ("C=a=b", {"C": "a=b", "PATH": "/bin", "SLURM_JOB_ID": "4"}),
    ],
)
def test_export(text: str, expected: dict[str, str]) -> None:
    assert export_environment(ENVIRON, text) == expected


SHARE = Share(0, (0, 1, 2, 3), 4, (4, 5, 6, 7))


@pytest.mark.parametrize(
    ("text", "place", "per_task", "expected"),
    [
        ("", 1, 0, (4, 5, 6, 7)),
        ("none", 1, 1, (4, 5, 6, 7)),
        ("closest", 1, 0, (4, 5, 6, 7)),
        ("", 1, 1, (5,)),
        ("", 1, 2, (6, 7)),
        ("per_task:1", 3, 0, (7,)),
        ("single:1", 2, 0, (6,)),
        ("single:2", 3, 0, (5,)),
        ("map_gpu:3,2,1,0", 0, 0, (7,)),
        ("map_gpu:0*3,1", 3, 0, (5,)),
        ("mask_gpu:0x3,0xc", 1, 0, (6, 7)),
        ("verbose,single:1", 0, 0, (4,)),
    ],
)
def test_gpus_of_tasks(text: str, place: int, per_task: int, expected: tuple[int, ...]) -> None:
    assert bind_gpus(text, SHARE, place, per_task) == expected


def test_a_step_without_gpus_binds_none() -> None:
    assert bind_gpus("single:1", Share(0, (0,), 1, ()), 0, 1) == ()
