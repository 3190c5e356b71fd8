"""What conditions of jobs, Workloads and pods add up to."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pyxis_py.kubernetes.cluster.jobs import Job, read_job_object
from pyxis_py.kubernetes.cluster.states import Evidence, JobState, judge, parse_stamp
from pyxis_py.kubernetes.render.queueing import GATES, HELD, HOLD_GATE
from tests.kubernetes.cluster.controllers import (
    ADMITTED,
    BEGIN,
    END,
    JOBSET_ROW,
    condition,
    ended,
)
from tests.kubernetes.samples import SCRIPT, render, script

Object = dict[str, Any]
BEGAN = parse_stamp(BEGIN)
ENDED = parse_stamp(END)


def make_job(target: Any = "kueue", text: str = SCRIPT, **changes: Any) -> Job:
    """A job as the cluster has it."""
    made = copy.deepcopy(render(text, target=target).manifests[-1])
    made["metadata"].update(uid="u", **changes.pop("metadata", {}))
    made["metadata"].setdefault("annotations", {}).update(changes.pop("annotations", {}))
    made["spec"].update(changes.pop("spec", {}))
    if "status" in changes:
        made["status"] = changes["status"]
    job = read_job_object(made)
    assert job is not None
    return job


def make_pod(index: int = 0, phase: str = "Running", **parts: Any) -> Object:
    """A pod, in few words."""
    label = {"batch.kubernetes.io/job-completion-index": str(index)}
    metadata = {"labels": label, "creationTimestamp": parts.pop("made", BEGIN)}
    status: Object = {"phase": phase, "startTime": BEGIN}
    if "state" in parts:
        status["containerStatuses"] = [{"name": "main", "state": parts.pop("state")}]
    spec = {"nodeName": parts.pop("node")} if "node" in parts else {}
    return {"metadata": metadata, "spec": spec, "status": {**status, **parts}}


def workload(*conditions: Object, active: bool = True, **status: Any) -> Object:
    """Kueue's object."""
    return {"spec": {"active": active}, "status": {"conditions": list(conditions), **status}}


def state(job: Job, *pods: Object, wl: Object | None = None, children: Any = ()) -> JobState:
    """The verdict."""
    return judge(Evidence(job, children=children, workload=wl, pods=pods))


def brief(found: JobState) -> tuple[str, str]:
    """State and reason."""
    return found.state, found.reason


PENDING = condition("QuotaReserved", "False", "Pending", "insufficient quota")
NO_QUEUE = condition("QuotaReserved", "False", "Inadmissible", "LocalQueue h100 doesn't exist")
EVICTED = condition("Evicted", reason="Preempted", message="Preempted to accommodate a workload")


@pytest.mark.parametrize(("found", "expected"), [
    (None, ("PD", "None")),
    (workload(), ("PD", "None")),
    (workload(PENDING), ("PD", "Resources")),
    (workload(NO_QUEUE), ("PD", "Inadmissible")),
    (workload(EVICTED, PENDING), ("PD", "Preempted")),
    (workload(PENDING, active=False), ("PD", "JobHeldAdmin")),
    (workload(condition("QuotaReserved")), ("PD", "AdmissionChecks")),
    (workload(*ADMITTED), ("CF", "None")),
    (workload(*ADMITTED, EVICTED), ("PD", "AdmissionChecks")),
    (workload(*ADMITTED, condition("Evicted", "False", "Preempted")), ("CF", "None")),
])  # fmt: skip
def test_a_job_in_a_queue_of_kueue(found: Object | None, expected: tuple[str, str]) -> None:
    assert brief(state(make_job(), wl=found)) == expected
    assert brief(state(make_job("kueue-job"), wl=found)) == expected


def test_the_message_of_kueue_is_passed_on() -> None:
    assert state(make_job(), wl=workload(NO_QUEUE)).message == "LocalQueue h100 doesn't exist"
    checks = [{"name": "capacity", "state": "Pending", "message": "no nodes"},
              {"name": "other", "state": "Ready", "message": ""}]  # fmt: skip
    found = workload(condition("QuotaReserved"), admissionChecks=checks)
    assert state(make_job(), wl=found).message == "capacity: no nodes"


@pytest.mark.parametrize(("gates", "reason"), [
    (HOLD_GATE, "JobHeldUser"),
    (f"pyxis/dep-12,{HOLD_GATE}", "JobHeldUser"),
    ("pyxis/dep-12", "Dependency"),
    ("pyxis/dep-12,pyxis/array", "Dependency"),
    ("pyxis/array", "JobArrayTaskLimit"),
])  # fmt: skip
def test_gates_are_the_reason_before_any_other(gates: str, reason: str) -> None:
    job = make_job(annotations={GATES: gates, "pyxis/dependency": "afterok:12"})
    assert brief(state(job, wl=workload(NO_QUEUE))) == ("PD", reason)


@pytest.mark.parametrize("target", ["kueue", "kueue-job", "volcano", "slurm-bridge"])
def test_a_job_that_its_user_holds(target: Any) -> None:
    job = make_job(target, annotations={HELD: "user"},
                   status={"state": {"phase": "Aborted"}})  # fmt: skip
    assert brief(state(job, wl=workload(PENDING, active=False))) == ("PD", "JobHeldUser")


def test_a_job_runs_when_all_its_pods_do() -> None:
    job = make_job(text=script("-N2", "-p flat"))
    pods = [make_pod(0, node="n1"), make_pod(1, node="n2")]
    found = state(job, *pods, wl=workload(*ADMITTED))
    assert (found.state, found.hosts, found.started) == ("R", ("n1", "n2"), BEGAN)
    assert found.exit_code is None and not found.finished


def test_the_pod_that_is_late_tells_why() -> None:
    job = make_job(text=script("-N2", "-p flat"))
    pulling = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    admitted = workload(*ADMITTED)
    late = state(job, make_pod(0), make_pod(1, "Pending", state=pulling), wl=admitted)
    assert (late.state, late.reason, late.message) == ("CF", "ImagePullBackOff", "no such image")
    unplaced = condition("PodScheduled", "False", "Unschedulable", "0/9 nodes are available")
    late = state(job, make_pod(0), make_pod(1, "Pending", conditions=[unplaced]), wl=admitted)
    assert (late.state, late.reason, late.message) == ("CF", "Resources", "0/9 nodes are available")
    assert brief(state(job, make_pod(0), wl=admitted)) == ("CF", "None")


def test_only_the_latest_pod_of_a_node_counts() -> None:
    job = make_job(text=script("-p flat"))
    old = make_pod(0, "Failed", made="2026-08-23T09:00:00Z", state=ended(1, "Error"))
    assert brief(state(job, make_pod(0, node="n1"), old, wl=workload(*ADMITTED))) == ("R", "")


def finished(kind: str, reason: str = "x", message: str = "") -> Object:
    """A status with one condition."""
    return {"conditions": [condition(kind, reason=reason, message=message)]}


LOST = condition("DisruptionTarget", reason="DeletionByTaintManager")
PREEMPTED = condition("DisruptionTarget", reason="PreemptionByScheduler")


@pytest.mark.parametrize(("pods", "expected"), [
    ([make_pod(0, "Failed", state=ended(3, "Error"))], ("F", "NonZeroExitCode", 3)),
    ([make_pod(0, "Failed", state=ended(124, "Error"))], ("TO", "TimeLimit", 124)),
    ([make_pod(0, "Failed", state=ended(137, "OOMKilled"))], ("OOM", "OutOfMemory", 137)),
    ([make_pod(0, "Failed", state=ended(143, "Error"), conditions=[PREEMPTED])],
     ("PR", "Preempted", 143)),
    ([make_pod(0), make_pod(1, "Failed", conditions=[LOST])],
     ("NF", "DeletionByTaintManager", None)),
    ([make_pod(0, "Failed", reason="DeadlineExceeded")], ("TO", "TimeLimit", None)),
    ([make_pod(0, "Succeeded", state=ended(0)), make_pod(1, "Failed", state=ended(9, "Error"))],
     ("F", "NonZeroExitCode", 9)),
    ([], ("F", "BackoffLimitExceeded", None)),
])  # fmt: skip
def test_why_a_job_failed(pods: list[Object], expected: tuple[str, str, int | None]) -> None:
    status = finished("Failed", "BackoffLimitExceeded", "it failed")
    for target in ("kueue", "kueue-job", "slurm-bridge"):
        found = state(make_job(target, status=status), *pods, wl=workload(*ADMITTED))
        assert (found.state, found.reason, found.exit_code) == expected
        assert found.message == "it failed" and found.finished


def test_a_deadline_of_the_job_or_of_its_child_is_a_time_limit() -> None:
    status = finished("Failed", "DeadlineExceeded")
    assert brief(state(make_job("kueue-job", status=status))) == ("TO", "TimeLimit")
    failed = finished("Failed", "FailJobSetFailurePolicyAction")
    child = {"status": status}
    assert brief(state(make_job(status=failed), children=[child])) == ("TO", "TimeLimit")


@pytest.mark.parametrize(("target", "status"), [
    ("kueue", {**finished("Completed"), "replicatedJobsStatus": [JOBSET_ROW]}),
    ("kueue-job", {**finished("Complete"), "startTime": BEGIN, "completionTime": END}),
    ("slurm-bridge", {**finished("Complete"), "startTime": BEGIN}),
    ("volcano", {"state": {"phase": "Completed", "lastTransitionTime": END}}),
])  # fmt: skip
def test_a_job_that_is_done(target: Any, status: Object) -> None:
    found = state(make_job(target, status=status), make_pod(0, "Succeeded", state=ended(0)))
    assert (found.state, found.exit_code, found.started) == ("CD", 0, BEGAN)
    assert found.ended == ENDED


@pytest.mark.parametrize(("phase", "pods", "expected"), [
    ("", [], ("PD", "None")),
    ("Pending", [make_pod(0, "Pending", conditions=[
        condition("PodScheduled", "False", "Unschedulable", "gang")])], ("PD", "Resources")),
    ("Pending", [make_pod(0)], ("CF", "None")),
    ("Restarting", [], ("PD", "Requeued")),
    ("Running", [make_pod(0)], ("CF", "None")),
    ("Completing", [], ("CG", "")),
    ("Terminating", [], ("CG", "")),
    ("Aborting", [], ("CG", "")),
    ("Aborted", [], ("CA", "Aborted")),
    ("Terminated", [make_pod(0, "Failed", state=ended(124, "Error"))], ("TO", "TimeLimit")),
    ("Failed", [], ("F", "JobFailed")),
])  # fmt: skip
def test_phases_of_volcano(phase: str, pods: list[Object], expected: tuple[str, str]) -> None:
    job = make_job("volcano", status={"state": {"phase": phase}} if phase else {})
    assert brief(state(job, *pods)) == expected


@pytest.mark.parametrize(("spec", "pods", "expected"), [
    ({}, [], ("PD", "None")),
    ({}, [make_pod(0, "Pending", conditions=[
        condition("PodScheduled", "False", "Unschedulable", "Slurm")])], ("PD", "Resources")),
    ({"suspend": True}, [], ("PD", "JobHeldAdmin")),
    ({}, [make_pod(0, "Pending", node="n1")], ("CF", "None")),
])  # fmt: skip
def test_a_job_that_slurm_places(
    spec: Object, pods: list[Object], expected: tuple[str, str]
) -> None:
    assert brief(state(make_job("slurm-bridge", spec=spec), *pods)) == expected


@pytest.mark.parametrize("kind", ["SuccessCriteriaMet", "FailureTarget"])
def test_a_job_whose_pods_still_end(kind: str) -> None:
    assert brief(state(make_job("kueue-job", status=finished(kind)))) == ("CG", "")
    deleted = make_job(metadata={"deletionTimestamp": END})
    assert brief(state(deleted, make_pod(0))) == ("CG", "Cancelled")
    assert brief(state(make_job(), make_pod(0, "Succeeded"), wl=workload(*ADMITTED))) == ("CG", "")


def test_an_array_of_pods_runs_as_long_as_one_of_them_does() -> None:
    job = make_job(text=script("--array=0-3", "-p flat"))
    pods = [make_pod(0, "Succeeded"), make_pod(1), make_pod(2, "Pending")]
    assert brief(state(job, *pods, wl=workload(*ADMITTED))) == ("R", "")


@pytest.mark.parametrize(("text", "seconds"), [
    ("1970-01-01T00:01:00Z", 60.0), ("1970-01-01T00:01:00.123456Z", 60.0), ("", None),
    (None, None), ("yesterday", None),
])  # fmt: skip
def test_stamps(text: str | None, seconds: float | None) -> None:
    assert parse_stamp(text) == seconds
