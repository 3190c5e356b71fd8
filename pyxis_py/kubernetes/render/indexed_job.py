"""The Indexed Job of Kubernetes: alone under Kueue or Slurm, and inside a JobSet.

The job is over when the batch host, index 0, is over. Exit status 85 of the launcher stands for
`scontrol requeue`.

Pure. Source: Kubernetes API batch/v1; kubernetes.io, "Pod failure policy".
"""

from __future__ import annotations

from pyxis_py.kubernetes.pod.context import Context, Element, Manifest
from pyxis_py.kubernetes.pod.devices import Devices
from pyxis_py.kubernetes.pod.placement import kueue_topology
from pyxis_py.kubernetes.pod.template import pod_template
from pyxis_py.kubernetes.render.objects import metadata
from pyxis_py.kubernetes.render.queueing import job_annotations, job_labels

REQUEUE_STATUS = 85
DEADLINE_SLACK = 60
"""Seconds that the launcher has to end the job itself before the cluster does."""

_DISRUPTION = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
_REQUEUE = {"onExitCodes": {"containerName": "main", "operator": "In", "values": [REQUEUE_STATUS]}}


def job_spec(context: Context, template: Manifest, *, in_jobset: bool) -> Manifest:
    """Return the spec of the Job whose pods are the nodes of one job."""
    spec: Manifest = {
        "completionMode": "Indexed",
        "completions": context.layout.nodes,
        "parallelism": context.layout.nodes,
        "backoffLimit": 0,
    }
    if context.time_limit:
        spec["activeDeadlineSeconds"] = context.time_limit + DEADLINE_SLACK
    # A set restarts as a whole; a Job alone only replaces the pod that was lost.
    action = "FailJob" if in_jobset or not context.job.requeue else "Ignore"
    spec.update({
        "podReplacementPolicy": "Failed",
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
        "podFailurePolicy": {
            "rules": [{"action": action, **_DISRUPTION}, {"action": action, **_REQUEUE}]
        },
        "template": template,
    })  # fmt: skip
    return spec


def _array_spec(context: Context, template: Manifest) -> Manifest:
    """One pod for each element of an array; each fails or is replaced alone."""
    array = context.job.array
    count = len(array.indices) if array else 0
    limit = array.limit if array else 0
    action = "Ignore" if context.job.requeue else "FailIndex"
    spec: Manifest = {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": min(limit or count, count),
        "backoffLimitPerIndex": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [{"action": action, **_DISRUPTION}, {"action": action, **_REQUEUE}]
        },
        "template": template,
    }
    if context.time_limit:
        # Of the pod: the Job's own would count from the first element's start.
        deadline = context.time_limit + DEADLINE_SLACK
        template["spec"] = {"activeDeadlineSeconds": deadline, **template["spec"]}
    return spec


def indexed_job(context: Context, element: Element, devices: Devices) -> Manifest:
    """Return the Job of `--target kueue-job`, and of arrays of one-node elements under Kueue."""
    template = pod_template(context, element, devices)
    annotations = job_annotations(context, element)
    if context.array_of_pods:
        spec = _array_spec(context, template)
        annotations["kueue.x-k8s.io/job-min-parallelism"] = "1"
    else:
        topology = kueue_topology(context) if context.kueue else {}
        if topology:
            template["metadata"].setdefault("annotations", {}).update(topology)
        template["spec"] = {"subdomain": element.name, **template["spec"]}
        spec = job_spec(context, template, in_jobset=False)
        if context.layout.nodes > 1 and context.job.requeue:
            text = "a lost pod is replaced alone and its agent joins again; the body is not rerun"
            context.ledger.approximate(
                "requeue-pod", "--requeue", text, way_out="use --target kueue"
            )
    if context.kueue or context.job.hold:
        spec = {"suspend": True, **spec}
    spec["ttlSecondsAfterFinished"] = context.profile.ttl_seconds
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            **metadata(context, element.name),
            "labels": job_labels(context, element),
            "annotations": annotations,
        },
        "spec": spec,
    }
