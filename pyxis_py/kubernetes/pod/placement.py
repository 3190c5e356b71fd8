"""Where pods may run: selectors, affinity, tolerations, and topology.

Pure. Source: Kubernetes API, PodSpec; Kueue v0.19 topology-aware scheduling.
"""

from __future__ import annotations

from typing import Any

from pyxis_py.kubernetes.pod.context import Context, Element, Manifest
from pyxis_py.kubernetes.profile.site import Feature

HOSTNAME = "kubernetes.io/hostname"
TAS = "kueue.x-k8s.io/podset-"


def node_selector(context: Context, device_labels: dict[str, str]) -> dict[str, str]:
    """Return labels that the node must have: of the partition, the GPU type, the reservation."""
    labels = {**dict(context.partition.node_selector), **device_labels}
    name = context.job.reservation
    if name and context.options.target != "slurm-bridge":
        if name in context.profile.reservations:
            labels.update(context.profile.reservations[name])
            context.ledger.render("--reservation", "nodes of the reservation's labels")
        else:
            known = ", ".join(sorted(context.profile.reservations)) or "none"
            text = f"no reservation {name!r} in the profile; it has {known}"
            context.ledger.refuse("reservation-unknown", "--reservation", text)
    return labels


def affinity(context: Context, element: Element) -> Manifest:
    """Return the affinity of a pod, {} where there is none."""
    found: Manifest = {}
    terms = _node_terms(context)
    if terms:
        found["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    one_per_node = context.layout.nodes > 1 and not context.layout.whole_node
    if context.job.exclusive and not context.layout.whole_node:
        one_per_node = True
    if one_per_node and context.options.target != "slurm-bridge":
        selector = {"matchLabels": {"pyxis/element": element.name}}
        found["podAntiAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": selector, "topologyKey": HOSTNAME}
            ]
        }
    return found


def _node_terms(context: Context) -> list[Manifest]:
    hosts = _host_expressions(context)
    if context.options.target == "slurm-bridge":
        return [{"matchExpressions": hosts}] if hosts else []
    alternatives: list[list[Manifest]] = []
    for group in context.job.constraint:
        features = [_feature(context, name) for name in group]
        alternatives.append([
            {"key": feature.label, "operator": "In", "values": list(feature.values)}
            for feature in features
            if feature is not None
        ])  # fmt: skip
    if context.job.constraint:
        context.ledger.render("--constraint", "node affinity for the features' labels")
    terms = [[*expressions, *hosts] for expressions in alternatives or [[]]]
    return [{"matchExpressions": term} for term in terms if term]


def _feature(context: Context, name: str) -> Feature | None:
    feature = context.profile.features.get(name)
    if feature is None:
        known = ", ".join(sorted(context.profile.features)) or "none"
        text = f"no feature {name!r} in the profile; it has {known}"
        context.ledger.refuse("feature-unknown", "--constraint", text)
    return feature


def _host_expressions(context: Context) -> list[Manifest]:
    job, ledger = context.job, context.ledger
    expressions: list[Manifest] = []
    if job.nodelist:
        if len(job.nodelist) < context.layout.nodes:
            text = "Slurm adds nodes to the list; Kubernetes would use these alone"
            ledger.refuse("nodelist-superset", "--nodelist", text)
        elif len(job.nodelist) > context.layout.nodes:
            text = f"{len(job.nodelist)} hosts for {context.layout.nodes} nodes"
            ledger.refuse("invalid-value", "--nodelist", text)
        else:
            ledger.render("--nodelist", "node affinity for the host names")
            expressions.append(_hosts(context, "In", job.nodelist))
    if job.exclude:
        ledger.render("--exclude", "node affinity against the host names")
        expressions.append(_hosts(context, "NotIn", job.exclude))
    return expressions


def _hosts(context: Context, operator: str, names: tuple[str, ...]) -> Manifest:
    values = [context.profile.hostnames.get(name, name) for name in names]
    for value in values:
        if len(value) > 63:
            context.ledger.refuse("label-invalid", "--nodelist", f"not a label's value: {value!r}")
    return {"key": HOSTNAME, "operator": operator, "values": values}


def tolerations(context: Context) -> list[Any]:
    """Return the taints that the pods live with."""
    found = [dict(row) for row in context.partition.tolerations]
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    if context.layout.gpus and gpu not in found:
        found.append(gpu)
    return found


def check_topology(context: Context) -> bool:
    """Refuse what the partition's topology cannot give; return whether the rest can be rendered."""
    job, ledger, topology = context.job, context.ledger, context.partition.topology
    fine = True
    if job.switches and job.switches.count != 1:
        ledger.refuse("switches-several", "--switches", f"{job.switches.count} switches")
        fine = False
    if job.segment and context.layout.nodes % job.segment:
        text = f"{job.segment} does not divide {context.layout.nodes} nodes"
        ledger.refuse("topology-indivisible", "--segment", text)
        fine = False
    for option, asked in (("--switches", job.switches is not None), ("--segment", job.segment > 0)):
        if not asked:
            continue
        if context.options.target == "slurm-bridge":
            text = "Slurm places the pods, but the bridge passes no such request on"
            ledger.ignore("topology", option, text)
        elif topology is None:
            ledger.refuse("topology-unknown", option, "the partition has no topology")
        else:
            ledger.render(option, "pods are kept together by topology")
    return fine and topology is not None


def kueue_topology(context: Context) -> dict[str, str]:
    """Return the annotations of a pod template for Kueue's topology-aware scheduling."""
    topology, job = context.partition.topology, context.job
    if not check_topology(context) or topology is None or context.layout.nodes == 1:
        return {}
    annotations: dict[str, str] = {}
    if job.switches and job.switches.wait is None:
        annotations[f"{TAS}required-topology"] = topology.switches
    elif job.switches:
        annotations[f"{TAS}preferred-topology"] = topology.switches
    else:
        annotations[f"{TAS}preferred-topology"] = topology.levels[0]
    if job.segment:
        annotations[f"{TAS}slice-required-topology"] = topology.segment
        annotations[f"{TAS}slice-size"] = str(job.segment)
    return annotations


def volcano_topology(context: Context) -> tuple[Manifest, Manifest]:
    """Return `networkTopology` of a Volcano job and `partitionPolicy` of its task, {} for none."""
    topology, job, nodes = context.partition.topology, context.job, context.layout.nodes
    if not check_topology(context) or topology is None or nodes == 1:
        return {}, {}
    whole: Manifest = {"mode": "soft"}
    if job.switches and job.switches.wait is None:
        whole = {"mode": "hard", "highestTierAllowed": topology.switches_tier}
    if not job.segment:
        return whole, {}
    count = nodes // job.segment
    return whole, {
        "totalPartitions": count,
        "partitionSize": job.segment,
        "minPartitions": count,
        "networkTopology": {"mode": "hard", "highestTierAllowed": topology.segment_tier},
    }
