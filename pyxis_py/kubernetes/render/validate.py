"""The check of everything rendered, before it is shown: shapes, and the rules of the webhooks.

What an API server, JobSet's, Kueue's or Volcano's webhook would refuse on the cluster is refused
here, with the path of the field. Finding something is a defect of a renderer or of a profile.

Pure. Source: Kubernetes pkg/apis/core/validation and pkg/apis/batch/validation; JobSet v0.12
pkg/webhooks; Kueue v0.19 pkg/controller/jobframework; Volcano v1.15 pkg/webhooks/admission/jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from enroot_py import EnrootError
from pyxis_py.kubernetes.pod.context import Manifest
from pyxis_py.kubernetes.pod.environment import is_secret
from pyxis_py.kubernetes.shapes.language import check
from pyxis_py.kubernetes.shapes.manifest_shapes import MANIFESTS

LONGEST_NAME = 63
_TOPOLOGY = "kueue.x-k8s.io/podset-"
_PLACES = ("required-topology", "preferred-topology", "unconstrained-topology")


class ManifestRuleError(EnrootError):
    """A rendered manifest that a cluster would refuse."""


def check_manifests(manifests: Sequence[Manifest]) -> None:
    """Check manifests that belong together.

    Raises:
        ManifestRuleError: naming every manifest and field that is wrong.
    """
    problems = find_problems(manifests)
    if problems:
        raise ManifestRuleError(
            "A cluster would refuse what was rendered:\n  " + "\n  ".join(problems),
            hint="values from the site profile are the usual reason",
        )


def find_problems(manifests: Sequence[Manifest]) -> list[str]:
    """Return a line for everything that is wrong with manifests that belong together."""
    problems: list[str] = []
    seen = set()
    for manifest in manifests:
        title = _title(manifest)
        key = (str(manifest.get("apiVersion")), str(manifest.get("kind")))
        shape = MANIFESTS.get(key)
        if shape is None:
            problems.append(f"{title}: unknown kind {key[0]} {key[1]}")
            continue
        found = list(check(manifest, shape))
        # The rules read fields without looking whether they are there.
        found = found or [*_RULES.get(key, _nothing)(manifest), *_pod_problems(manifest)]
        problems += [f"{title}: {problem}" for problem in found]
        if title in seen:
            problems.append(f"{title}: there is another one")
        seen.add(title)
    return problems or list(_references(manifests))


def _title(manifest: Manifest) -> str:
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    group = str(manifest.get("apiVersion")).rpartition("/")[0]
    return f"{manifest.get('kind')}{'.' if group else ''}{group}/{name}"


def _nothing(manifest: Manifest) -> Iterator[str]:
    return iter(())


def pod_templates(manifest: Manifest) -> list[tuple[str, Manifest]]:
    """Return the pod templates of a valid manifest with their paths."""
    spec = manifest.get("spec", {})
    if manifest["kind"] == "JobSet":
        return [
            (
                f"spec.replicatedJobs[{n}].template.spec.template",
                job["template"]["spec"]["template"],
            )
            for n, job in enumerate(spec["replicatedJobs"])
        ]
    if "tasks" in spec:
        return [
            (f"spec.tasks[{n}].template", task["template"]) for n, task in enumerate(spec["tasks"])
        ]
    return [("spec.template", spec["template"])] if "template" in spec else []


def _pod_problems(manifest: Manifest) -> Iterator[str]:
    for path, template in pod_templates(manifest):
        yield from (f"{path}.spec.{problem}" for problem in _pod_spec(template["spec"]))


def _mounts(where: str, container: Manifest, volumes: set[str]) -> Iterator[str]:
    for number, mount in enumerate(container["volumeMounts"]):
        place = f"{where}.volumeMounts[{number}]"
        if mount["name"] not in volumes:
            yield f"{place}: there is no volume {mount['name']}"
        if "recursiveReadOnly" in mount and not mount.get("readOnly"):
            yield f"{place}: recursiveReadOnly without readOnly"
        if "recursiveReadOnly" in mount and "mountPropagation" in mount:
            yield f"{place}: recursiveReadOnly with mountPropagation"


def _pod_spec(spec: Manifest) -> Iterator[str]:
    container = spec["containers"][0]
    volumes = {volume["name"] for volume in spec["volumes"]}
    yield from _mounts("containers[0]", container, volumes)
    for number, before in enumerate(spec.get("initContainers", [])):
        yield from _mounts(f"initContainers[{number}]", before, volumes)
        if before["name"] == container["name"]:
            yield f"initContainers[{number}]: two containers are called {before['name']}"
    claims = {claim["name"] for claim in spec.get("resourceClaims", [])}
    for claim in container["resources"].get("claims", []):
        if claim["name"] not in claims:
            yield f"containers[0].resources.claims: there is no claim {claim['name']}"
    yield from _resources(container["resources"])
    for row in container["env"]:
        if is_secret(row["name"], row.get("value", "")) and "value" in row:
            yield f"containers[0].env: {row['name']} looks like a secret"
    identity = spec["securityContext"]
    if identity.get("runAsNonRoot") and identity["runAsUser"] == 0:
        yield "securityContext: runAsNonRoot for user 0"
    if (
        container["securityContext"].get("privileged")
        and "capabilities" in (container["securityContext"])
    ):
        yield "containers[0].securityContext: capabilities of a privileged container"
    if spec.get("hostNetwork") and spec.get("dnsPolicy") != "ClusterFirstWithHostNet":
        yield "dnsPolicy: with hostNetwork it has to be ClusterFirstWithHostNet"
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        yield "hostUsers: not with hostNetwork"
    for number, row in enumerate(spec.get("tolerations", [])):
        if row.get("operator") == "Exists" and row.get("value"):
            yield f"tolerations[{number}]: a value with Exists"


def _resources(resources: Manifest) -> Iterator[str]:
    requests, limits = resources["requests"], resources.get("limits", {})
    for name, value in requests.items():
        extended = "/" in name
        if extended and limits.get(name) != value:
            yield f"containers[0].resources: {name} needs a limit equal to its request"
        if extended and not value.isdecimal():
            yield f"containers[0].resources: {name} is not a whole number: {value}"
        if (
            not extended
            and name not in ("cpu", "memory", "ephemeral-storage")
            and (not name.startswith("hugepages-"))
        ):
            yield f"containers[0].resources: {name} is no resource"
    for name in limits:
        if name not in requests:
            yield f"containers[0].resources: a limit for {name} without a request"


def _job(manifest: Manifest) -> Iterator[str]:
    yield from _job_spec(manifest["spec"], manifest["metadata"]["name"], "spec")
    yield from _kueue(manifest)


def _job_spec(spec: Manifest, name: str, path: str) -> Iterator[str]:
    last = f"{name}-{spec['completions'] - 1}-abcde"
    if len(last) > LONGEST_NAME:
        yield f"{path}: the pod name {last} is longer than {LONGEST_NAME} characters"
    if spec["parallelism"] > spec["completions"]:
        yield f"{path}.parallelism: more than completions"
    if ("backoffLimit" in spec) == ("backoffLimitPerIndex" in spec):
        yield f"{path}: one of backoffLimit and backoffLimitPerIndex"
    if "backoffLimitPerIndex" in spec and "successPolicy" in spec:
        yield f"{path}: a success policy would end the array with its first element"
    for rule in spec.get("successPolicy", {}).get("rules", []):
        if int(rule["succeededIndexes"]) >= spec["completions"]:
            yield f"{path}.successPolicy: there is no index {rule['succeededIndexes']}"
    containers = {row["name"] for row in spec["template"]["spec"]["containers"]}
    for number, rule in enumerate(spec["podFailurePolicy"]["rules"]):
        where = f"{path}.podFailurePolicy.rules[{number}]"
        named = rule.get("onExitCodes", {}).get("containerName")
        if named is not None and named not in containers:
            yield f"{where}: there is no container {named}"
        if rule["action"] == "FailIndex" and "backoffLimitPerIndex" not in spec:
            yield f"{where}: FailIndex without backoffLimitPerIndex"
    yield from _topology(spec["template"], spec["completions"], f"{path}.template")


def _topology(template: Manifest, pods: int, path: str) -> Iterator[str]:
    annotations = template["metadata"].get("annotations", {})
    places = [name for name in _PLACES if _TOPOLOGY + name in annotations]
    if len(places) > 1:
        yield f"{path}.metadata.annotations: {' and '.join(places)} exclude each other"
    slices = [f"{_TOPOLOGY}slice-{name}" in annotations for name in ("required-topology", "size")]
    if slices[0] != slices[1]:
        yield f"{path}.metadata.annotations: slices need a topology and a size"
    size = annotations.get(f"{_TOPOLOGY}slice-size", "1")
    if not size.isdecimal() or not int(size) or pods % int(size):
        yield f"{path}.metadata.annotations: a slice of {size} does not divide {pods} pods"


def _kueue(manifest: Manifest) -> Iterator[str]:
    metadata = manifest["metadata"]
    if "kueue.x-k8s.io/queue-name" not in metadata["labels"]:
        return
    if not manifest["spec"].get("suspend"):
        yield "spec.suspend: has to be true for a job in a queue"
    minimum = metadata.get("annotations", {}).get("kueue.x-k8s.io/job-min-parallelism")
    if minimum is not None and (
        not minimum.isdecimal() or not 0 < int(minimum) <= manifest["spec"]["parallelism"]
    ):
        yield f"metadata.annotations: job-min-parallelism {minimum} is out of range"


def _jobset(manifest: Manifest) -> Iterator[str]:
    spec, name = manifest["spec"], manifest["metadata"]["name"]
    jobs = {job["name"]: job for job in spec["replicatedJobs"]}
    for job in spec["replicatedJobs"]:
        child = f"{name}-{job['name']}-{job['replicas'] - 1}"
        where = f"spec.replicatedJobs[{list(jobs).index(job['name'])}].template.spec"
        yield from _job_spec(job["template"]["spec"], child, where)
        if "backoffLimitPerIndex" in job["template"]["spec"]:
            yield f"{where}: arrays are no JobSets"
    for target in spec.get("successPolicy", {}).get("targetReplicatedJobs", []):
        if target not in jobs:
            yield f"spec.successPolicy: there is no replicated job {target}"
    coordinator = spec.get("coordinator")
    if coordinator:
        job = jobs.get(coordinator["replicatedJob"])
        if job is None:
            yield f"spec.coordinator: there is no replicated job {coordinator['replicatedJob']}"
        elif coordinator.get("jobIndex", 0) >= job["replicas"] or (
            coordinator.get("podIndex", 0) >= job["template"]["spec"]["completions"]
        ):
            yield "spec.coordinator: there is no such pod"
    reasons = [rule.get("onJobFailureReasons", []) for rule in spec["failurePolicy"]["rules"]]
    deadline = ["DeadlineExceeded" in row for row in reasons]
    restarts = [rule["action"] != "FailJobSet" for rule in spec["failurePolicy"]["rules"]]
    if True not in deadline or True in restarts[: deadline.index(True) + 1]:
        yield "spec.failurePolicy.rules: a time-out has to end the set before any restart"
    yield from _kueue(manifest)


def _volcano(manifest: Manifest) -> Iterator[str]:
    spec = manifest["spec"]
    if spec["minAvailable"] > sum(task["replicas"] for task in spec["tasks"]):
        yield "spec.minAvailable: more than there are replicas"
    for number, task in enumerate(spec["tasks"]):
        where = f"spec.tasks[{number}]"
        last = f"{manifest['metadata']['name']}-{task['name']}-{task['replicas'] - 1}"
        if len(last) > LONGEST_NAME:
            yield f"{where}: the pod name {last} is longer than {LONGEST_NAME} characters"
        if task["minAvailable"] > task["replicas"]:
            yield f"{where}.minAvailable: more than replicas"
        yield from _partition_policy(task, where)
    yield from _tier(spec.get("networkTopology"), "spec.networkTopology")
    yield from _policies(spec["policies"])
    if "svc" not in spec["plugins"]:
        yield "spec.plugins: without svc the pods have no names"


def _partition_policy(task: Manifest, where: str) -> Iterator[str]:
    policy = task.get("partitionPolicy")
    if policy is None:
        return
    where = f"{where}.partitionPolicy"
    if policy["totalPartitions"] * policy["partitionSize"] != task["replicas"]:
        yield f"{where}: totalPartitions times partitionSize is not replicas"
    least = policy.get("minPartitions", 0)
    if least > policy["totalPartitions"]:
        yield f"{where}.minPartitions: more than totalPartitions"
    if least and least * policy["partitionSize"] != task["minAvailable"]:
        yield f"{where}: minPartitions times partitionSize is not minAvailable"
    yield from _tier(policy.get("networkTopology"), f"{where}.networkTopology")


def _tier(topology: Manifest | None, where: str) -> Iterator[str]:
    if topology and (topology["mode"] == "hard") != ("highestTierAllowed" in topology):
        yield f"{where}: highestTierAllowed belongs to the mode hard"


def _policies(policies: list[Any]) -> Iterator[str]:
    events: set[str] = set()
    codes: set[int] = set()
    for number, policy in enumerate(policies):
        where = f"spec.policies[{number}]"
        if "event" in policy:
            if policy["event"] in events:
                yield f"{where}: a second policy for {policy['event']}"
            events.add(policy["event"])
            continue
        if policy["exitCode"] == 0:
            yield f"{where}: exit status 0 is no failure"
        if policy["exitCode"] in codes:
            yield f"{where}: a second policy for exit status {policy['exitCode']}"
        if "PodFailed" in events:
            yield f"{where}: never reached behind PodFailed"
        codes.add(policy["exitCode"])


def _claim_template(manifest: Manifest) -> Iterator[str]:
    devices = manifest["spec"]["spec"]["devices"]
    names = {request["name"] for request in devices["requests"]}
    for number, constraint in enumerate(devices.get("constraints", [])):
        for name in constraint["requests"]:
            if name not in names:
                yield f"spec.spec.devices.constraints[{number}]: there is no request {name}"


def _references(manifests: Sequence[Manifest]) -> Iterator[str]:
    """What pods mount and claim has to be among the objects, or be the site's."""
    made: dict[str, set[str]] = {}
    for manifest in manifests:
        made.setdefault(manifest["kind"], set()).add(manifest["metadata"]["name"])
        if manifest["kind"] == "ComputeDomain":
            template = manifest["spec"]["channel"]["resourceClaimTemplate"]["name"]
            made.setdefault("ResourceClaimTemplate", set()).add(template)
    namespaces = {manifest["metadata"]["namespace"] for manifest in manifests}
    if len(namespaces) > 1:
        yield f"objects in several namespaces: {', '.join(sorted(namespaces))}"
    for manifest in manifests:
        for path, template in pod_templates(manifest):
            spec = template["spec"]
            for claim in spec.get("resourceClaims", []):
                name = claim["resourceClaimTemplateName"]
                if name not in made.get("ResourceClaimTemplate", set()):
                    yield f"{_title(manifest)}: {path}: there is no claim template {name}"
            for volume in spec["volumes"]:
                name = volume.get("secret", {}).get("secretName")
                if name is not None and name not in made.get("Secret", set()):
                    yield f"{_title(manifest)}: {path}: there is no secret {name}"


_RULES = {
    ("batch/v1", "Job"): _job,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): _jobset,
    ("batch.volcano.sh/v1alpha1", "Job"): _volcano,
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): _claim_template,
}
