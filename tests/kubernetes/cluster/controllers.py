"""What Kueue, JobSet, Volcano, the Job controller and kubelets do to objects, one step at a time.

Whatever is written is held against the schemas of the objects' statuses.
"""

from __future__ import annotations

import copy
from typing import Any

from pyxis_py.kubernetes.cluster.jobs import Job, read_job_object
from pyxis_py.kubernetes.render.validate import pod_templates
from tests.kubernetes.cluster.api_server import ApiServer
from tests.kubernetes.cluster.kinds import KINDS, Kind, faults
from tests.kubernetes.cluster.objects import Key, Object

BEGIN, END = "2026-08-23T10:00:00Z", "2026-08-23T11:30:05Z"


def kind_of(made: Object) -> Kind:
    """The row of discovery for an object."""
    return next(
        row for row in KINDS
        if (row.group_version, row.kind) == (made["apiVersion"], made["kind"])
    )  # fmt: skip


def key_of(made: Object) -> Key:
    """The key of an object."""
    kind, metadata = kind_of(made), made["metadata"]
    return Key(kind.group_version, kind.plural, metadata["namespace"], metadata["name"])


def jobs_of(server: ApiServer) -> list[Job]:
    """All jobs, as they are now."""
    made = [found for plural in ("jobsets", "jobs") for found in server.all(plural)]
    return [job for found in made if (job := read_job_object(copy.deepcopy(found))) is not None]


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> Object:
    """A condition, as every kind but Volcano's has them."""
    return {"type": kind, "status": status, "reason": reason or kind, "message": message,
            "lastTransitionTime": END}  # fmt: skip


def add(server: ApiServer, made: Object) -> Object:
    """Create an object with its status."""
    status = made.pop("status", None)
    kind = kind_of(made)
    created = server.objects.create(kind, made["metadata"]["namespace"], made, dry_run=False)
    if status is not None:
        set_status(server, created, status)
    return created


def set_status(server: ApiServer, made: Object, status: Object) -> None:
    """Replace an object's status."""
    key = key_of(made)
    server.objects.store(key, status=status)
    assert faults(server.objects.get(key), server.kubernetes) == []


def queue(server: ApiServer, job: Job, *conditions: Object, active: bool = True) -> Object:
    """Kueue makes a Workload for a job."""
    name = f"{job.resource.kind.lower()}-{job.name}"
    return add(server, {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": name[:60], "namespace": job.namespace,
            "labels": {"kueue.x-k8s.io/job-uid": job.uid},
            "ownerReferences": [owner(job.made)],
        },
        "spec": {"active": active, "queueName": "h100",
                 "podSets": [{"name": "n", "count": job.nodes, "template": {}}]},
        "status": {"conditions": list(conditions)},
    })  # fmt: skip


ADMITTED = (condition("QuotaReserved"), condition("Admitted"))


def owner(made: Object) -> Object:
    """An owner reference to an object."""
    return {"apiVersion": made["apiVersion"], "kind": made["kind"],
            "name": made["metadata"]["name"], "uid": made["metadata"]["uid"]}  # fmt: skip


def child(server: ApiServer, job: Job, status: Object) -> Object:
    """JobSet makes the Job of a set."""
    row = job.made["spec"]["replicatedJobs"][0]
    return add(server, {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{job.name}-{row['name']}-0", "namespace": job.namespace,
            "labels": {"jobset.sigs.k8s.io/jobset-name": job.name},
            "ownerReferences": [owner(job.made)],
        },
        "spec": copy.deepcopy(row["template"]["spec"]),
        "status": status,
    })  # fmt: skip


def pod(
    server: ApiServer, job: Job, index: int, phase: str = "Running", *, node: str = "",
    state: Object | None = None, conditions: tuple[Object, ...] = (), serial: str = "aaaaa",
    **status: Any,
) -> Object:  # fmt: skip
    """A controller makes a pod, and its kubelet tells how it is."""
    template = copy.deepcopy(pod_templates(job.made)[0][1])
    metadata = template["metadata"]
    number = str(index)
    metadata.setdefault("labels", {})["batch.kubernetes.io/job-completion-index"] = number
    if job.resource.group == "batch.volcano.sh":
        del metadata["labels"]["batch.kubernetes.io/job-completion-index"]
        metadata.setdefault("annotations", {})["volcano.sh/task-index"] = number
    metadata.update(name=f"{job.name}-{index}-{serial}", namespace=job.namespace)
    metadata["ownerReferences"] = [owner(job.made)]
    spec = template["spec"]
    if node:
        spec["nodeName"] = node
    row = {"name": "main", "image": "x", "imageID": "", "ready": phase == "Running",
           "restartCount": 0, "state": state or {"running": {"startedAt": BEGIN}}}  # fmt: skip
    made = {"phase": phase, "conditions": list(conditions), **status}
    if phase != "Pending":
        made["startTime"] = BEGIN
    if phase != "Pending" or state:
        made["containerStatuses"] = [row]
    return add(server, {
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": made,
    })  # fmt: skip


def ended(code: int, reason: str = "Completed") -> Object:
    """The state of a container that ended."""
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": BEGIN,
                           "finishedAt": END}}  # fmt: skip


JOBSET_ROW = {"name": "n", "active": 0, "failed": 0, "ready": 0, "succeeded": 0, "suspended": 0}


def finish(server: ApiServer, job: Job, code: int = 0, *, reason: str = "") -> None:
    """The batch script ends, and the controllers draw their conclusions."""
    good = code == 0
    phase = "Succeeded" if good else "Failed"
    text = "Completed" if good else "Error"
    pod(server, job, 0, phase, state=ended(code, text), serial="zzzzz")
    if job.resource.group == "batch.volcano.sh":
        state = {"phase": "Completed" if good else "Terminated", "lastTransitionTime": END,
                 "reason": reason, "message": ""}  # fmt: skip
        set_status(server, job.made, {"state": state, "minAvailable": job.nodes})
    elif job.resource.group == "jobset.x-k8s.io":
        found = condition("Completed" if good else "Failed", reason=reason or "JobsDone")
        set_status(server, job.made, {
            "conditions": [found], "terminalState": found["type"],
            "replicatedJobsStatus": [JOBSET_ROW],
        })  # fmt: skip
    else:
        found = condition("Complete" if good else "Failed", reason=reason or "JobsDone")
        set_status(server, job.made, {"conditions": [found], "startTime": BEGIN,
                                      "completionTime": END})  # fmt: skip
