"""Looking jobs up: their objects, and everything that tells how they are.

A kind that is not installed has no objects. One request for each kind and namespace, however many
jobs there are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from enroot_py import NotFoundError
from pyxis_py.kubernetes.access.client import ClusterClient
from pyxis_py.kubernetes.access.failures import ClusterError, ForbiddenError, MissingKindError
from pyxis_py.kubernetes.access.resources import (
    CONFIG_MAP,
    JOB,
    JOBS,
    JOBSET,
    POD,
    WORKLOADS,
    Object,
    Resource,
)
from pyxis_py.kubernetes.cluster.jobs import (
    OURS,
    Job,
    JobReference,
    read_job_object,
    sort_jobs,
)
from pyxis_py.kubernetes.cluster.states import Evidence, JobState, judge

_SET_NAME = "jobset.sigs.k8s.io/jobset-name"
_WORKLOAD_OWNER = "kueue.x-k8s.io/job-uid"
_MOST_IN_SELECTOR = 100
"""Values of one selector: the whole URL has to stay below the usual 8 KiB."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job and its state."""

    job: Job
    state: JobState


def find_jobs(
    client: ClusterClient, namespaces: Sequence[str], *, reference: JobReference | None = None,
    user: str = "",
) -> list[Job]:  # fmt: skip
    """Return the jobs that a reference means, or all; of one user, or of everybody ("").

    Raises:
        ForbiddenError: if no kind of job may be listed.
    """
    selector = reference.selector if reference else OURS
    found: list[Job] = []
    refused: list[ForbiddenError] = []
    answers = 0
    for namespace in namespaces:
        for resource in JOBS:
            try:
                objects = _installed(client, (resource,), namespace, selector)
            except ForbiddenError as error:
                refused.append(error)
                continue
            answers += 1
            jobs = (read_job_object(made) for made in objects)
            found += [job for job in jobs if job is not None]
    if refused and not answers:
        raise refused[0]
    return sort_jobs(
        job for job in found
        if (reference is None or reference.means(job)) and user in ("", job.user)
    )  # fmt: skip


def require_jobs(
    client: ClusterClient, namespaces: Sequence[str], reference: JobReference
) -> list[Job]:
    """Return the jobs that a reference means.

    Raises:
        NotFoundError: if there is none.
    """
    jobs = find_jobs(client, namespaces, reference=reference)
    if not jobs:
        place = ", ".join(namespaces) if all(namespaces) else "any namespace"
        raise NotFoundError(
            f"There is no job {reference.text} in {place}",
            hint="jobs that ended long ago are removed; --namespace or -A look elsewhere",
        )
    return jobs


def read_states(client: ClusterClient, jobs: Sequence[Job]) -> list[JobRecord]:
    """Return jobs with their states."""
    records: list[JobRecord] = []
    for namespace in dict.fromkeys(job.namespace for job in jobs):
        records += _read_namespace(
            client, namespace, [job for job in jobs if job.namespace == namespace]
        )
    order = {job.uid: number for number, job in enumerate(jobs)}
    return sorted(records, key=lambda record: order[record.job.uid])


def _read_namespace(client: ClusterClient, namespace: str, jobs: list[Job]) -> list[JobRecord]:
    sets = [job.name for job in jobs if job.resource is JOBSET]
    queued = [job.uid for job in jobs if job.in_kueue]
    children = _by_label(client, (JOB,), namespace, _SET_NAME, sets)
    workloads = _by_label(client, WORKLOADS, namespace, _WORKLOAD_OWNER, queued)
    numbers = sorted({str(job.job_id) for job in jobs})
    pods = _by_label(client, (POD,), namespace, "pyxis/job-id", numbers)
    return [
        JobRecord(job, judge(Evidence(
            job,
            children=children.get(job.name, ()),
            workload=next(iter(workloads.get(job.uid, ())), None),
            pods=[pod for pod in pods.get(str(job.job_id), ()) if is_pod_of(job, pod)],
        )))
        for job in jobs
    ]  # fmt: skip


def is_pod_of(job: Job, pod: Object) -> bool:
    """Whether a pod belongs to a job, and not to another element of its array."""
    labels = pod["metadata"].get("labels") or {}
    return labels.get("pyxis/element") == job.name


def pods_of(client: ClusterClient, job: Job) -> list[Object]:
    """Return a job's pods, of earlier runs too."""
    found = _installed(client, (POD,), job.namespace, f"pyxis/job-id={job.job_id}")
    return [pod for pod in found if is_pod_of(job, pod)]


def array_indices(client: ClusterClient, job: Job) -> list[int]:
    """Return the task numbers of an array of pods, in the order of its pods."""
    made = client.get(CONFIG_MAP, job.namespace, job.name)
    try:
        return [int(number) for number in json.loads(made["data"]["job.json"])["arrayIndices"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ClusterError(f"The ConfigMap of job {job.job_id} has no array in it") from error


def workload_of(client: ClusterClient, job: Job) -> Object | None:
    """Return Kueue's Workload for a job, None if there is none yet."""
    selector = f"{_WORKLOAD_OWNER}={job.uid}"
    return next(iter(_installed(client, WORKLOADS, job.namespace, selector)), None)


def _installed(
    client: ClusterClient, versions: Sequence[Resource], namespace: str, selector: str
) -> list[Object]:
    """Objects of the first version that is installed, none if no version is."""
    for resource in versions:
        try:
            return client.list(resource, namespace, selector)
        except MissingKindError:
            continue
    return []


def _by_label(
    client: ClusterClient, versions: Sequence[Resource], namespace: str, label: str,
    values: Sequence[str],
) -> dict[str, list[Object]]:  # fmt: skip
    """Objects by the value of a label. What may not be seen tells nothing."""
    found: dict[str, list[Object]] = {}
    for start in range(0, len(values), _MOST_IN_SELECTOR):
        part = values[start : start + _MOST_IN_SELECTOR]
        try:
            objects = _installed(client, versions, namespace, f"{label} in ({','.join(part)})")
        except ForbiddenError:
            # Users need not see Workloads or pods: the job's own conditions have to do.
            return {}
        for made in objects:
            found.setdefault(made["metadata"]["labels"][label], []).append(made)
    return found


def wait_for(
    client: ClusterClient, jobs: Sequence[Job], *, sleep: Callable[[float], None],
    seen: Callable[[Iterable[JobRecord]], None] = lambda records: None,
) -> list[JobRecord]:  # fmt: skip
    """Wait until jobs are over, asking at growing intervals of 1 to 15 s.

    Raises:
        NotFoundError: if one is deleted meanwhile.
    """
    pause = 1.0
    while True:
        fresh = []
        for job in jobs:
            read = read_job_object(client.get(job.resource, job.namespace, job.name))
            if read is None or read.uid != job.uid:
                raise NotFoundError(f"Job {job.title} was replaced by another one of its name")
            fresh.append(read)
        records = read_states(client, fresh)
        seen(records)
        if all(record.state.finished for record in records):
            return records
        sleep(pause)
        pause = min(pause * 1.5, 15.0)
