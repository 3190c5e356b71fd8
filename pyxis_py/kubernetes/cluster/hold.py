"""Holding jobs that have not started, and letting them go.

Under Kueue a hold at submission is an admission gate, which can only be taken away; later the
Workload is deactivated. Volcano aborts and resumes jobs on a Command of its bus. A Job that nobody
queues, as under slurm-bridge, is suspended.

Source: Kueue v0.19 KEP-6915 and workload_types.go; Volcano v1.15 bus/v1alpha1 and vcctl's suspend;
kubernetes.io, "Suspending a Job".
"""

from __future__ import annotations

from collections.abc import Callable

from enroot_py import UnsupportedError
from pyxis_py.kubernetes.access.client import ClusterClient
from pyxis_py.kubernetes.access.failures import ConflictError
from pyxis_py.kubernetes.access.resources import VOLCANO_JOB, WORKLOADS, Object
from pyxis_py.kubernetes.cluster.jobs import Job, read_job_object
from pyxis_py.kubernetes.cluster.listing import read_states, workload_of
from pyxis_py.kubernetes.render.queueing import GATES, HELD, HOLD_GATE

_ATTEMPTS = 5


def hold(client: ClusterClient, job: Job) -> bool:
    """Keep a job from starting; return False if it is held already.

    Raises:
        UnsupportedError: if it runs or is over: holding would throw its work away.
    """
    (record,) = read_states(client, [job])
    if job.held or HOLD_GATE in job.gates:
        return False
    if record.state.state != "PD":
        raise UnsupportedError(
            f"Job {job.title} is not pending ({record.state.state}): only what waits can be held",
            hint="pyxis kube cancel ends it",
        )
    if job.in_kueue:
        _set_active(client, job, active=False)
    elif job.resource is VOLCANO_JOB:
        send_command(client, job, "AbortJob")
    else:
        client.patch(job.resource, job.namespace, job.name, {"spec": {"suspend": True}})
    _annotate(client, job, HELD, "user")
    return True


def release(client: ClusterClient, job: Job) -> bool:
    """Let a job go that its user holds; return False if nobody holds it.

    Gates of dependencies stay: they are not the user's to lift here.
    """
    released = False
    if HOLD_GATE in job.gates:
        remove_gates(client, job, lambda gate: gate == HOLD_GATE)
        released = True
    if not job.held:
        return released
    if job.in_kueue:
        _set_active(client, job, active=True)
    elif job.resource is VOLCANO_JOB:
        send_command(client, job, "ResumeJob")
    else:
        client.patch(job.resource, job.namespace, job.name, {"spec": {"suspend": False}})
    _annotate(client, job, HELD, None)
    return True


def remove_gates(client: ClusterClient, job: Job, chosen: Callable[[str], bool]) -> None:
    """Take admission gates away, those that somebody else keeps apart."""
    made: Object = job.made
    for attempt in range(_ATTEMPTS):
        current = read_job_object(made)
        if current is None:
            return
        left = [gate for gate in current.gates if not chosen(gate)]
        metadata = {
            "resourceVersion": made["metadata"].get("resourceVersion"),
            "annotations": {GATES: ",".join(left) or None},
        }
        try:
            client.patch(job.resource, job.namespace, job.name, {"metadata": metadata})
        except ConflictError:
            if attempt == _ATTEMPTS - 1:
                raise
            made = client.get(job.resource, job.namespace, job.name)
        else:
            return


def _set_active(client: ClusterClient, job: Job, *, active: bool) -> None:
    workload = workload_of(client, job)
    if workload is None:
        raise UnsupportedError(
            f"Kueue has not taken notice of job {job.title} yet", hint="try again in a moment"
        )
    resource = next(row for row in WORKLOADS if row.api_version == workload["apiVersion"])
    name = workload["metadata"]["name"]
    client.patch(resource, job.namespace, name, {"spec": {"active": active}})


def _annotate(client: ClusterClient, job: Job, name: str, value: str | None) -> None:
    patch = {"metadata": {"annotations": {name: value}}}
    client.patch(job.resource, job.namespace, job.name, patch)


def send_command(client: ClusterClient, job: Job, action: str) -> None:
    """Tell Volcano's controller what to do with a job."""
    owner = {
        "apiVersion": job.made["apiVersion"],
        "kind": job.made["kind"],
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    client.create({
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {
            "generateName": f"{job.name}-{action.lower()}-",
            "namespace": job.namespace,
            "ownerReferences": [owner],
        },
        "action": action,
        "target": owner,
    })  # fmt: skip
