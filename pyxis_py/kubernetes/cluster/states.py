"""From the conditions of job, Workload and pods to a state as squeue shows it.

States are Slurm's compact ones: PD pending, CF its pods are being set up, R running, CG ending, CD
completed, F failed, TO time limit, OOM out of memory, PR preempted, NF a node was lost, CA
cancelled.

Pure. Source: squeue(1), JOB STATE CODES and JOB REASON CODES; Kueue v0.19 workload_types.go; JobSet
v0.12 jobset_types.go; Volcano v1.15 batch/v1alpha1; Kubernetes API, JobStatus and PodStatus.
"""

from __future__ import annotations

import calendar
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyxis_py.kubernetes.access.resources import JOBSET, VOLCANO_JOB, Object
from pyxis_py.kubernetes.cluster.jobs import Job
from pyxis_py.kubernetes.render.queueing import ARRAY_GATE, HOLD_GATE
from pyxis_py.kubernetes.render.volcano_job import TIME_LIMIT_STATUS

FINISHED = ("CD", "F", "TO", "OOM", "PR", "NF", "CA")
_KILLED_FOR_MEMORY = "OOMKilled"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
INDEX_ANNOTATION = "volcano.sh/task-index"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a cluster says about one job.

    Attributes:
        children: the Jobs of a JobSet.
        workload: Kueue's, None where it has none.
        pods: of the job, of earlier runs too.
    """

    job: Job
    children: Sequence[Object] = ()
    workload: Object | None = None
    pods: Sequence[Object] = ()


@dataclass(frozen=True, slots=True)
class JobState:
    """A job's state.

    Attributes:
        state: compact, for example PD.
        reason: one word, "" where there is nothing to say.
        message: the cluster's sentence about it, or "".
        started, ended: seconds since the epoch.
        exit_code: of the batch script, None as long as it is not known.
        hosts: nodes that pods run on.
    """

    state: str
    reason: str = ""
    message: str = ""
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    hosts: tuple[str, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in FINISHED


def judge(evidence: Evidence) -> JobState:
    """Return the state of a job."""
    job, pods = evidence.job, current_pods(evidence.pods)
    found = _ended(evidence, pods) or _ending(job) or _waiting(evidence, pods)
    state, reason, message = found or _active(evidence, pods)
    started, ended = _times(evidence, pods)
    return JobState(
        state, reason, message,
        started=started if state != "PD" else None,
        ended=ended if state in FINISHED else None,
        exit_code=0 if state == "CD" else _exit_code(pods) if state in FINISHED else None,
        hosts=tuple(sorted({
            pod["spec"]["nodeName"] for pod in pods
            if pod.get("spec", {}).get("nodeName") and pod_phase(pod) == "Running"
        })),
    )  # fmt: skip


Finding = tuple[str, str, str]


def conditions(made: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return an object's conditions by type."""
    rows = (made.get("status") or {}).get("conditions") or ()
    return {row["type"]: row for row in rows if "type" in row}


def holds(found: Mapping[str, Mapping[str, Any]], kind: str) -> bool:
    """Whether a condition is there and true."""
    return found.get(kind, {}).get("status") == "True"


def parse_stamp(text: str | None) -> float | None:
    """Return `2026-08-23T10:11:12Z` (fractions are dropped) as seconds since the epoch."""
    if not text:
        return None
    try:
        return float(calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return None


def pod_index(pod: Object) -> int:
    """Return a pod's number in its job, 0 where nothing tells."""
    metadata = pod["metadata"]
    text = (metadata.get("labels") or {}).get(INDEX_LABEL)
    text = text or (metadata.get("annotations") or {}).get(INDEX_ANNOTATION) or "0"
    return int(text) if text.isdecimal() else 0


def current_pods(pods: Iterable[Object]) -> list[Object]:
    """Return the pods of the latest run, by number: the youngest of each."""
    latest: dict[int, Object] = {}
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", ""))):
        latest[pod_index(pod)] = pod
    return [latest[number] for number in sorted(latest)]


def pod_phase(pod: Object) -> str:
    """Return Pending, Running, Succeeded, Failed or Unknown."""
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _ended(evidence: Evidence, pods: Sequence[Object]) -> Finding | None:
    job = evidence.job
    if job.resource is VOLCANO_JOB:
        return _volcano_ended(job, pods)
    found = conditions(job.made)
    done, failed = ("Completed", "Failed") if job.resource is JOBSET else ("Complete", "Failed")
    if holds(found, done):
        return "CD", "", ""
    if not holds(found, failed):
        return None
    told = [found[failed], *(conditions(child).get("Failed", {}) for child in evidence.children)]
    reasons = [str(row.get("reason", "")) for row in told]
    message = str(told[0].get("message", ""))
    if "DeadlineExceeded" in reasons:
        return "TO", "TimeLimit", message
    state, reason = _why_failed(pods)
    return state, reason or reasons[-1] or "JobFailed", message


def _volcano_ended(job: Job, pods: Sequence[Object]) -> Finding | None:
    state = (job.made.get("status") or {}).get("state") or {}
    phase, message = state.get("phase", ""), str(state.get("message", ""))
    if phase == "Completed":
        return "CD", "", ""
    if phase in ("Failed", "Terminated"):
        code, reason = _why_failed(pods)
        return code, reason or str(state.get("reason", "")) or "JobFailed", message
    if phase == "Aborted" and not job.held:
        return "CA", "Aborted", message
    return None


def _why_failed(pods: Sequence[Object]) -> tuple[str, str]:
    """The state that the pods' own stories add up to; the batch host's counts first."""
    for pod in pods:
        lost = conditions(pod).get("DisruptionTarget", {})
        if lost.get("status") == "True":
            preempted = "Preempt" in str(lost.get("reason", ""))
            return ("PR", "Preempted") if preempted else ("NF", str(lost.get("reason", "NodeFail")))
    for pod in pods:
        ended = _terminated(pod)
        if ended is None or not ended.get("exitCode"):
            continue
        if ended["exitCode"] == TIME_LIMIT_STATUS:
            return "TO", "TimeLimit"
        if ended.get("reason") == _KILLED_FOR_MEMORY:
            return "OOM", "OutOfMemory"
        return "F", "NonZeroExitCode"
    if any((pod.get("status") or {}).get("reason") == "DeadlineExceeded" for pod in pods):
        return "TO", "TimeLimit"
    return "F", ""


def _terminated(pod: Object) -> Mapping[str, Any] | None:
    """How the container `main` ended, None if it did not."""
    for row in (pod.get("status") or {}).get("containerStatuses") or ():
        if row.get("name") == "main" and "terminated" in (row.get("state") or {}):
            return dict(row["state"]["terminated"])
    return None


def _exit_code(pods: Sequence[Object]) -> int | None:
    """The batch script's; of an array of pods, or where another pod failed, the highest."""
    codes = [ended["exitCode"] for pod in pods if (ended := _terminated(pod)) is not None]
    return max(codes, default=None)


def _ending(job: Job) -> Finding | None:
    if job.ending:
        return "CG", "Cancelled", ""
    phase = ((job.made.get("status") or {}).get("state") or {}).get("phase", "")
    if phase in ("Completing", "Terminating", "Aborting"):
        return "CG", "", ""
    found = conditions(job.made)
    if holds(found, "SuccessCriteriaMet") or holds(found, "FailureTarget"):
        return "CG", "", ""
    return None


def _waiting(evidence: Evidence, pods: Sequence[Object]) -> Finding | None:
    """Why a job has not been admitted; None if it has."""
    job = evidence.job
    if HOLD_GATE in job.gates or job.held:
        return "PD", "JobHeldUser", ""
    if job.gates == (ARRAY_GATE,):
        return "PD", "JobArrayTaskLimit", ""
    if job.gates:
        return "PD", "Dependency", job.annotations.get("pyxis/dependency", "")
    if job.in_kueue:
        return _in_queue(evidence.workload)
    if job.resource is VOLCANO_JOB and not any(pod_phase(pod) == "Running" for pod in pods):
        phase = ((job.made.get("status") or {}).get("state") or {}).get("phase", "")
        if phase == "Restarting":
            return "PD", "Requeued", ""
        return ("PD", *_unscheduled(pods)) if phase in ("", "Pending") else None
    if job.made["spec"].get("suspend"):
        return "PD", "JobHeldAdmin", "the job is suspended"
    if job.resource is not VOLCANO_JOB and not any(pod_phase(pod) != "Pending" for pod in pods):
        unscheduled = [pod for pod in pods if not pod.get("spec", {}).get("nodeName")]
        if unscheduled or not pods:
            return "PD", *_unscheduled(unscheduled)
    return None


def _in_queue(workload: Object | None) -> Finding | None:
    if workload is None:
        return "PD", "None", "Kueue has not taken notice of the job yet"
    found = conditions(workload)
    if holds(found, "Admitted") and not holds(found, "Evicted"):
        return None
    evicted, reserved = found.get("Evicted", {}), found.get("QuotaReserved", {})
    if workload["spec"].get("active") is False:
        return "PD", "JobHeldAdmin", "Kueue's Workload is not active"
    if reserved.get("status") == "True":
        checks = (workload.get("status") or {}).get("admissionChecks") or ()
        waiting = [f"{row['name']}: {row.get('message', '')}" for row in checks
                   if row.get("state") != "Ready"]  # fmt: skip
        return "PD", "AdmissionChecks", "; ".join(waiting)
    if evicted.get("status") == "True":
        return "PD", str(evicted.get("reason", "Evicted")), str(evicted.get("message", ""))
    reason, message = str(reserved.get("reason", "")), str(reserved.get("message", ""))
    words = {"Pending": "Resources", "Waiting": "Resources", "": "None"}
    return "PD", words.get(reason, reason), message


def _unscheduled(pods: Sequence[Object]) -> tuple[str, str]:
    for pod in pods:
        row = conditions(pod).get("PodScheduled", {})
        if row.get("status") == "False":
            return "Resources", str(row.get("message", ""))
    return "None", ""


def _active(evidence: Evidence, pods: Sequence[Object]) -> Finding:
    """Running, or on the way: the slowest pod's story tells why."""
    job = evidence.job
    if any(pod_phase(pod) in ("Succeeded", "Failed") for pod in pods) and not job.is_array:
        return "CG", "", ""
    running = sum(pod_phase(pod) == "Running" for pod in pods)
    if running and (job.is_array or running == job.nodes):
        return "R", "", ""
    for pod in pods:
        if pod_phase(pod) == "Pending":
            for row in (pod.get("status") or {}).get("containerStatuses") or ():
                waiting = (row.get("state") or {}).get("waiting")
                if waiting:
                    return "CF", str(waiting.get("reason", "")), str(waiting.get("message", ""))
            return "CF", *_unscheduled([pod])
    return "CF", "None", ""


def _times(evidence: Evidence, pods: Sequence[Object]) -> tuple[float | None, float | None]:
    """When the run began and ended."""
    starts: list[str | None] = []
    ends: list[str | None] = []
    for made in (evidence.job.made, *evidence.children):
        status = made.get("status") or {}
        starts.append(status.get("startTime"))
        ends.append(status.get("completionTime"))
        found = conditions(made)
        ends += [
            found[name].get("lastTransitionTime")
            for name in ("Completed", "Complete", "Failed")
            if holds(found, name)
        ]
    starts += [(pod.get("status") or {}).get("startTime") for pod in pods]
    state = (evidence.job.made.get("status") or {}).get("state") or {}
    ends.append(state.get("lastTransitionTime"))
    began = [stamp for text in starts if (stamp := parse_stamp(text)) is not None]
    over = [stamp for text in ends if (stamp := parse_stamp(text)) is not None]
    return min(began, default=None), max(over, default=None)
