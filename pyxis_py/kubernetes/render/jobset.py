"""`--target kueue`: a JobSet of one Indexed Job, admitted by Kueue.

The order of the failure policy's rules matters: a time-out must end the set before any rule that
restarts it, and what no rule matches would restart it up to maxRestarts times.

Pure. Source: JobSet v0.12 API; jobset/pkg/webhooks for the rules that validate.py repeats.
"""

from __future__ import annotations

from pyxis_py.kubernetes.pod.context import Context, Element, Manifest
from pyxis_py.kubernetes.pod.devices import Devices
from pyxis_py.kubernetes.pod.placement import kueue_topology
from pyxis_py.kubernetes.pod.template import pod_template
from pyxis_py.kubernetes.render.indexed_job import job_spec
from pyxis_py.kubernetes.render.objects import metadata
from pyxis_py.kubernetes.render.queueing import job_annotations, job_labels

REPLICATED_JOB = "n"


def jobset(context: Context, element: Element, devices: Devices) -> Manifest:
    """Return the JobSet of one job."""
    template = pod_template(context, element, devices)
    topology = kueue_topology(context)
    if topology:
        template["metadata"].setdefault("annotations", {}).update(topology)
    spec = job_spec(context, template, in_jobset=True)
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            **metadata(context, element.name),
            "labels": job_labels(context, element),
            "annotations": job_annotations(context, element),
        },
        "spec": {
            # Kueue flips it; without Kueue nothing runs by accident.
            "suspend": True,
            "network": {
                "enableDNSHostnames": True,
                "subdomain": element.name,
                "publishNotReadyAddresses": True,
            },
            "coordinator": {"replicatedJob": REPLICATED_JOB, "jobIndex": 0, "podIndex": 0},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": [REPLICATED_JOB]},
            "ttlSecondsAfterFinished": context.profile.ttl_seconds,
            "failurePolicy": failure_policy(context),
            "replicatedJobs": [
                {"name": REPLICATED_JOB, "replicas": 1, "template": {"spec": spec}}
            ],
        },
    }  # fmt: skip


def failure_policy(context: Context) -> Manifest:
    """Return what the loss of a pod, a time-out and a failure of the program lead to."""
    requeue = context.job.requeue
    restart = "RestartJobSetAndIgnoreMaxRestarts" if requeue else "FailJobSet"
    if requeue:
        context.ledger.render("--requeue", "the set is restarted when a node or a pod is lost")
    else:
        text = "a lost pod ends the job, but a job that Kueue evicts is queued again"
        context.ledger.warn("kueue-requeues-always", "--no-requeue", text,
                            way_out="use a QOS whose ClusterQueue is not preempted")  # fmt: skip
    rules = (
        ("timeLimit", "FailJobSet", "DeadlineExceeded"),
        ("disruptionOrRequeue", restart, "PodFailurePolicy"),
        ("taskFailed", "FailJobSet", "BackoffLimitExceeded"),
    )
    return {
        "maxRestarts": 0,
        # All pods of the last run are gone before the first of the next: they had whole nodes.
        "restartStrategy": "BlockingRecreate",
        "rules": [
            {"name": name, "action": action, "onJobFailureReasons": [reason]}
            for name, action, reason in rules
        ],
    }
