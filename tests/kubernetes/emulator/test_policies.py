"""What the end of a pod means for its job, by the policies that are rendered and by others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubernetes.emulator.controllers import Workload, create_pods, read_workload
from tests.kubernetes.emulator.environment import Place, container_environment
from tests.kubernetes.emulator.objects import EmulatorError, Objects
from tests.kubernetes.emulator.policies import (
    PodEnd,
    Verdict,
    judge_indexed,
    judge_jobset,
    judge_volcano,
)
from tests.kubernetes.samples import find, render, script

TARGETS = {"kueue": "JobSet", "kueue-job": "Job", "volcano": "Job"}
TIMED = script("-N4", "-t 10", "-p cpu")


def workload(target: str, *options: str) -> Workload:
    rendering = render(script("-N4", "-t 10", "-p cpu", *options), target=target)  # type: ignore[arg-type]
    return read_workload(find(rendering, TARGETS[target]))


def outcome(target: str, end: PodEnd, *options: str, index: int = 0) -> str:
    """What becomes of the job when this pod ends first, in one word and a reason."""
    job = workload(target, *options)
    if target == "volcano":
        ends = [end if i == index else None for i in range(4)]
        verdict = judge_volcano(job.manifest["spec"]["policies"], end, ends)
        return f"{verdict.action} {verdict.reason}".strip()
    verdict = judge_indexed(job.job, end, index)
    if verdict.action == "fail" and target == "kueue":
        verdict = judge_jobset(job.manifest["spec"]["failurePolicy"], verdict.reason, 0)
    return f"{verdict.action} {verdict.reason}".strip()


LOST = PodEnd("main", None, disrupted=True, deleted=True)
EVICTED = PodEnd("main", 143, disrupted=True, deleted=True)


@pytest.mark.parametrize(
    ("end", "options", "jobset", "job", "volcano"),
    [
        # section 6 of the specification: event, and what each target makes of it
        (PodEnd("main", 0), (), "complete SuccessPolicy", "complete SuccessPolicy", "nothing"),
        (PodEnd("main", 1), (), "fail BackoffLimitExceeded", "fail BackoffLimitExceeded",
         "fail Terminated"),
        (PodEnd("main", 137), (), "fail BackoffLimitExceeded", "fail BackoffLimitExceeded",
         "fail Terminated"),
        (PodEnd("main", 124), (), "fail BackoffLimitExceeded", "fail BackoffLimitExceeded",
         "fail Terminated"),
        (PodEnd("main", 85), (), "restart ignored", "replace PodFailurePolicy", "restart"),
        (LOST, (), "restart ignored", "replace PodFailurePolicy", "restart"),
        (EVICTED, (), "restart ignored", "replace PodFailurePolicy", "restart"),
        # A body that still ended well while its pod was evicted is run again, too.
        (PodEnd("main", 0, disrupted=True, deleted=True), (), "restart ignored",
         "replace PodFailurePolicy", "restart"),
        (LOST, ("--no-requeue",), "fail PodFailurePolicy", "fail PodFailurePolicy",
         "fail Terminated"),
        (PodEnd("main", 85), ("--no-requeue",), "fail PodFailurePolicy", "fail PodFailurePolicy",
         "fail Terminated"),
    ],
)  # fmt: skip
def test_outcomes_of_rendered_policies(
    end: PodEnd, options: tuple[str, ...], jobset: str, job: str, volcano: str
) -> None:
    found = {target: outcome(target, end, *options) for target in TARGETS}
    assert found == {"kueue": jobset, "kueue-job": job, "volcano": volcano}


def test_an_agent_that_ends_well_ends_nothing() -> None:
    found = [outcome(target, PodEnd("main", 0), index=3) for target in TARGETS]
    assert found == ["nothing"] * 3


def test_volcano_completes_when_all_pods_of_the_task_have_succeeded() -> None:
    policies = workload("volcano").manifest["spec"]["policies"]
    done = PodEnd("main", 0)
    assert judge_volcano(policies, done, [done, done, None]).action == "nothing"
    assert judge_volcano(policies, done, [done, done]) == Verdict("complete", "Completed")


def test_the_first_rule_that_matches_counts() -> None:
    policies = [{"event": "PodFailed", "action": "AbortJob"},
                {"exitCode": 85, "action": "RestartJob"}]  # fmt: skip
    assert judge_volcano(policies, PodEnd("main", 85), []) == Verdict("fail", "Aborted")
    assert judge_volcano(policies[::-1], PodEnd("main", 85), []).action == "restart"


@pytest.mark.parametrize(
    ("policy", "reason", "counted", "expected"),
    [
        (None, "BackoffLimitExceeded", 0, "fail"),
        ({}, "BackoffLimitExceeded", 0, "fail"),
        ({"maxRestarts": 2}, "DeadlineExceeded", 1, "restart"),
        ({"maxRestarts": 2}, "DeadlineExceeded", 2, "fail"),
        ({"maxRestarts": 1, "rules": [{"action": "FailJobSet"}]}, "Any", 0, "fail"),
        ({"rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]}, "Any", 9, "restart"),
        ({"maxRestarts": 1, "rules": [{"action": "FailJobSet", "onJobFailureReasons": ["X"]}]},
         "Y", 0, "restart"),
    ],
)  # fmt: skip
def test_failure_policies_of_jobset(
    policy: dict[str, Any] | None, reason: str, counted: int, expected: str
) -> None:
    assert judge_jobset(policy, reason, counted).action == expected


@pytest.mark.parametrize(
    ("rule", "status", "expected"),
    [
        ({"onExitCodes": {"operator": "In", "values": [3, 4]}}, 4, "replace"),
        ({"onExitCodes": {"operator": "In", "values": [3, 4]}}, 5, "fail"),
        ({"onExitCodes": {"operator": "NotIn", "values": [3]}}, 5, "replace"),
        ({"onExitCodes": {"operator": "NotIn", "values": [3]}}, 3, "fail"),
        ({"onExitCodes": {"operator": "In", "values": [3], "containerName": "other"}}, 3, "fail"),
        ({"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}, 3, "fail"),
    ],
)
def test_exit_codes_of_pod_failure_policies(
    rule: dict[str, Any], status: int, expected: str
) -> None:
    job = {"backoffLimit": 0, "podFailurePolicy": {"rules": [{"action": "Ignore", **rule}]}}
    assert judge_indexed(job, PodEnd("main", status), 1).action == expected


def test_elements_of_an_array_fail_alone() -> None:
    job = read_workload(find(render(script("--array=1-7:2%2", "-t 10", "-p cpu")), "Job"))
    assert len(create_pods(job, Objects([]), 0)) == 2
    found = [judge_indexed(job.job, end, 0).action for end in (PodEnd("main", 3), LOST)]
    assert found == ["nothing", "replace"]


def names(target: str) -> dict[str, Any]:
    """What the last of four pods is called, and which variables it gets from controllers."""
    job = workload(target)
    pod = create_pods(job, Objects([]), attempt=2)[3]
    environ = container_environment(
        pod.spec["containers"][0], pod, Place("10.244.0.5", "worker-4", "192.0.2.4"), Objects([])
    )
    kept = ("SLURM_NODEID", "SLURM_RESTART_COUNT", "JOB_COMPLETION_INDEX", "VC_TASK_INDEX",
            "VC_N_NUM", "POD_IP", "K8S_NODE_NAME")  # fmt: skip
    return {
        "hostname": pod.hostname, "subdomain": pod.subdomain,
        "listed": pod.hostname.rpartition("-")[0] in environ["SLURM_JOB_NODELIST"],
        **{name: environ[name] for name in kept if name in environ},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("kueue", {"hostname": "job-sbatch-412803917-n-0-3", "JOB_COMPLETION_INDEX": "3",
                   "SLURM_RESTART_COUNT": "2"}),
        ("kueue-job", {"hostname": "job-sbatch-412803917-3", "JOB_COMPLETION_INDEX": "3"}),
        ("volcano", {"hostname": "job-sbatch-412803917-n-3", "VC_TASK_INDEX": "3",
                     "VC_N_NUM": "4", "SLURM_RESTART_COUNT": "2"}),
    ],
)  # fmt: skip
def test_names_and_indexes(target: str, expected: dict[str, str]) -> None:
    assert names(target) == {
        "subdomain": "job-sbatch-412803917", "listed": True, "SLURM_NODEID": "3",
        "POD_IP": "10.244.0.5", "K8S_NODE_NAME": "worker-4", **expected,
    }  # fmt: skip


def _gated(manifest: dict[str, Any]) -> None:
    manifest["metadata"]["annotations"]["kueue.x-k8s.io/admission-gated-by"] = "pyxis/hold"


def _no_queue(manifest: dict[str, Any]) -> None:
    del manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]


def _several(manifest: dict[str, Any]) -> None:
    manifest["spec"]["replicatedJobs"] *= 2


def _replicas(manifest: dict[str, Any]) -> None:
    manifest["spec"]["replicatedJobs"][0]["replicas"] = 2


def _partial(manifest: dict[str, Any]) -> None:
    manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = 2


def _unindexed(manifest: dict[str, Any]) -> None:
    del manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["completionMode"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_gated, "gated"), (_no_queue, "no queue"), (_several, "2 replicated jobs"),
        (_replicas, "several replicas"), (_partial, "at once"), (_unindexed, "no completion"),
    ],
)  # fmt: skip
def test_jobs_that_do_not_run_here(change: Any, said: str) -> None:
    manifest = find(render(TIMED), "JobSet")
    change(manifest)
    with pytest.raises(EmulatorError, match=said):
        read_workload(manifest)


def test_names_of_pods_have_a_limit() -> None:
    job = workload("kueue")
    job.manifest["metadata"]["name"] = "x" * 60
    with pytest.raises(EmulatorError, match="too long"):
        create_pods(job, Objects([]), 0)
