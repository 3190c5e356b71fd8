"""Which pods a job becomes, as the controllers of JobSet, Job and Volcano make them.

Pure, but for the random part of names. Source: Kubernetes job controller (Indexed Jobs), JobSet
v0.12 pkg/controllers, Volcano v1.15 pkg/controllers/job and its plugins env and svc.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.kubernetes.emulator.objects import EmulatorError, Manifest, Objects, Pod, new_suffix

INDEX = "batch.kubernetes.io/job-completion-index"
KINDS = ("JobSet", "Job")
BRIDGE = "slurm-bridge-scheduler"
BRIDGE_JOB_ID = "8191"
"""What that scheduler writes on pods before it binds them: the id of the job in Slurm."""
_LONGEST_NAME = 63


@dataclass(frozen=True, slots=True)
class Workload:
    """A job as its controllers see it.

    Attributes:
        manifest: the object that was applied.
        job: the spec of the Indexed Job, or the Volcano Job's own.
        volcano: whether it is a Volcano Job.
    """

    manifest: Manifest
    job: Manifest
    volcano: bool

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.manifest["metadata"]["name"])

    @property
    def jobset(self) -> bool:
        """Whether the Indexed Job is in a JobSet."""
        return self.manifest["kind"] == "JobSet"


def read_workload(manifest: Manifest) -> Workload:
    """Take a job's manifest apart.

    Raises:
        EmulatorError: if it has a form that is not emulated, or never runs.
    """
    annotations = manifest["metadata"].get("annotations", {})
    if "kueue.x-k8s.io/admission-gated-by" in annotations:
        raise EmulatorError("the job is held: its admission is gated")
    if manifest["apiVersion"].startswith("batch.volcano.sh/"):
        return Workload(manifest, _single(manifest["spec"]["tasks"], "tasks"), True)
    queue = manifest["metadata"].get("labels", {}).get("kueue.x-k8s.io/queue-name")
    if manifest["spec"].get("suspend") and not queue:
        raise EmulatorError("the job is suspended, and no queue would admit it")
    if manifest["kind"] == "JobSet":
        row = _single(manifest["spec"]["replicatedJobs"], "replicated jobs")
        if row.get("replicas", 1) != 1:
            raise EmulatorError("a replicated job with several replicas is not emulated")
        return Workload(manifest, _indexed(row["template"]["spec"]), False)
    return Workload(manifest, _indexed(manifest["spec"]), False)


def _single(rows: list[Manifest], what: str) -> Manifest:
    if len(rows) != 1:
        raise EmulatorError(f"{len(rows)} {what}: one is emulated")
    return rows[0]


def _indexed(spec: Manifest) -> Manifest:
    if spec.get("completionMode") != "Indexed":
        raise EmulatorError("the job has no completion indexes")
    if spec["completions"] != spec["parallelism"] and "backoffLimitPerIndex" not in spec:
        raise EmulatorError("a job whose pods do not all run at once is not emulated")
    return spec


def create_pods(workload: Workload, objects: Objects, attempt: int) -> list[Pod]:
    """Return the pods of one run of a job."""
    count = workload.job["replicas" if workload.volcano else "parallelism"]
    return [create_pod(workload, objects, attempt, index) for index in range(count)]


def create_pod(workload: Workload, objects: Objects, attempt: int, index: int) -> Pod:
    """Return one pod of a job, such as the replacement of a lost one."""
    if workload.volcano:
        pod = _volcano_pod(workload, attempt, index)
    else:
        pod = _indexed_pod(workload, attempt, index)
    if len(pod.hostname) > _LONGEST_NAME or len(pod.name) > _LONGEST_NAME:
        raise EmulatorError(f"the pod's name is too long: {pod.name}")
    return pod


def _indexed_pod(workload: Workload, attempt: int, index: int) -> Pod:
    manifest, template = workload.manifest, workload.job["template"]
    job_name = workload.name
    labels: dict[str, str] = {}
    subdomain = template["spec"].get("subdomain", "")
    if workload.jobset:
        replicated = manifest["spec"]["replicatedJobs"][0]["name"]
        job_name = f"{workload.name}-{replicated}-0"
        labels = {
            "jobset.sigs.k8s.io/jobset-name": workload.name,
            "jobset.sigs.k8s.io/replicatedjob-name": replicated,
            "jobset.sigs.k8s.io/job-index": "0",
            "jobset.sigs.k8s.io/restart-attempt": str(attempt),
        }
        network = manifest["spec"].get("network", {})
        if network.get("enableDNSHostnames", True):
            subdomain = network.get("subdomain") or workload.name
    if template["spec"].get("schedulerName") == BRIDGE:
        labels["scheduler.slinky.slurm.net/slurm-jobid"] = BRIDGE_JOB_ID
    own = {
        INDEX: str(index), "job-name": job_name, "batch.kubernetes.io/job-name": job_name,
    }  # fmt: skip
    metadata: Mapping[str, Any] = template.get("metadata", {})
    name = f"{job_name}-{index}-{new_suffix()}"
    return Pod(
        name=name, uid=f"uid-{name}", namespace=_namespace(manifest),
        labels={**metadata.get("labels", {}), **labels, **own},
        annotations={**metadata.get("annotations", {}), **labels, INDEX: str(index)},
        hostname=f"{job_name}-{index}", subdomain=subdomain, index=index, attempt=attempt,
        spec=template["spec"], environ={"JOB_COMPLETION_INDEX": str(index)},
    )  # fmt: skip


def _volcano_pod(workload: Workload, attempt: int, index: int) -> Pod:
    manifest, task = workload.manifest, workload.job
    template, task_name = task["template"], task["name"]
    plugins = manifest["spec"].get("plugins", {})
    name = f"{workload.name}-{task_name}-{index}"
    annotations = {
        "volcano.sh/job-name": workload.name, "volcano.sh/task-spec": task_name,
        "volcano.sh/task-index": str(index), "volcano.sh/job-retry-count": str(attempt),
    }  # fmt: skip
    labels = {key: annotations[key] for key in annotations if key != "volcano.sh/job-retry-count"}
    environ: dict[str, str] = {}
    files: dict[str, str] = {}
    if "env" in plugins:
        environ = {"VK_TASK_INDEX": str(index), "VC_TASK_INDEX": str(index)}
    if "svc" in plugins:
        hosts = [
            f"{workload.name}-{task_name}-{i}.{workload.name}" for i in range(task["replicas"])
        ]
        word = task_name.upper().replace("-", "_")
        environ.update({f"VC_{word}_HOSTS": ",".join(hosts), f"VC_{word}_NUM": str(len(hosts))})
        files = {f"/etc/volcano/{task_name}.host": "\n".join(hosts)}
    metadata = template.get("metadata", {})
    return Pod(
        name=name, uid=f"uid-{name}-{new_suffix()}", namespace=_namespace(manifest),
        labels={**metadata.get("labels", {}), **labels},
        annotations={**metadata.get("annotations", {}), **annotations},
        hostname=name if "svc" in plugins else template["spec"].get("hostname", name),
        subdomain=workload.name if "svc" in plugins else "",
        index=index, attempt=attempt, spec=template["spec"], environ=environ, files=files,
    )  # fmt: skip


def _namespace(manifest: Manifest) -> str:
    return str(manifest["metadata"].get("namespace", "default"))


def names_at_once(workload: Workload, objects: Objects, pod: Pod) -> bool | None:
    """Whether a pod's name resolves before it is ready; None if it never does.

    JobSet and Volcano's plugin svc make the headless Service themselves.
    """
    if workload.jobset:
        return bool(workload.manifest["spec"]["network"].get("publishNotReadyAddresses", True))
    if workload.volcano:
        words = workload.manifest["spec"].get("plugins", {}).get("svc")
        if words is None:
            return None
        return "--publish-not-ready-addresses=true" in words
    service = objects.headless_service(pod.subdomain, pod.labels)
    if service is None:
        return None
    return bool(service["spec"].get("publishNotReadyAddresses", False))
