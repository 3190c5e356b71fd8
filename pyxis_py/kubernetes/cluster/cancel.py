"""Ending jobs: the job first, and its compute domain when the last pod is gone.

Source: scancel(1); kubernetes.io, "Foreground cascading deletion"; docs/adr/0067.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from enroot_py import EnrootError, NotFoundError, UnsupportedError
from pyxis_py.kubernetes.access.client import ClusterClient
from pyxis_py.kubernetes.access.failures import ClusterError, MissingKindError
from pyxis_py.kubernetes.access.resources import (
    CLAIM_TEMPLATE,
    COMPUTE_DOMAIN,
    CONFIG_MAP,
    POD_GROUP,
    SECRET,
    SERVICE,
    Object,
    Resource,
)
from pyxis_py.kubernetes.cluster.jobs import OURS, Job, JobReference
from pyxis_py.kubernetes.cluster.listing import pods_of
from pyxis_py.kubernetes.cluster.states import pod_index, pod_phase

GRACE_SLACK = 60
"""Seconds beyond the pods' grace period until waiting for them is given up."""


def cancel(
    client: ClusterClient, job: Job, *, sleep: Callable[[float], None], wait: bool = False
) -> None:
    """Delete a job and all that belongs to it, finished or not.

    Args:
        wait: return only when its pods are gone; with a compute domain that is always so.

    Raises:
        ClusterError: if its pods do not go.
    """
    try:
        client.delete(job.made, foreground=True)
    except NotFoundError:
        return
    if wait or job.compute_domain:
        _wait_until_gone(client, job, sleep)
    if job.compute_domain:
        _delete_if_there(client, COMPUTE_DOMAIN, job.namespace, job.name)


def _wait_until_gone(client: ClusterClient, job: Job, sleep: Callable[[float], None]) -> None:
    template = job.template
    patience = template["spec"].get("terminationGracePeriodSeconds", 30) + GRACE_SLACK
    waited = 0.0
    while True:
        try:
            found = client.get(job.resource, job.namespace, job.name)
        except NotFoundError:
            return
        if found["metadata"]["uid"] != job.uid:
            return
        if waited >= patience:
            domain = f" and the ComputeDomain {job.name}" if job.compute_domain else ""
            raise ClusterError(
                f"Pods of job {job.title} are still there after {patience} s; the job{domain} "
                "will have to be looked after",
                hint="cancel it once more when the nodes answer again",
            )
        sleep(1.0)
        waited += 1.0


def cancel_element(client: ClusterClient, job: Job, indices: Sequence[int], task: int) -> None:
    """End one element of an array of pods: its pod, whose loss fails the element alone.

    Args:
        indices: the array's task numbers, in the order of the pods.

    Raises:
        NotFoundError: if the array has no such element.
        UnsupportedError: if it has not started, since nothing can be taken out of an array.
    """
    if task not in indices:
        raise NotFoundError(f"Array {job.job_id} has no element {task}")
    number = indices.index(task)
    pods = [pod for pod in pods_of(client, job) if pod_index(pod) == number]
    alive = [pod for pod in pods if pod_phase(pod) in ("Pending", "Running")]
    if not alive:
        raise UnsupportedError(
            f"Element {task} of job {job.job_id} does not run: an array of pods keeps its elements",
            hint=f"pyxis kube cancel {job.job_id} ends the whole array",
        )
    for pod in alive:
        client.delete_pod(pod)


def sweep(client: ClusterClient, namespaces: Sequence[str], reference: JobReference) -> list[str]:
    """Delete what a job left that is gone itself; return the titles.

    That is its ComputeDomain, when the job was removed for its age, and ConfigMap and Secret if
    they never got an owner. Nothing is swept across all namespaces.
    """
    if reference.job_id is None or reference.task is not None:
        return []
    gone = []
    selector = f"{OURS},pyxis/job-id={reference.job_id}"
    for namespace in filter(None, namespaces):
        for resource in (COMPUTE_DOMAIN, CONFIG_MAP, SECRET):
            try:
                objects = client.list(resource, namespace, selector)
            except EnrootError:
                # Not installed, or not to be seen: nothing of it can have been left by the user.
                continue
            for made in objects:
                if not made["metadata"].get("ownerReferences"):
                    client.delete(made)
                    gone.append(f"{resource.kind} {namespace}/{made['metadata']['name']}")
    return gone


def remove_unowned(client: ClusterClient, job: Job) -> None:
    """Delete what belongs to a job and to no owner, when all of the job is cancelled.

    `kubectl create` makes no owners of what `pyxis kube render` printed. What the user may not see
    or delete stays.
    """
    selector = f"{OURS},pyxis/job-id={job.job_id}"

    def remove(resource: Resource) -> bool:
        try:
            left = [made for made in client.list(resource, job.namespace, selector)
                    if not made["metadata"].get("ownerReferences")]  # fmt: skip
            for made in left:
                client.delete(made)
        except EnrootError:
            return False
        return bool(left)

    # Every job has these two: if both have owners, so has the rest.
    if any([remove(CONFIG_MAP), remove(SECRET)]):
        for resource in (SERVICE, CLAIM_TEMPLATE, POD_GROUP):
            remove(resource)


def _delete_if_there(client: ClusterClient, resource: Resource, namespace: str, name: str) -> None:
    try:
        made: Object = client.get(resource, namespace, name)
        client.delete(made)
    except (NotFoundError, MissingKindError):
        pass
