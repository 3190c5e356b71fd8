"""`--target slurm-bridge`: an Indexed Job whose pods Slurm itself places, as one Slurm job.

The only target where account, QOS, partition, reservation, licences and constraint stay Slurm's.

Pure. Source: SlinkyProject/slurm-bridge v1.2.1, annotations of a PodGroup.
"""

from __future__ import annotations

from pyxis_py.kubernetes.pod.context import Context, Element, Manifest
from pyxis_py.kubernetes.pod.devices import Devices
from pyxis_py.kubernetes.pod.placement import check_topology
from pyxis_py.kubernetes.render.indexed_job import indexed_job
from pyxis_py.kubernetes.render.objects import metadata

SCHEDULER = "slurm-bridge-scheduler"
PREFIX = "slurmjob.slinky.slurm.net/"
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"


def bridged_job(context: Context, element: Element, devices: Devices) -> list[Manifest]:
    """Return the PodGroup, which stands for the Slurm job, and the Job with its pods."""
    check_topology(context)
    if not context.job.requeue:
        text = "Slurm does not requeue what the bridge submits"
        context.ledger.render("--no-requeue", text)
    job = indexed_job(context, element, devices)
    template = job["spec"]["template"]
    template["metadata"]["labels"][GROUP_LABEL] = element.name
    template["spec"] = {"schedulerName": SCHEDULER, **template["spec"]}
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {**metadata(context, element.name), "annotations": _annotations(context)},
        "spec": {"minMember": context.layout.nodes},
    }
    return [group, job]


def _annotations(context: Context) -> dict[str, str]:
    job, layout = context.job, context.layout
    constraint = "|".join("&".join(group) for group in job.constraint)
    rows = {
        "job-name": job.name,
        "account": job.account,
        "partition": ",".join(job.partitions) or context.partition_name,
        "qos": job.qos,
        "reservation": job.reservation,
        "constraints": constraint,
        "licenses": job.licenses,
        "wckey": job.wckey,
        "timelimit": str(context.time_limit // 60) if context.time_limit else "",
        "min-nodes": str(layout.nodes),
        "max-nodes": str(layout.nodes),
        "cpu-per-task": str(job.cpus_per_task or ""),
        "mem-per-node": str(layout.memory or ""),
        "exclusive": "true" if job.exclusive else "",
    }
    for option, value in (
        ("--constraint", constraint), ("--reservation", job.reservation), ("--qos", job.qos),
        ("--account", job.account), ("--partition", rows["partition"]),
    ):  # fmt: skip
        if value:
            context.ledger.render(option, "an annotation for Slurm")
    return {PREFIX + name: value for name, value in rows.items() if value}
