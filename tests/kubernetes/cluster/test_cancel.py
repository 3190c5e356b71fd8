"""Ending jobs, and what goes in which order."""

from __future__ import annotations

from typing import Any

import pytest

from enroot_py import NotFoundError, UnsupportedError
from pyxis_py.kubernetes.access import failures
from pyxis_py.kubernetes.access.client import ClusterClient
from pyxis_py.kubernetes.cluster.cancel import (
    GRACE_SLACK,
    cancel,
    cancel_element,
    remove_unowned,
    sweep,
)
from pyxis_py.kubernetes.cluster.jobs import Job, parse_reference
from pyxis_py.kubernetes.cluster.listing import array_indices, read_states
from pyxis_py.kubernetes.cluster.submit import submit
from tests.kubernetes.cluster.api_server import ApiServer
from tests.kubernetes.cluster.controllers import ended, jobs_of, key_of, pod
from tests.kubernetes.samples import JOB_ID, SCRIPT, render, script

pytestmark = pytest.mark.network
NVLINK = script("-N4", "-p nvl72", "--gpus-per-node=4")


def create(client: ClusterClient, text: str = SCRIPT, target: Any = "kueue") -> Job:
    """A submitted job."""
    return submit(client, render(text, target=target).manifests).jobs[0]


def never(seconds: float) -> None:
    """Nobody has to wait here."""
    raise AssertionError(seconds)


@pytest.mark.parametrize("target", ["kueue", "kueue-job", "volcano", "slurm-bridge"])
def test_a_job_goes_with_all_that_belongs_to_it(
    client: ClusterClient, server: ApiServer, target: Any
) -> None:
    job = create(client, target=target)
    pod(server, job, 0)
    cancel(client, job, sleep=never)
    server.objects.collect()
    assert server.objects.objects == {}
    (deletion,) = (request for request in server.requests if request.method == "DELETE")
    assert b'"propagationPolicy": "Foreground"' in deletion.body


def test_a_job_that_is_gone_already(client: ClusterClient, server: ApiServer) -> None:
    job = create(client)
    server.objects.remove(key_of(job.made))
    cancel(client, job, sleep=never)


def test_a_compute_domain_stays_until_the_pods_are_gone(
    client: ClusterClient, server: ApiServer
) -> None:
    job = create(client, NVLINK)
    pod(server, job, 0)
    server.objects.drained = lambda made: not server.all("pods")
    pauses = []

    def drain(seconds: float) -> None:
        pauses.append(seconds)
        assert len(server.all("computedomains")) == 1
        (record,) = read_states(client, jobs_of(server))
        assert (record.state.state, record.state.reason) == ("CG", "Cancelled")
        if len(pauses) == 2:
            server.objects.remove(key_of(server.all("pods")[0]))

    cancel(client, job, sleep=drain)
    assert len(pauses) == 2
    assert server.objects.objects == {}
    deleted = [path.rpartition("/")[0].rpartition("/")[2] for path in server.asked("DELETE")]
    assert deleted == ["jobsets", "computedomains"]


def test_waiting_for_pods_has_an_end(python: ClusterClient, server: ApiServer) -> None:
    job = create(python, NVLINK)
    server.objects.drained = lambda made: False
    waited: list[float] = []
    with pytest.raises(failures.ClusterError, match="still there after 90 s; the job and the"):
        cancel(python, job, sleep=waited.append)
    assert sum(waited) == 30 + GRACE_SLACK
    assert len(server.all("computedomains")) == 1


def test_waiting_where_it_was_asked_for(python: ClusterClient, server: ApiServer) -> None:
    job = create(python)
    gone = iter([False, False, True])
    server.objects.drained = lambda made: next(gone)
    waited: list[float] = []
    cancel(python, job, sleep=waited.append, wait=True)
    assert waited == [1.0, 1.0]


def test_a_namesake_is_left_alone(client: ClusterClient, server: ApiServer) -> None:
    job = create(client)
    for made in list(server.objects.objects.values()):
        if key_of(made) in server.objects.objects:
            server.objects.remove(key_of(made))
    create(client)
    with pytest.raises(failures.ConflictError):
        cancel(client, job, sleep=never)
    assert len(server.all("jobsets")) == 1


def test_one_element_of_an_array_of_pods(client: ClusterClient, server: ApiServer) -> None:
    job = create(client, script("--array=1-7:2", "-p flat"))
    indices = array_indices(client, job)
    assert indices == [1, 3, 5, 7]
    pod(server, job, 0, "Succeeded", state=ended(0))
    pod(server, job, 1)
    with pytest.raises(UnsupportedError, match="Element 1 of job 412803917 does not run"):
        cancel_element(client, job, indices, 1)
    with pytest.raises(UnsupportedError):
        cancel_element(client, job, indices, 5)
    with pytest.raises(NotFoundError, match="has no element 2"):
        cancel_element(client, job, indices, 2)
    cancel_element(client, job, indices, 3)
    assert [made["metadata"]["name"] for made in server.all("pods")] == [f"{job.name}-0-aaaaa"]


def test_what_a_job_left_that_is_gone(client: ClusterClient, server: ApiServer) -> None:
    server.forbidden.add(("patch", "secrets"))
    job = create(client, NVLINK)
    server.objects.remove(key_of(job.made))
    left = sweep(client, ["foundation", "default", ""], parse_reference(str(JOB_ID)))
    assert [title.partition(" ")[0] for title in left] == ["ComputeDomain", "Secret"]
    assert server.objects.objects == {}
    assert sweep(client, ["default"], parse_reference(str(JOB_ID))) == []


@pytest.mark.parametrize(("target", "gpu_api"), [
    ("kueue", "device-plugin"), ("kueue-job", "device-plugin"), ("volcano", "dra"),
    ("slurm-bridge", "dra"),
])  # fmt: skip
def test_what_kubectl_created_has_no_owner_and_goes_all_the_same(
    python: ClusterClient, server: ApiServer, target: Any, gpu_api: Any
) -> None:
    server.unchecked = True  # of PodGroups there is no schema at hand
    for manifest in render(SCRIPT, target=target, gpu_api=gpu_api).manifests:
        python.create(manifest)
    other = submit(python, render(script("-p cpu", "-N2"), target=target, job_id=7).manifests)
    kept = {key_of(made)[1:] for made in server.objects.objects.values()
            if made["metadata"]["labels"]["pyxis/job-id"] == "7"}  # fmt: skip
    job = next(job for job in jobs_of(server) if job.job_id == JOB_ID)
    cancel(python, job, sleep=never)
    remove_unowned(python, job)
    server.objects.collect()
    assert {key_of(made)[1:] for made in server.objects.objects.values()} == kept
    remove_unowned(python, other.jobs[0])
    assert {key_of(made)[1:] for made in server.objects.objects.values()} == kept


def test_nothing_is_swept_by_name(python: ClusterClient, server: ApiServer) -> None:
    create(python, NVLINK)
    assert sweep(python, ["default"], parse_reference("job.sbatch")) == []
    assert sweep(python, ["default"], parse_reference(f"{JOB_ID}_1")) == []
    server.forbidden.add(("list", "computedomains"))
    assert sweep(python, ["default"], parse_reference(str(JOB_ID))) == []
