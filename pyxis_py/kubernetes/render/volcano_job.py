"""`--target volcano`: a Volcano Job of one task, gang-scheduled.

Policies are tried in their order, and the failure of one pod carries both its exit status and its
event: rules for statuses come before the one for PodFailed.

Pure. Source: Volcano v1.15 API batch.volcano.sh/v1alpha1 and its admission webhook.
"""

from __future__ import annotations

from pyxis_py.kubernetes.pod.context import Context, Element, Manifest
from pyxis_py.kubernetes.pod.devices import Devices
from pyxis_py.kubernetes.pod.placement import volcano_topology
from pyxis_py.kubernetes.pod.template import pod_template
from pyxis_py.kubernetes.render.indexed_job import REQUEUE_STATUS
from pyxis_py.kubernetes.render.objects import metadata
from pyxis_py.kubernetes.render.queueing import job_annotations, job_labels

TASK = "n"
TIME_LIMIT_STATUS = 124
PLUGINS = {"svc": ["--publish-not-ready-addresses=true"], "env": []}
"""Agents look each other up before any pod is ready."""
MAX_RETRY = 1000
"""Every eviction counts as a retry, and 0 would mean 3 (volcano#2560)."""
DEADLINE_SLACK = 600
"""Seconds beyond time limit and grace after which the kubelet ends a pod; the launcher should."""


def volcano_job(context: Context, element: Element, devices: Devices) -> Manifest:
    """Return the Volcano Job of one job."""
    nodes = context.layout.nodes
    template = pod_template(context, element, devices)
    if context.time_limit:
        deadline = context.time_limit + context.grace + DEADLINE_SLACK
        template["spec"] = {"activeDeadlineSeconds": deadline, **template["spec"]}
    network, partition = volcano_topology(context)
    task: Manifest = {
        "name": TASK, "replicas": nodes, "minAvailable": nodes, "maxRetry": MAX_RETRY,
    }  # fmt: skip
    if partition:
        task["partitionPolicy"] = partition
    task["template"] = template
    spec: Manifest = {"schedulerName": "volcano", "queue": context.partition.queue}
    if context.qos.priority_class:
        spec["priorityClassName"] = context.qos.priority_class
    spec.update({
        "minAvailable": nodes,
        "maxRetry": MAX_RETRY,
        "ttlSecondsAfterFinished": context.profile.ttl_seconds,
    })  # fmt: skip
    if context.time_limit:
        spec["runningEstimate"] = _duration(context.time_limit)
    spec["plugins"] = PLUGINS
    if network:
        spec["networkTopology"] = network
    spec["policies"] = _policies(context)
    spec["tasks"] = [task]
    preemptable = {"volcano.sh/preemptable": "true"} if context.qos.preemptible else {}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {
            **metadata(context, element.name),
            "labels": job_labels(context, element),
            "annotations": {**job_annotations(context, element), **preemptable},
        },
        "spec": spec,
    }


def _policies(context: Context) -> list[Manifest]:
    requeue = context.job.requeue
    lost = "RestartJob" if requeue else "TerminateJob"
    option = "--requeue" if requeue else "--no-requeue"
    context.ledger.render(option, f"a lost or evicted pod: {lost}")
    return [
        {"exitCode": TIME_LIMIT_STATUS, "action": "TerminateJob"},
        {"exitCode": REQUEUE_STATUS, "action": lost},
        {"event": "PodEvicted", "action": lost},
        {"event": "PodFailed", "action": "TerminateJob"},
        {"event": "TaskCompleted", "action": "CompleteJob"},
    ]


def _duration(seconds: int) -> str:
    """A duration as Go writes it: 72h0m0s."""
    return f"{seconds // 3600}h{seconds % 3600 // 60}m{seconds % 60}s"
