"""What the end of a pod means for its job: the rules of Job, JobSet and Volcano.

Pure. Source: kubernetes.io, "Pod failure policy"; JobSet v0.12 pkg/controllers/failure_policy.go;
Volcano v1.15 pkg/controllers/job/job_controller_util.go, applyPolicies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tests.kubernetes.emulator.objects import EmulatorError, Manifest

Action = Literal["fail", "restart", "replace", "complete", "nothing"]


@dataclass(frozen=True, slots=True)
class PodEnd:
    """How a pod ended.

    Attributes:
        container: the container that counts.
        status: its exit status, 128 + N for a signal; None if nobody could ask for it.
        disrupted: whether the pod has the condition DisruptionTarget: lost with its node, evicted,
            preempted.
        deleted: whether somebody other than the job's controller deleted it.
    """

    container: str
    status: int | None
    disrupted: bool = False
    deleted: bool = False

    @property
    def succeeded(self) -> bool:
        """Whether the pod's phase is Succeeded."""
        return self.status == 0 and not self.disrupted


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens to the job, and the reason that its condition or phase shows."""

    action: Action
    reason: str = ""


def judge_indexed(job: Manifest, end: PodEnd, index: int) -> Verdict:
    """Return what the Job controller does about the end of one pod."""
    if end.succeeded:
        rules = job.get("successPolicy", {}).get("rules", ())
        if any(index in _indexes(rule["succeededIndexes"]) for rule in rules):
            return Verdict("complete", "SuccessPolicy")
        return Verdict("nothing")
    for rule in job.get("podFailurePolicy", {}).get("rules", ()):
        if _matches(rule, end):
            if rule["action"] == "FailJob":
                return Verdict("fail", "PodFailurePolicy")
            if rule["action"] == "Ignore":
                return Verdict("replace", "PodFailurePolicy")
            break  # Count, or FailIndex
    if job.get("backoffLimitPerIndex") == 0:
        return Verdict("nothing")  # the other indexes go on
    if job.get("backoffLimit", 6) > 0:
        raise EmulatorError("a Job with a backoffLimit is not emulated")
    return Verdict("fail", "BackoffLimitExceeded")


def _matches(rule: Manifest, end: PodEnd) -> bool:
    for condition in rule.get("onPodConditions", ()):
        if condition["type"] == "DisruptionTarget" and condition.get("status", "True") == "True":
            return end.disrupted
    if "onExitCodes" in rule and end.status is not None:
        row = rule["onExitCodes"]
        if row.get("containerName", end.container) != end.container or end.status == 0:
            return False
        return bool((end.status in row["values"]) == (row["operator"] == "In"))
    return False


def _indexes(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def judge_jobset(policy: Manifest | None, reason: str, counted: int) -> Verdict:
    """Return what JobSet does when its Job has failed for a reason.

    Args:
        policy: the failure policy; without one the set fails at once.
        counted: how many restarts have counted so far.
    """
    if policy is None:
        return Verdict("fail", reason)
    action = "RestartJobSet"
    for rule in policy.get("rules", ()):
        if reason in rule.get("onJobFailureReasons", (reason,)):
            action = rule["action"]
            break
    if action == "FailJobSet":
        return Verdict("fail", reason)
    if action == "RestartJobSetAndIgnoreMaxRestarts":
        return Verdict("restart", "ignored")
    if counted >= policy.get("maxRestarts", 0):
        return Verdict("fail", "ReachedMaxRestarts")
    return Verdict("restart", "counted")


def judge_volcano(
    policies: Iterable[Manifest], end: PodEnd, ends: Iterable[PodEnd | None]
) -> Verdict:
    """Return what Volcano does about the end of one pod: the first policy that matches.

    Args:
        ends: those of all pods of the task, this one's among them; None for one that runs.
    """
    for policy in policies:
        if "exitCode" in policy:
            # A pod that was deleted is gone before anyone asks for its status.
            matched = not end.deleted and end.status == policy["exitCode"]
        else:
            events = {policy["event"]} if "event" in policy else set(policy["events"])
            matched = bool(events & _events(end, ends))
        if matched:
            return _VOLCANO_ACTIONS[policy["action"]]
    return Verdict("nothing")


_VOLCANO_ACTIONS = {
    "RestartJob": Verdict("restart"),
    "TerminateJob": Verdict("fail", "Terminated"),
    "AbortJob": Verdict("fail", "Aborted"),
    "CompleteJob": Verdict("complete", "Completed"),
}


def _events(end: PodEnd, ends: Iterable[PodEnd | None]) -> set[str]:
    if end.deleted:
        return {"PodEvicted", "*"}
    if not end.succeeded:
        return {"PodFailed", "*"}
    if all(other is not None and other.succeeded for other in ends):
        return {"TaskCompleted", "*"}
    return set()
