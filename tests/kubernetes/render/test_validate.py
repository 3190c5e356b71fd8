"""Faults sown into valid manifests: every one is found, with the path of the field."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pyxis_py.kubernetes.render.validate import find_problems, pod_templates
from tests.kubernetes.goldens import FLAT
from tests.kubernetes.samples import SCRIPT, render, script

DELETE = object()
JOB = "spec.replicatedJobs.0.template.spec"
POD = f"{JOB}.template.spec"
MAIN = f"{POD}.containers.0"
V_POD = "spec.tasks.0.template.spec"
CLAIM = "spec.spec.devices.requests.0"

JOBSET_FAULTS: list[tuple[str, Any, str]] = [
    # path, new value, part of the message
    ("metadata.nmae", "x", "metadata.nmae: unknown field"),
    ("metadata.name", DELETE, "metadata.name: missing"),
    ("metadata.name", "9job", "metadata.name: not a DNS-1035 label"),
    ("metadata.name", "Job", "metadata.name: not a DNS-1035 label"),
    ("metadata.name", "j" * 60, "longer than 63 characters"),
    ("metadata.labels.pyxis/user", "a b", "metadata.labels[pyxis/user]: not a label's value"),
    ("metadata.labels.bad key!", "x", "metadata.labels: not a valid key"),
    ("metadata.annotations.pyxis/job-name", 5, "annotations[pyxis/job-name]: not a string"),
    ("apiVersion", "jobset.x-k8s.io/v1", "unknown kind jobset.x-k8s.io/v1 JobSet"),
    ("kind", "Jobset", "unknown kind"),
    ("spec.suspend", False, "spec.suspend: has to be true"),
    ("spec.suspend", "true", "spec.suspend: neither true nor false"),
    ("spec.network.subdomian", "x", "spec.network.subdomian: unknown field"),
    ("spec.coordinator.replicatedJob", "m", "spec.coordinator: there is no replicated job m"),
    ("spec.coordinator.podIndex", 64, "spec.coordinator: there is no such pod"),
    ("spec.successPolicy.targetReplicatedJobs.0", "m", "there is no replicated job m"),
    ("spec.failurePolicy.maxRestart", 3, "spec.failurePolicy.maxRestart: unknown field"),
    ("spec.failurePolicy.rules.0.name", "time-limit", "rules[0].name: not a rule's name"),
    ("spec.failurePolicy.rules.1.name", "timeLimit", "a second one with name timeLimit"),
    ("spec.failurePolicy.rules.0.action", "FailJob", "rules[0].action: 'FailJob' is none of"),
    ("spec.failurePolicy.rules.0.onJobFailureReasons.0", "Timeout", "'Timeout' is none of"),
    ("spec.failurePolicy.rules.0", DELETE, "a time-out has to end the set"),
    ("spec.failurePolicy.rules.0.action", "RestartJobSet", "a time-out has to end the set"),
    ("spec.failurePolicy.rules.0.onJobFailureReasons", [], "a time-out has to end the set"),
    (f"{JOB}.completions", 0, "completions: not between 1"),
    (f"{JOB}.completions", 60, "a slice of 16 does not divide 60 pods"),
    (f"{JOB}.completions", 2**31, "completions: not between"),
    (f"{JOB}.completions", True, "completions: not an integer"),
    (f"{JOB}.parallelism", 128, "parallelism: more than completions"),
    (f"{JOB}.completionMode", "NonIndexed", "completionMode: 'NonIndexed'"),
    (f"{JOB}.backoffLimit", DELETE, "one of backoffLimit and backoffLimitPerIndex"),
    (f"{JOB}.successPolicy.rules.0.succeededIndexes", "64", "there is no index 64"),
    (f"{JOB}.successPolicy.rules.0.succeededIndexes", 0, "not a string"),
    (f"{JOB}.podFailurePolicy.rules.0.action", "FailIndex", "FailIndex without"),
    (f"{JOB}.podFailurePolicy.rules.1.onExitCodes.containerName", "m", "there is no container m"),
    (f"{JOB}.podFailurePolicy.rules.1.onExitCodes.values.0", 0, "values[0]: not between 1"),
    (f"{JOB}.podFailurePolicy.rules.1.onPodConditions", [], "fewer than 1 items"),
    (f"{JOB}.template.metadata.annotations.kueue.x-k8s.io/podset-required-topology", "x",
     "exclude each other"),
    (f"{JOB}.template.metadata.annotations.kueue.x-k8s.io/podset-slice-size", DELETE,
     "slices need a topology and a size"),
    (f"{JOB}.template.metadata.annotations.kueue.x-k8s.io/podset-slice-size", "7",
     "a slice of 7 does not divide 64"),
    (f"{JOB}.template.metadata.generateName", "x", "generateName: unknown field"),
    (f"{POD}.restartPolicy", "OnFailure", "restartPolicy: 'OnFailure'"),
    (f"{POD}.terminationGracePeriodSeconds", "600", "PeriodSeconds: not an integer"),
    (f"{POD}.terminationGracePeriodSeconds", 5, "terminationGracePeriodSeconds: not between 30"),
    (f"{POD}.schedulingGroup", {}, "schedulingGroup: unknown field"),
    (f"{POD}.dnsConfig.searches.0", "a..b", "searches[0]: not a DNS domain"),
    (f"{POD}.hostNetwork", True, "dnsPolicy: with hostNetwork"),
    (f"{POD}.securityContext.runAsUser", 0, "runAsNonRoot for user 0"),
    (f"{POD}.securityContext.fsGroup", 1, "fsGroup: unknown field"),
    (f"{POD}.securityContext.seccompProfile", DELETE, "seccompProfile: missing"),
    (f"{POD}.tolerations.0.value", "x", "tolerations[0]: a value with Exists"),
    (f"{POD}.tolerations.0.effect", "NoRun", "effect: 'NoRun' is none of"),
    (f"{POD}.nodeSelector.nvidia.com/gpu.product", "a b", "not a label's value"),
    (f"{POD}.volumes.0.hostPath", {"path": "/"}, "exactly one of"),
    (f"{POD}.volumes.1.name", "launcher", "a second one with name launcher"),
    (f"{POD}.volumes.1.secret.secretName", "other", "there is no secret other"),
    (f"{POD}.volumes.2.emptyDir.sizeLimit", "450GB", "sizeLimit: not a quantity"),
    (f"{POD}.volumes.2.emptyDir.medium", "memory", "medium: 'memory'"),
    (f"{POD}.volumes.0.projected.defaultMode", 0o1777, "defaultMode: not between"),
    (f"{MAIN}.env.0.value", 64, "env[0].value: not a string: 64"),
    (f"{MAIN}.env.1.name", "PYXIS_BACKEND", "a second one with name PYXIS_BACKEND"),
    (f"{MAIN}.env.0", {"name": "HF_TOKEN", "value": "x"}, "HF_TOKEN looks like a secret"),
    (f"{MAIN}.env.0", {"name": "URL", "value": "http://u:p@h/"}, "URL looks like a secret"),
    (f"{MAIN}.env.0.valueFrom", {}, "exactly one of value, valueFrom"),
    (f"{MAIN}.env.1.valueFrom.fieldRef.fieldPath", "metadata.labels[x]", "downward API"),
    (f"{MAIN}.env.0.name", "a-b", "not a variable's name"),
    (f"{MAIN}.volumeMounts.3.mountPath", "/dev/shm", "a second one with mountPath /dev/shm"),
    (f"{MAIN}.volumeMounts.3.subPath", "../x", "subPath: not a relative path"),
    (f"{MAIN}.volumeMounts.3.subPath", "/x", "subPath: not a relative path"),
    (f"{MAIN}.volumeMounts.3.name", "none", "there is no volume none"),
    (f"{MAIN}.volumeMounts.4.recursiveReadOnly", "IfPossible", "recursiveReadOnly without"),
    (f"{MAIN}.volumeMounts.4.mountPropagation", "Bidirectional", "Propagation: 'Bidirectional'"),
    (f"{MAIN}.workingDir", "workspace", "workingDir: not an absolute path"),
    (f"{MAIN}.args", ["x"], "exactly one of command, args"),
    (f"{MAIN}.imagePullPolicy", "Always", "imagePullPolicy: 'Always'"),
    (f"{MAIN}.image", "a b", "image: not an image reference"),
    (f"{MAIN}.resources.requests.memory", "1800GB", "requests[memory]: not a quantity"),
    (f"{MAIN}.resources.limits.nvidia.com/gpu", "4", "needs a limit equal to its request"),
    (f"{MAIN}.resources.requests.nvidia.com/gpu", "0.5", "needs a limit equal"),
    (f"{MAIN}.resources.requests.gpus", "8", "gpus is no resource"),
    (f"{MAIN}.resources.claims", [{"name": "gpu"}], "there is no claim gpu"),
    (f"{MAIN}.securityContext.privileged", True, "capabilities of a privileged container"),
    (f"{MAIN}.securityContext.capabilities.add.0", "SYS_ADMIN", "'SYS_ADMIN' is none of"),
    (f"{MAIN}.ports.0.containerPort", 70000, "containerPort: not between"),
    ("spec.replicatedJobs.0.name", "N_1", "name: not a DNS label"),
]  # fmt: skip

VOLCANO_FAULTS: list[tuple[str, Any, str]] = [
    ("spec.minAvailable", 65, "spec.minAvailable: more than there are replicas"),
    ("spec.maxRetry", 0, "spec.maxRetry: not between 1"),
    ("spec.tasks.0.minAvailable", 70, "minAvailable: more than replicas"),
    ("spec.tasks.0.name", "n_0", "name: not a DNS label"),
    ("spec.tasks.0.partitionPolicy.partitionSize", 15, "is not replicas"),
    ("spec.tasks.0.partitionPolicy.minPartitions", 3, "is not minAvailable"),
    ("spec.tasks.0.partitionPolicy.minPartitions", 5, "more than totalPartitions"),
    ("spec.tasks.0.partitionPolicy.networkTopology.highestTierAllowed", DELETE, "the mode hard"),
    ("spec.tasks.0.partitionPolicy.networkTopology.highestTierName", "x", "unknown field"),
    ("spec.networkTopology.highestTierAllowed", 1, "belongs to the mode hard"),
    ("spec.policies.0.exitCode", 0, "exit status 0 is no failure"),
    ("spec.policies.1.exitCode", 124, "a second policy for exit status 124"),
    ("spec.policies.2.event", "PodFailed", "a second policy for PodFailed"),
    ("spec.policies.0.event", "PodFailed", "exactly one of exitCode, event"),
    ("spec.policies.2.action", "Restart", "action: 'Restart' is none of"),
    ("spec.policies.4", {"exitCode": 3, "action": "RestartJob"}, "never reached behind PodFailed"),
    ("spec.plugins.svc", DELETE, "without svc the pods have no names"),
    ("spec.plugins.pytorch", [], "spec.plugins: not a valid key"),
    ("spec.runningEstimate", "3 days", "runningEstimate: not a duration"),
    ("spec.schedulerName", "default", "schedulerName: 'default'"),
    ("metadata.name", "j" * 60, "longer than 63 characters"),
    (f"{V_POD}.schedulingGroup", {}, "schedulingGroup: unknown field"),
]  # fmt: skip

CLAIM_FAULTS: list[tuple[str, Any, str]] = [
    (f"{CLAIM}.deviceClassName", "x", "deviceClassName: unknown field"),
    (f"{CLAIM}.exactly.count", 0, "count: not between 1"),
    (f"{CLAIM}.exactly.allocationMode", "All", "allocationMode: 'All'"),
    (f"{CLAIM}.exactly.adminAccess", True, "adminAccess: unknown field"),
    (f"{CLAIM}.exactly.shareable", True, "shareable: unknown field"),
    (f"{CLAIM}.firstAvailable", [], "firstAvailable: unknown field"),
    (f"{CLAIM}.name", "GPU", "name: not a DNS label"),
    ("spec.spec.devices.constraints", [{"requests": ["nic"], "matchAttribute": "a/b"}],
     "there is no request nic"),
    ("metadata.name", "other", "there is no claim template"),
]  # fmt: skip

OTHER_FAULTS: list[tuple[str, str, Any, str]] = [
    ("ConfigMap", "data.a b", "x", "data: not a valid key"),
    ("ConfigMap", "data.job.sh", 5, "data[job.sh]: not a string"),
    ("ConfigMap", "data", DELETE, "data: missing"),
    ("Secret", "data", {}, "data: unknown field"),
    ("Secret", "type", "opaque", "type: 'opaque'"),
    ("Secret", "metadata.namespace", "other", "objects in several namespaces"),
    ("Service", "spec.clusterIP", "none", "clusterIP: 'none'"),
    ("Service", "spec.ports.0.port", 0, "port: not between 1"),
    ("Service", "spec.publishNotReadyAddresses", DELETE, "publishNotReadyAddresses: missing"),
    ("PodGroup", "spec.minMember", 0, "minMember: not between 1"),
    ("PodGroup", "spec.minMembers", 4, "minMembers: unknown field"),
    ("PodGroup", "metadata.annotations.x/timelimit", 90, "annotations[x/timelimit]: not a string"),
]  # fmt: skip

ARRAY_FAULTS: list[tuple[str, Any, str]] = [
    ("spec.successPolicy", {"rules": [{"succeededIndexes": "0"}]}, "with its first element"),
    ("metadata.annotations.kueue.x-k8s.io/job-min-parallelism", "9", "is out of range"),
    ("spec.backoffLimit", 0, "one of backoffLimit and backoffLimitPerIndex"),
]  # fmt: skip


def change(document: dict[str, Any], path: str, value: Any) -> None:
    """Set or delete a field; keys with dots are found greedily."""
    *parents, last = split(document, path)
    node: Any = document
    for key in parents:
        node = node[key]
    if value is DELETE:
        del node[last]
    else:
        node[last] = value


def split(document: Any, path: str) -> list[Any]:
    """Cut a path into keys and indices, following the document."""
    keys: list[Any] = []
    node, rest = document, path
    while rest:
        if isinstance(node, list):
            head, _, rest = rest.partition(".")
            keys.append(int(head))
            node = node[int(head)]
            continue
        head = next(
            (key for key in sorted(node, key=len, reverse=True)
             if rest == key or rest.startswith(f"{key}.")),
            None,
        )  # fmt: skip
        if head is None:
            if "annotations" in keys[-1:] or "labels" in keys[-1:] or "requests" in keys[-1:]:
                return [*keys, rest]
            head = rest.partition(".")[0] if "/" not in rest else rest
            return [*keys, head]
        keys.append(head)
        node, rest = node[head], rest[len(head) + 1 :]
    return keys


def _find(manifests: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(manifest for manifest in manifests if manifest["kind"] == kind)


def _broken(manifests: Any, kind: str, path: str, value: Any, message: str) -> None:
    copies = copy.deepcopy(list(manifests))
    assert find_problems(copies) == []
    change(_find(copies, kind), path, value)
    problems = find_problems(copies)
    assert any(message in problem for problem in problems), problems


@pytest.mark.parametrize(("path", "value", "message"), JOBSET_FAULTS)
def test_faults_in_a_jobset_are_found(path: str, value: Any, message: str) -> None:
    _broken(render(SCRIPT).manifests, "JobSet", path, value, message)


@pytest.mark.parametrize(("path", "value", "message"), VOLCANO_FAULTS)
def test_faults_in_a_volcano_job_are_found(path: str, value: Any, message: str) -> None:
    _broken(render(SCRIPT, target="volcano").manifests, "Job", path, value, message)


@pytest.mark.parametrize(("path", "value", "message"), CLAIM_FAULTS)
def test_faults_in_a_claim_template_are_found(path: str, value: Any, message: str) -> None:
    manifests = render(FLAT, gpu_api="dra").manifests
    _broken(manifests, "ResourceClaimTemplate", path, value, message)


@pytest.mark.parametrize(("kind", "path", "value", "message"), OTHER_FAULTS)
def test_faults_beside_the_job_are_found(kind: str, path: str, value: Any, message: str) -> None:
    _broken(render(SCRIPT, target="slurm-bridge").manifests, kind, path, value, message)


@pytest.mark.parametrize(("path", "value", "message"), ARRAY_FAULTS)
def test_faults_in_an_array_are_found(path: str, value: Any, message: str) -> None:
    _broken(render(script("-p cpu", "-a 0-3")).manifests, "Job", path, value, message)


def test_a_compute_domain_that_asks_for_nodes_is_a_fault() -> None:
    manifests = render(script("-N4", "-p nvl72", "--gpus-per-node=4")).manifests
    _broken(manifests, "ComputeDomain", "spec.numNodes", 4, "numNodes: not between 0 and 0")
    _broken(manifests, "ComputeDomain", "spec.channel.resourceClaimTemplate.name", "x",
            "there is no claim template")  # fmt: skip


def test_the_same_object_twice_is_a_fault() -> None:
    manifests = list(render(SCRIPT).manifests)
    assert any("there is another one" in row for row in find_problems([*manifests, manifests[0]]))


def test_something_that_is_no_manifest_is_a_fault() -> None:
    assert find_problems([{"kind": "Pod"}]) == ["Pod/None: unknown kind None Pod"]
    assert find_problems([{"apiVersion": "v1", "kind": "Secret", "metadata": 5}]) != []


def test_pod_templates_are_found_in_every_kind_that_has_them() -> None:
    for target in ("kueue", "kueue-job", "volcano", "slurm-bridge"):
        found = [row for m in render(SCRIPT, target=target).manifests for row in pod_templates(m)]
        assert len(found) == 1
