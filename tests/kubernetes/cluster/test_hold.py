"""Holding and releasing, for every target and through both clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from enroot_py import UnsupportedError
from pyxis_py.kubernetes.access import failures
from pyxis_py.kubernetes.access.client import ClusterClient
from pyxis_py.kubernetes.access.resources import Object
from pyxis_py.kubernetes.cluster.hold import hold, release, remove_gates
from pyxis_py.kubernetes.cluster.jobs import Job
from pyxis_py.kubernetes.cluster.listing import read_states
from pyxis_py.kubernetes.cluster.submit import submit
from pyxis_py.kubernetes.render.queueing import GATES, HELD, HOLD_GATE
from tests.kubernetes.cluster.api_server import ApiServer
from tests.kubernetes.cluster.controllers import (
    ADMITTED,
    condition,
    finish,
    jobs_of,
    pod,
    queue,
    set_status,
)
from tests.kubernetes.cluster.objects import RefusalError
from tests.kubernetes.samples import render, script

pytestmark = pytest.mark.network
SCRIPT = script("-N2", "-p flat")
PENDING = condition("QuotaReserved", "False", "Pending")
QUEUED = ["kueue", "kueue-job"]


def create(
    client: ClusterClient, server: ApiServer, target: Any, *words: str, workload: bool = True
) -> Job:
    """A job that waits."""
    (job,) = submit(client, render(SCRIPT, words, target=target, submitting=True).manifests).jobs
    if workload and job.in_kueue:
        queue(server, job, PENDING)
    return job


def now(server: ApiServer) -> Job:
    """The job as it is now."""
    (job,) = jobs_of(server)
    return job


def state(client: ClusterClient, job: Job) -> tuple[str, str]:
    """State and reason."""
    (record,) = read_states(client, [job])
    return record.state.state, record.state.reason


def actions(server: ApiServer) -> Sequence[str]:
    """What Volcano was told."""
    return [command["action"] for command in server.all("commands")]


@pytest.mark.parametrize("target", QUEUED)
def test_kueue_holds_a_workload(client: ClusterClient, server: ApiServer, target: str) -> None:
    job = create(client, server, target)
    assert hold(client, job) is True
    assert server.all("workloads")[0]["spec"]["active"] is False
    assert state(client, now(server)) == ("PD", "JobHeldUser")
    assert hold(client, now(server)) is False
    assert release(client, now(server)) is True
    assert server.all("workloads")[0]["spec"]["active"] is True
    assert state(client, now(server)) == ("PD", "Resources")
    assert release(client, now(server)) is False


@pytest.mark.parametrize("target", QUEUED)
def test_a_gate_of_the_submission_is_taken_away(
    client: ClusterClient, server: ApiServer, target: str
) -> None:
    job = create(client, server, target, "-H", "-d", "afterok:12")
    assert job.gates == (HOLD_GATE, "pyxis/dep-12")
    assert hold(client, job) is False
    assert release(client, job) is True
    assert now(server).gates == ("pyxis/dep-12",)
    assert state(client, now(server)) == ("PD", "Dependency")


def test_the_last_gate_takes_the_annotation_along(client: ClusterClient, server: ApiServer) -> None:
    release(client, create(client, server, "kueue", "-H"))
    assert GATES not in now(server).annotations


def test_volcano_is_told(client: ClusterClient, server: ApiServer) -> None:
    job = create(client, server, "volcano")
    hold(client, job)
    assert actions(server) == ["AbortJob"]
    set_status(server, job.made, {"state": {"phase": "Aborted"}})
    assert state(client, now(server)) == ("PD", "JobHeldUser")
    release(client, now(server))
    assert actions(server) == ["AbortJob", "ResumeJob"]
    command = server.all("commands")[1]
    assert command["target"] == {
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": job.name,
        "uid": job.uid, "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    assert HELD not in now(server).annotations


def test_a_job_that_was_submitted_held_is_resumed_by_volcano(
    client: ClusterClient, server: ApiServer
) -> None:
    job = create(client, server, "volcano", "-H")
    assert hold(client, job) is False
    release(client, job)
    assert actions(server) == ["AbortJob", "ResumeJob"]


def test_slurm_bridge_suspends(client: ClusterClient, server: ApiServer) -> None:
    hold(client, create(client, server, "slurm-bridge"))
    assert now(server).made["spec"]["suspend"] is True
    assert state(client, now(server)) == ("PD", "JobHeldUser")
    release(client, now(server))
    assert now(server).made["spec"]["suspend"] is False


@pytest.mark.parametrize("target", ["kueue", "kueue-job", "volcano", "slurm-bridge"])
def test_what_runs_or_is_over_is_not_held(
    python: ClusterClient, server: ApiServer, target: str
) -> None:
    job = create(python, server, target, workload=False)
    if job.in_kueue:
        queue(server, job, *ADMITTED)
    for index in range(2):
        pod(server, job, index)
    with pytest.raises(UnsupportedError, match=r"is not pending \((R|CF)\)"):
        hold(python, job)
    finish(server, job)
    with pytest.raises(UnsupportedError, match=r"is not pending \(CD\)"):
        hold(python, now(server))
    assert actions(server) == []


def test_a_job_that_kueue_has_not_seen(python: ClusterClient, server: ApiServer) -> None:
    job = create(python, server, "kueue", workload=False)
    with pytest.raises(UnsupportedError, match="Kueue has not taken notice"):
        hold(python, job)
    assert HELD not in now(server).annotations


def test_a_workload_of_an_older_kueue(client: ClusterClient, server: ApiServer) -> None:
    job = create(client, server, "kueue")
    (key,) = (key for key in server.objects.objects if key.plural == "workloads")
    made = server.objects.objects.pop(key)
    old = key._replace(group_version="kueue.x-k8s.io/v1beta1")
    server.objects.objects[old] = {**made, "apiVersion": "kueue.x-k8s.io/v1beta1"}
    server.served = tuple(
        kind._replace(group_version=kind.group_version.replace("v1beta2", "v1beta1"))
        for kind in server.served
    )
    server.unchecked = True
    assert state(client, job) == ("PD", "Resources")
    assert hold(client, job) is True
    assert server.objects.objects[old]["spec"]["active"] is False


def test_a_role_that_may_not_touch_workloads(client: ClusterClient, server: ApiServer) -> None:
    job = create(client, server, "kueue")
    server.forbidden.add(("patch", "workloads"))
    with pytest.raises(failures.ForbiddenError, match="you may not patch Workload"):
        hold(client, job)
    assert HELD not in now(server).annotations


def test_gates_that_others_take_away_meanwhile_stay_away(
    python: ClusterClient, server: ApiServer
) -> None:
    job = create(python, server, "kueue", "-H", "-d", "afterok:12:13")
    # Somebody removes one between our reading and our writing.
    remove_gates(python, now(server), lambda gate: gate == "pyxis/dep-12")
    release(python, job)
    assert now(server).gates == ("pyxis/dep-13",)


def test_a_conflict_that_does_not_end_is_an_error(python: ClusterClient, server: ApiServer) -> None:
    job = create(python, server, "kueue", "-H")

    def webhook(verb: str, manifest: Object) -> None:
        raise RefusalError(409, "Conflict", "the object has been modified")

    server.admission.append(webhook)
    with pytest.raises(failures.ConflictError):
        release(python, job)


def test_kueue_takes_no_gate_for_a_job_that_is_there(
    client: ClusterClient, server: ApiServer
) -> None:
    job = create(client, server, "kueue")
    patch = {"metadata": {"annotations": {GATES: HOLD_GATE}}}
    with pytest.raises(failures.RejectedError, match="cannot add gates after creation"):
        client.patch(job.resource, job.namespace, job.name, patch)
