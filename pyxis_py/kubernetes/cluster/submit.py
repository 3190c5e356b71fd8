"""Creating a job: what it mounts first, then the job, then owners, so that one deletion is enough.

Whatever was created goes away again if the rest cannot be. ComputeDomains get no owner: deleted
while pods still drain, they break programs that use them (CUDA error 719); cancel.py deletes them
when the pods are gone.

Source: kubernetes.io, "Garbage Collection"; docs/adr/0067.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from enroot_py import EnrootError, NotFoundError
from pyxis_py.kubernetes.access.client import ClusterClient
from pyxis_py.kubernetes.access.failures import (
    ClusterError,
    ForbiddenError,
    MissingKindError,
    UnreachableError,
)
from pyxis_py.kubernetes.access.resources import (
    COMPUTE_DOMAIN,
    CONFIG_MAP,
    JOBS,
    LOCAL_QUEUES,
    VOLCANO_JOB,
    Object,
    resource_of,
)
from pyxis_py.kubernetes.cluster.hold import send_command
from pyxis_py.kubernetes.cluster.jobs import Job, read_job_object

_ANSWERS = (0.2, 0.5, 1.0)
"""Seconds to wait, and wait again, for what the server makes of an interrupted request."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What was created: the jobs, and what somebody should know about it."""

    jobs: tuple[Job, ...]
    warnings: tuple[str, ...]


def submit(
    client: ClusterClient,
    manifests: Sequence[Object],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Submission:
    """Create a job's objects in their order.

    Args:
        sleep: waits; for tests.

    Raises:
        ExistsError: if a name is taken; nothing is left behind then.
        ClusterError: if the cluster refuses; nothing is left behind unless the message says so.
    """
    created: list[Object] = []
    failed: EnrootError | None = None
    try:
        _create_all(client, manifests, created)
    except EnrootError as error:
        left = roll_back(client, created)
        failed = _without_secrets(error, manifests, left)
    except BaseException:
        # Ctrl-C as well: a job that nobody knows the number of must not stay. What is known goes
        # first: a second Ctrl-C may come while the server is waited for.
        roll_back(client, created)
        roll_back(client, _in_flight(client, manifests[len(created) :], created, sleep))
        raise
    if failed is not None:
        # Out here it does not drag along the error that it stands for.
        raise failed
    warnings = _own(client, created)
    jobs = (read_job_object(made) for made in created if resource_of(made) in JOBS)
    return Submission(tuple(job for job in jobs if job is not None), tuple(warnings))


def _create_all(client: ClusterClient, manifests: Sequence[Object], created: list[Object]) -> None:
    for manifest in manifests:
        try:
            made = client.create(manifest)
        except UnreachableError as error:
            text = f"{error}\nWhether {_title(manifest)} was created is not known."
            raise UnreachableError(text, hint=error.hint) from error
        created.append({**manifest, "metadata": made["metadata"]})
        _hold(client, created[-1])


def _in_flight(
    client: ClusterClient,
    missing: Sequence[Object],
    created: Sequence[Object],
    sleep: Callable[[float], None],
) -> list[Object]:
    """Return the object whose creation was interrupted, if the server made it all the same.

    Only where others of the job were made before: they show that the name is this job's.
    """
    if not created or not missing:
        return []
    metadata = missing[0]["metadata"]
    for pause in _ANSWERS:
        sleep(pause)
        try:
            made = client.get(resource_of(missing[0]), metadata["namespace"], metadata["name"])
        except NotFoundError:
            continue
        except EnrootError:
            return []
        return [{**missing[0], "metadata": made["metadata"]}]
    return []


def _without_secrets(
    error: EnrootError, manifests: Sequence[Object], left: Sequence[str]
) -> EnrootError:
    """The same error, without values that the server may have repeated from the Secret."""
    text = str(error)
    for manifest in manifests:
        for value in manifest.get("stringData", {}).values():
            text = text.replace(value, "…") if value else text
    if left:
        text += f"\nThese are left behind: {', '.join(left)}"
    if text == str(error):
        return error
    return ClusterError(text, hint=error.hint)


def roll_back(client: ClusterClient, created: Sequence[Object]) -> list[str]:
    """Delete what was created, the latest first; return the titles of what could not be."""
    left = []
    for made in reversed(created):
        try:
            client.delete(made)
        except NotFoundError:
            continue
        except EnrootError:
            left.append(_title(made))
    return left


def _title(made: Object) -> str:
    metadata = made["metadata"]
    return f"{resource_of(made).title} {metadata['namespace']}/{metadata['name']}"


def _hold(client: ClusterClient, made: Object) -> None:
    """Volcano starts what fits: a job that was asked to be held is aborted at once."""
    if resource_of(made) is VOLCANO_JOB:
        job = read_job_object(made)
        if job is not None and job.held:
            send_command(client, job, "AbortJob")


def _own(client: ClusterClient, created: Sequence[Object]) -> list[str]:
    """Make the jobs the owners of what was created for them.

    An object that all elements of an array share has all of them as owners: it goes with the last.
    """
    owners = [
        {
            "apiVersion": made["apiVersion"],
            "kind": made["kind"],
            "name": made["metadata"]["name"],
            "uid": made["metadata"]["uid"],
        }
        for made in created
        if resource_of(made) in JOBS
    ]
    warnings = []
    for made in created:
        resource = resource_of(made)
        if resource in JOBS or resource is COMPUTE_DOMAIN:
            continue
        own = [owner for owner in owners if owner["name"] == made["metadata"]["name"]]
        metadata = made["metadata"]
        patch = {"metadata": {"ownerReferences": own or owners}}
        try:
            client.patch(resource, metadata["namespace"], metadata["name"], patch)
        except EnrootError as error:
            warnings.append(f"{_title(made)} will not go away with the job: {error}")
    return warnings


def dry_run(client: ClusterClient, manifests: Sequence[Object]) -> None:
    """Let the cluster check all manifests, with its webhooks, without creating anything.

    Raises:
        ClusterError: naming the first that it refuses.
    """
    for manifest in manifests:
        client.create(manifest, dry_run=True)


def check_site(client: ClusterClient, manifests: Sequence[Object], launcher: str) -> list[str]:
    """Look whether what the job needs of the site is there; return warnings.

    Args:
        launcher: the ConfigMap with the site's launcher, "" where the job brings its own.

    Raises:
        NotFoundError: if there is no such ConfigMap: the pods would never start.
    """
    job = next(manifest for manifest in manifests if resource_of(manifest) in JOBS)
    namespace = job["metadata"]["namespace"]
    if launcher:
        try:
            client.get(CONFIG_MAP, namespace, launcher)
        except ForbiddenError:
            pass
        except NotFoundError as error:
            raise NotFoundError(
                f"The launcher's ConfigMap {launcher} is not in namespace {namespace}",
                hint="have it created there, or leave launcherConfigMap out of the profile",
            ) from error
    queue = job["metadata"]["labels"].get("kueue.x-k8s.io/queue-name")
    if queue is None:
        return []
    for resource in LOCAL_QUEUES:
        try:
            client.get(resource, namespace, queue)
        except MissingKindError:
            continue
        except ForbiddenError:
            return []
        except NotFoundError:
            return [f"There is no LocalQueue {queue} in namespace {namespace}: the job has to wait"]
        return []
    return ["Kueue is not installed: nobody will start the job"]
