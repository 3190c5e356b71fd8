"""job.json and the token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyxis_py.kubernetes.launcher.job.job_file import JobFileError, parse_job, read_job, read_token
from tests.kubernetes.launcher.pods import job_content
from tests.kubernetes.samples import SCRIPT, find, render, script


@pytest.mark.parametrize(
    ("changes", "environ"),
    [
        ({"version": 2}, {}),
        ({"nodes": "many"}, {}),
        ({"hostPattern": 3}, {}),
        ({"hostPattern": "{nosuch}"}, {}),
        ({"exportEnv": None}, {}),
        ({"tasksPerNode": "x"}, {}),
        ({"signal": {}}, {}),
        ({}, {"SLURM_NODEID": "2"}),
        ({}, {"SLURM_NODEID": "-1"}),
        ({}, {"SLURM_NODEID": "x"}),
        ({"arrayIndices": [1]}, {"PYXIS_ARRAY_INDEX": "3"}),
    ],
)
def test_what_the_renderer_does_not_write_is_refused(
    changes: dict[str, Any], environ: dict[str, str]
) -> None:
    with pytest.raises(JobFileError):
        parse_job({**job_content(2), **changes}, environ)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '"x"'])
def test_what_is_no_object_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(text)
    with pytest.raises(JobFileError):
        read_job(str(path), {})


@pytest.mark.parametrize("token", ["", "short", " \n"])
def test_a_token_that_can_be_guessed_is_none(token: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(token)
    with pytest.raises(JobFileError, match="too short"):
        read_token(str(path))
    with pytest.raises(JobFileError, match="cannot read"):
        read_token(str(tmp_path / "nosuch"))


def test_a_token_is_read_without_the_end_of_its_line(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef\n")
    assert read_token(str(path)) == b"0123456789abcdef"


def rendered(text: str, **options: Any) -> dict[str, Any]:
    return dict(json.loads(find(render(text, **options), "ConfigMap")["data"]["job.json"]))


@pytest.mark.parametrize("target", ["kueue", "kueue-job", "volcano", "slurm-bridge"])
def test_what_the_renderer_writes_is_read(target: Any) -> None:
    job = parse_job(rendered(SCRIPT, target=target), {"SLURM_NODEID": "63"})
    assert len(job.hosts) == 64
    assert job.host.endswith("63")
    assert job.signal is not None
    assert (job.signal.name, job.signal.seconds, job.signal.batch_only) == ("USR1", 600, False)
    assert job.container_env == ("NCCL_DEBUG",)
    assert job.mounts == ("/data", "/ckpt", "/workspace")
    assert job.umask == 0o022


def test_a_pod_of_an_array_is_a_job_of_its_own() -> None:
    content = rendered(script("--array=1-7:2", "-p flat", "-t 60"))
    job = parse_job(content, {"PYXIS_ARRAY_INDEX": "2", "SLURM_NODEID": "0"})
    assert (job.element, job.number, len(job.hosts)) == ("5", 0, 1)
    assert job.job_id == content["jobId"] + 2
    assert job.host == content["hostPattern"].format(index=2)


def test_elements_that_are_jobs_have_hosts_of_their_own_and_other_subjects() -> None:
    content = rendered(script("--array=0,5", "-N2", "-p flat", "-t 60"))
    first, second = (
        parse_job(content, {"SLURM_ARRAY_TASK_ID": task, "SLURM_JOB_ID": "9"}) for task in "05"
    )
    assert "-a0-" in first.host
    assert "-a5-" in second.host
    assert first.subject(0) != second.subject(0)
    assert first.subject(0) != first.subject(1)


def test_the_job_id_may_come_from_the_pod() -> None:
    assert parse_job(job_content(), {"SLURM_JOB_ID": "12"}).job_id == 12
    assert parse_job(job_content(), {"SLURM_JOB_ID": ""}).job_id == 4711
