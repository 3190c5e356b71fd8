"""The reference schemas, used strictly, find faults: what they accept means something."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.kubernetes.goldens import FLAT
from tests.kubernetes.reference_schemas import VERSIONS, problems
from tests.kubernetes.render.test_validate import CLAIM, JOB, MAIN, POD, V_POD, change
from tests.kubernetes.samples import SCRIPT, find, render, script

FAULTS: list[tuple[str, str, str, Any]] = [
    # target, kind, path, value
    ("kueue", "JobSet", "spec.replicatedJob", []),
    ("kueue", "JobSet", f"{JOB}.completion", 4),
    ("kueue", "JobSet", f"{JOB}.completions", "64"),
    ("kueue", "JobSet", f"{POD}.terminationGracePeriod", 4),
    ("kueue", "JobSet", f"{POD}.enableServiceLinks", "false"),
    ("kueue", "JobSet", f"{MAIN}.env.0.value", 64),
    ("kueue", "JobSet", f"{MAIN}.resources.requests.memory", "1800GB"),
    ("kueue", "JobSet", f"{MAIN}.volumeMounts.3.mountPath", "/dev/shm"),
    ("kueue", "JobSet", f"{POD}.volumes.1.name", "launcher"),
    ("kueue", "JobSet", f"{JOB}.template.metadata.generateName", "x"),
    ("kueue", "JobSet", "spec.failurePolicy.rules.0.action", "Fail"),
    ("kueue", "JobSet", "spec.failurePolicy.restartStrategy", "Never"),
    ("kueue", "JobSet", "metadata.nmae", "x"),
    ("kueue", "JobSet", "metadata.annotations.pyxis/job-name", 4),
    ("kueue", "JobSet", "spec.startupPolicy", {"startupPolicyOrder": "Sometimes"}),
    ("kueue-job", "Job", "spec.template.spec.containers.0.imagePullPolicyy", "x"),
    ("kueue-job", "Job", "spec.podFailurePolicy.rules.0.act", "FailJob"),
    ("kueue-job", "Service", "spec.publishNotReady", True),
    ("kueue-job", "ConfigMap", "data.job.sh", 5),
    ("kueue-job", "Secret", "stringDatas", {}),
    ("volcano", "Job", "spec.minAvailabel", 64),
    ("volcano", "Job", f"{V_POD}.schedulingGroup", {}),
    ("volcano", "Job", "spec.policies.0.exitCode", "124"),
    ("volcano", "Job", "spec.tasks.0.partitionPolicy.networkTopology.mode", "firm"),
    ("volcano", "Job", "spec.minAvailable", 2**31),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("target", "kind", "path", "value"), FAULTS)
def test_a_fault_is_found(target: Any, kind: str, path: str, value: Any, version: str) -> None:
    manifest = copy.deepcopy(find(render(SCRIPT, target=target), kind))
    assert problems(manifest, version) == []
    change(manifest, path, value)
    assert problems(manifest, version) != []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("path", "value"), [
    (f"{CLAIM}.deviceClassName", "gpu.nvidia.com"),
    (f"{CLAIM}.exactly.shareable", True),
    (f"{CLAIM}.exactly.count", "8"),
])  # fmt: skip
def test_a_fault_in_a_claim_template_is_found(path: str, value: Any, version: str) -> None:
    manifest = copy.deepcopy(find(render(FLAT, gpu_api="dra"), "ResourceClaimTemplate"))
    assert problems(manifest, version) == []
    change(manifest, path, value)
    assert problems(manifest, version) != []


def test_a_fault_in_a_compute_domain_is_found() -> None:
    manifest = find(render(script("-N4", "-p nvl72", "--gpus-per-node=4")), "ComputeDomain")
    change(manifest, "spec.channel.allocationMode", "Some")
    assert problems(manifest, VERSIONS[0]) != []


def test_a_rule_in_cel_is_checked() -> None:
    manifest = copy.deepcopy(find(render(SCRIPT), "JobSet"))
    manifest["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    assert problems(manifest, VERSIONS[0]) == []
    manifest["spec"]["replicatedJobs"][0]["dependsOn"] = [{"name": "m", "status": "Ready"}]
    assert problems(manifest, VERSIONS[0]) != []
