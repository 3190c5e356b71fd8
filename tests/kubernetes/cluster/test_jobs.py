"""What a job's object tells, and how users name jobs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from enroot_py import UsageError
from pyxis_py.kubernetes.cluster.jobs import Job, parse_reference, read_job_object, sort_jobs
from tests.kubernetes.samples import JOB_ID, SCRIPT, render, script


def jobs(text: str = SCRIPT, target: Any = "kueue", **options: Any) -> list[Job]:
    """The jobs of a script as a cluster has them."""
    found = []
    for number, manifest in enumerate(render(text, target=target, **options).manifests):
        made = copy.deepcopy(manifest)
        made["metadata"]["uid"] = str(number)
        job = read_job_object(made) if "spec" in made and "pyxis/element" in (
            made["metadata"]["labels"]) else None  # fmt: skip
        if job:
            found.append(job)
    return found


@pytest.mark.parametrize("target", ["kueue", "kueue-job", "volcano", "slurm-bridge"])
def test_a_job_tells_what_it_is(target: Any) -> None:
    (job,) = jobs(target=target)
    assert (job.job_id, job.task, job.title) == (JOB_ID, None, str(JOB_ID))
    assert (job.job_name, job.user, job.partition) == ("llama-pretrain", "user1", "h100")
    assert (job.nodes, job.time_limit) == (64, 259200)
    assert job.in_kueue == target.startswith("kueue")
    assert not job.held and not job.ending and not job.compute_domain and job.gates == ()


def test_a_job_without_a_time_limit() -> None:
    for target in ("kueue", "kueue-job", "volcano"):
        (job,) = jobs(script("-p flat"), target)
        assert job.time_limit is None


def test_an_array_of_pods_is_one_job() -> None:
    (job,) = jobs(script("--array=1-7:2", "-p flat", "-t 60"))
    assert (job.title, job.is_array, job.task) == (f"{JOB_ID}_[1-7:2]", True, None)
    assert job.time_limit == 3600
    (job,) = jobs(script("--array=3-5", "-p flat"))
    assert job.title == f"{JOB_ID}_[3-5]"


def test_elements_that_are_jobs_have_a_number_of_their_own() -> None:
    found = jobs(script("--array=0,5", "-N2", "-p flat"))
    assert [job.title for job in found] == [f"{JOB_ID}_0", f"{JOB_ID}_5"]
    assert [job.is_array for job in found] == [False, False]
    assert sort_jobs(reversed(found)) == found


def test_a_job_with_a_compute_domain() -> None:
    (job,) = jobs(script("-N4", "-p nvl72", "--gpus-per-node=4"))
    assert job.compute_domain


def test_a_dollar_in_a_name_is_one_dollar() -> None:
    (job,) = jobs(script("-p flat", "-J a$b"))
    assert job.variables["SLURM_JOB_NAME"] == "a$b"


@pytest.mark.parametrize(("label", "value"), [
    ("pyxis/job-id", "x"), ("pyxis/job-id", None), ("pyxis/element", None),
    ("pyxis/element", "another"),
])  # fmt: skip
def test_an_object_that_is_not_ours_is_no_job(label: str, value: str | None) -> None:
    made = copy.deepcopy(render(SCRIPT).manifests[-1])
    if value is None:
        del made["metadata"]["labels"][label]
    else:
        made["metadata"]["labels"][label] = value
    assert read_job_object(made) is None


def test_an_owner_whose_name_is_no_label_is_found_in_the_pods() -> None:
    made = copy.deepcopy(render(SCRIPT).manifests[-1])
    del made["metadata"]["labels"]["pyxis/user"]
    job = read_job_object(made)
    assert job is not None and job.user == "user1"


@pytest.mark.parametrize(("text", "titles"), [
    (str(JOB_ID), ["0", "5"]),
    (f"{JOB_ID}_5", ["5"]),
    (f"{JOB_ID}_6", []),
    (f"job-sbatch-{JOB_ID}-a0", ["0"]),
    ("job.sbatch", ["0", "5"]),
    ("1", []),
    ("other", []),
])  # fmt: skip
def test_what_a_word_means(text: str, titles: list[str]) -> None:
    reference = parse_reference(text)
    found = [job for job in jobs(script("--array=0,5", "-N2", "-p flat")) if reference.means(job)]
    assert [job.title.partition("_")[2] for job in found] == titles


def test_an_element_of_an_array_of_pods_means_the_array() -> None:
    (job,) = jobs(script("--array=0-3", "-p flat"))
    assert parse_reference(f"{JOB_ID}_2").means(job)
    assert not parse_reference("7_2").means(job)


def test_numbers_are_looked_up_by_label() -> None:
    assert parse_reference("12_3").selector.endswith(",pyxis/job-id=12")
    assert parse_reference("llama").selector == "app.kubernetes.io/managed-by=pyxis"


@pytest.mark.parametrize("text", ["", "-x", "a\nb", "\x1b[2J"])
def test_words_that_name_no_job(text: str) -> None:
    with pytest.raises(UsageError, match="neither a job's number nor its name"):
        parse_reference(text)
