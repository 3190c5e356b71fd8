"""Slurm's, PMI's and PyTorch's variables: right for every task, whoever starts the container."""

from __future__ import annotations

import pytest

from enroot_py import log
from enroot_py.hooks.builtin import sharp, slurm_pmi
from enroot_py.hooks.builtin.sharp import plan_sharp
from enroot_py.hooks.builtin.slurm_pmi import plan_pmi
from enroot_py.hooks.builtin.slurm_pytorch import first_host, plan_pytorch
from tests.hooks.contexts import Container

STEP = {"SLURM_JOB_ID": "70000", "SLURM_STEP_ID": "0"}
TASK = {**STEP, "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_TASK_PID": "99"}
PMI2 = {"PMI_RANK": "3", "PMI_FD": "9", "PMI_SIZE": "4", "PMI_JOBID": "70000.0"}
PMIX = {"PMIX_RANK": "3", "PMIX_NAMESPACE": "slurm.pmix.70000.0", "PMIX_GDS_MODULE": "hash"}


@pytest.mark.parametrize("host", [{}, {"SLURM_JOB_ID": "1"}, {"SLURM_STEP_ID": "1", **PMI2}])
def test_outside_of_a_step_nothing_is_passed_on(host: dict[str, str]) -> None:
    assert plan_pmi(host) == ((), ())


def test_a_task_that_starts_its_own_container_keeps_its_identity() -> None:
    environ = dict(plan_pmi({**TASK, **PMI2, "OTHER": "x"}).environ)
    assert environ == {**TASK, **PMI2}


def test_a_container_for_all_tasks_has_no_task_of_its_own() -> None:
    host = {**STEP, **PMI2, **PMIX, "SLURM_NNODES": "2", "SLURM_LOCALID": "0"}
    environ = dict(plan_pmi(host).environ)
    assert set(environ) == {
        "SLURM_JOB_ID",
        "SLURM_STEP_ID",
        "SLURM_NNODES",
        "PMI_SIZE",
        "PMI_JOBID",
        "PMIX_NAMESPACE",
        "PMIX_GDS_MODULE",
        "PMIX_MCA_gds",
    }


@pytest.mark.parametrize(
    ("mpi", "passed_on"), [("", True), ("pmix", True), ("pmix_v4", True), ("pmi2", False)]
)
def test_pmix_counts_only_where_slurm_provides_it(mpi: str, passed_on: bool) -> None:
    edits = plan_pmi({**TASK, **PMIX, "SLURM_MPI_TYPE": mpi, "PMIX_SERVER_TMPDIR": "/spool/p"})
    environ = dict(edits.environ)
    assert ("PMIX_RANK" in environ) is passed_on
    assert environ.get("PMIX_MCA_gds") == ("hash" if passed_on else None)
    assert [mount.source for mount in edits.mounts] == (["/spool/p"] if passed_on else [])


def test_modules_that_the_user_chose_stay() -> None:
    host = {**TASK, **PMIX, "PMIX_MCA_gds": "ds21", "PMIX_PTL_MODULE": "tcp"}
    environ = dict(plan_pmi(host).environ)
    assert (environ["PMIX_MCA_gds"], environ["PMIX_MCA_ptl"]) == ("ds21", "tcp")
    assert "PMIX_MCA_psec" not in environ


def test_a_stray_server_folder_does_not_stop_the_start(container: Container) -> None:
    lines: list[str] = []
    log.set_sink(lambda level, text: lines.append(f"{level} {text}"))
    try:
        context = container.context({**TASK, "PMIX_SERVER_TMPDIR": "/nope", "PMIX_foo": "bar"})
        edits = slurm_pmi.run(context)
    finally:
        log.set_sink(None)
    assert edits.mounts == ()
    assert ("PMIX_foo", "bar") in edits.environ
    assert lines == ["WARN PMIX_SERVER_TMPDIR names no folder: it is not mounted"]


def test_an_existing_server_folder_is_mounted(container: Container) -> None:
    host = {**TASK, "PMIX_SERVER_TMPDIR": str(container.folder)}
    (mount,) = slurm_pmi.run(container.context(host)).mounts
    assert (mount.source, mount.target) == (str(container.folder),) * 2
    assert {"bind", "rw", "x-create=dir", "nofail"} <= set(mount.options)


@pytest.mark.parametrize(
    ("nodelist", "host"),
    [
        ("node1", "node1"),
        ("gpu[03-09,12],login1", "gpu03"),
        ("gpu[7]", "gpu7"),
        ("rack[1-2]n[08-11]-ib,x", "rack1n08-ib"),
        ("a,b", "a"),
        ("", ""),
        ("broken[1-", ""),
    ],
)
def test_the_first_host_of_a_list(nodelist: str, host: str) -> None:
    assert first_host(nodelist) == host


TORCH = {
    **TASK,
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_NTASKS": "8",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NUM_NODES": "2",
}


def test_pytorch_images_get_their_variables() -> None:
    assert dict(plan_pytorch(TORCH, {"PYTORCH_VERSION": "2"}).environ) == {
        "MASTER_ADDR": "n1",
        "MASTER_PORT": "62960",
        "WORLD_SIZE": "8",
        "RANK": "3",
        "LOCAL_RANK": "1",
        "OMP_NUM_THREADS": "1",
    }


@pytest.mark.parametrize(
    ("host", "container"),
    [
        (TORCH, {}),
        ({}, {"PYTORCH_VERSION": "2"}),
        (
            TORCH,
            dict.fromkeys(
                [
                    *("PYTORCH_VERSION", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"),
                    *("LOCAL_RANK", "OMP_NUM_THREADS"),
                ],
                "mine",
            ),
        ),
    ],
)
def test_other_images_and_what_is_set_are_left_alone(
    host: dict[str, str], container: dict[str, str]
) -> None:
    assert plan_pytorch(host, container).environ == ()


def test_one_task_a_node_may_use_all_its_threads() -> None:
    host = {**TORCH, "SLURM_STEP_NUM_TASKS": "2"}
    assert "OMP_NUM_THREADS" not in dict(plan_pytorch(host, {"PYTORCH_VERSION": "2"}).environ)


SHARP = {"SLURM_NETWORK": "sharp", "SLURM_STEP_NUM_NODES": "4", "OMPI_MCA_orte_num_nodes": "5"}


@pytest.mark.parametrize(
    ("host", "container", "expected"),
    [
        (SHARP, {}, None),
        (SHARP, {"MELLANOX_VISIBLE_DEVICES": "none"}, None),
        ({**SHARP, "SLURM_NETWORK": "ib"}, {"MELLANOX_VISIBLE_DEVICES": "all"}, None),
        ({**SHARP, "MELLANOX_VISIBLE_DEVICES": ""}, {"MELLANOX_VISIBLE_DEVICES": "all"}, None),
        (SHARP, {"MELLANOX_VISIBLE_DEVICES": "all"}, "4"),
        ({**SHARP, "SLURM_STEP_NUM_NODES": ""}, {"MELLANOX_VISIBLE_DEVICES": "0"}, "5"),
    ],
)
def test_sharp_is_set_up_where_the_step_asks_for_it(
    host: dict[str, str], container: dict[str, str], expected: str | None
) -> None:
    environ = dict(plan_sharp(host, container).environ)
    assert environ.get("NCCL_SHARP_GROUP_SIZE_THRESH") == expected
    assert len(environ) == (4 if expected else 0)


def test_sharp_leaves_alone_what_is_set(container: Container) -> None:
    environ = {"MELLANOX_VISIBLE_DEVICES": "all", "NCCL_COLLNET_ENABLE": "0"}
    edits = sharp.run(container.context({"SLURM_NETWORK": "sharp"}, environ))
    assert dict(edits.environ) == {
        "SHARP_COLL_LOCK_ON_COMM_INIT": "1",
        "SHARP_COLL_NUM_COLL_GROUP_RESOURCE_ALLOC_THRESHOLD": "0",
    }
