"""GPUs and other devices of a pod: by device plugin, by DRA claim, or by extended resource.

Which API goes with which scheduler is the matrix of `_check_matrix`; what does not go together is
refused. The upstream limits were read at Kueue v0.19.2 and Volcano v1.15.1.

Pure. Source: Kubernetes API resource.k8s.io/v1; NVIDIA DRA driver v0.4.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pyxis_py.kubernetes.pod.context import Context, Element, Manifest
from pyxis_py.kubernetes.profile.site import GPU_CLASS, GPU_RESOURCE, GresRule, GresType
from pyxis_py.kubernetes.spec.slurm_values import Gres

CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"
CHANNEL_CLAIM = "imex"
"""The pods' claim to a channel of their compute domain."""
IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
_MIG = re.compile(r"\d{1,2}g\.\d{1,3}gb(\.me|\+me)?\Z", re.ASCII)


@dataclass(slots=True)
class Devices:
    """What pods need of devices.

    Attributes:
        resources: extended resources of the container, as requests and limits.
        claims: names of the pod's claims and of the templates that they are made from.
        templates: ResourceClaimTemplates, shared by all elements of an array.
        node_labels: labels of the nodes that have the devices.
    """

    resources: dict[str, str] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)
    templates: list[Manifest] = field(default_factory=list)
    node_labels: dict[str, str] = field(default_factory=dict)


def pod_devices(context: Context) -> Devices:
    """Return the devices that the job's pods ask for."""
    devices = Devices()
    _check_matrix(context)
    if context.layout.gpus:
        kind = _gpu_type(context)
        if context.options.gpu_api == "dra":
            _claim_gpus(context, devices, kind)
        else:
            _count_gpus(context, devices, kind)
    for gres in context.layout.gres:
        _add_gres(context, devices, gres)
    if context.partition.compute_domain and context.layout.gpus:
        _claim_channel(context, devices)
    _add_fabric(context, devices)
    return devices


def _check_matrix(context: Context) -> None:
    ledger, api = context.ledger, context.options.gpu_api
    if not context.layout.gpus or api == "device-plugin":
        if context.layout.gpus and context.options.target == "slurm-bridge":
            text = "Slurm counts the GPUs; which ones a pod gets is the device plugin's choice"
            ledger.approximate("bridge-gpus", "", text, way_out="use --gpu-api dra-extended")
        return
    if context.topology_aware:
        text = f"Kueue places by topology without counting GPUs of {api}"
        ledger.refuse("dra-tas", "", text)
    elif context.kueue:
        text = "the Kueue Configuration needs deviceClassMappings for every device class"
        ledger.warn("dra-mapping", "", text)
    elif api == "dra" and context.options.target == "slurm-bridge":
        ledger.approximate("bridge-dra", "", "Slurm does not see the claims",
                           way_out="use --gpu-api dra-extended")  # fmt: skip
    elif api == "dra-extended" and context.options.target == "volcano":
        text = "Volcano's queues count the extended resource, not the devices"
        ledger.approximate("volcano-dra-extended", "", text)


def _gpu_type(context: Context) -> GresType:
    """The GPU type asked for, from the profile, or by what its name says."""
    name, rule = context.layout.gpu_type, context.profile.gres.get("gpu")
    plain = rule.plain if rule else GresType(GPU_RESOURCE, GPU_CLASS)
    if not name:
        return plain
    if rule and name in rule.types:
        return rule.types[name]
    device = "device.attributes['gpu.nvidia.com']"
    if _MIG.match(name):
        selector = f"{device}.profile == '{name}'"
        return GresType(f"nvidia.com/mig-{name}", "mig.nvidia.com", selector)
    if context.options.gpu_api == "dra" and not (rule and rule.types):
        selector = f"{device}.productName.lowerAscii().contains('{name.lower()}')"
        return GresType(GPU_RESOURCE, plain.device_class, selector)
    known = ", ".join(sorted(rule.types)) if rule else ""
    text = f"no GPU type {name!r} in the profile; it has {known or 'none'}"
    context.ledger.refuse("gres-unknown", "--gres", text)
    return plain


def _count_gpus(context: Context, devices: Devices, kind: GresType) -> None:
    resource = kind.resource
    extended = context.options.gpu_api == "dra-extended"
    if extended and (context.options.target == "slurm-bridge" or not resource):
        resource = f"{IMPLICIT_PREFIX}{kind.device_class}"
    if extended and kind.selector and not kind.node_labels:
        text = "an extended resource has no selector: any GPU of the class will do"
        context.ledger.approximate("dra-selector", "--gres", text)
    devices.resources[resource] = str(context.layout.gpus)
    devices.node_labels.update(kind.node_labels)


def _claim_gpus(context: Context, devices: Devices, kind: GresType) -> None:
    request = _request("gpu", kind, context.layout.gpus)
    fabric = context.profile.fabric
    if fabric.kind == "dra" and fabric.device_class:
        _claim_pairs(context, devices, kind)
        return
    devices.node_labels.update({} if kind.selector else dict(kind.node_labels))
    _add_template(context, devices, "gpu", {"requests": [request]})


def _request(name: str, kind: GresType, count: int) -> Manifest:
    exactly: Manifest = {"deviceClassName": kind.device_class or GPU_CLASS,
                         "allocationMode": "ExactCount", "count": count}  # fmt: skip
    if kind.selector:
        exactly["selectors"] = [{"cel": {"expression": kind.selector}}]
    return {"name": name, "exactly": exactly}


def _claim_pairs(context: Context, devices: Devices, kind: GresType) -> None:
    """A GPU and a NIC beneath one PCIe root in each claim, as many claims as GPUs.

    A constraint spans all devices of its requests, so one claim for all pairs would ask for one
    root that has them all.
    """
    if context.kueue:
        text = "a GPU and its NIC on one PCIe root need a constraint in the claim"
        context.ledger.refuse("dra-config-kueue", "", text)
    nic = GresType("", context.profile.fabric.device_class)
    constraint = {"requests": ["gpu", "nic"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    spec = {"requests": [_request("gpu", kind, 1), _request("nic", nic, 1)],
            "constraints": [constraint]}  # fmt: skip
    _add_template(context, devices, "gpunic", spec)
    template = devices.claims.pop("gpunic")
    for number in range(context.layout.gpus):
        devices.claims[f"gpunic-{number}"] = template


def _add_template(context: Context, devices: Devices, name: str, spec: Manifest) -> None:
    template = f"{context.name}-{name}"
    devices.claims[name] = template
    devices.templates.append({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": template, "namespace": context.namespace, "labels": context.labels,
        },
        "spec": {"metadata": {"labels": context.labels}, "spec": {"devices": spec}},
    })  # fmt: skip


def _add_gres(context: Context, devices: Devices, gres: Gres) -> None:
    rule: GresRule | None = context.profile.gres.get(gres.name)
    kind = rule.types.get(gres.type) if rule and gres.type else (rule.plain if rule else None)
    if kind is None or not (kind.resource or kind.device_class):
        known = ", ".join(sorted(context.profile.gres)) or "none"
        text = f"no resource {gres.name}{':' if gres.type else ''}{gres.type} in the profile; "
        context.ledger.refuse("gres-unknown", "--gres", f"{text}it has {known}")
        return
    devices.node_labels.update(kind.node_labels)
    if context.options.gpu_api == "dra" and kind.device_class:
        name = re.sub("[^a-z0-9-]", "-", gres.name.lower())
        _add_template(context, devices, name, {"requests": [_request(name, kind, gres.count)]})
    else:
        resource = kind.resource or f"{IMPLICIT_PREFIX}{kind.device_class}"
        devices.resources[resource] = str(gres.count)
    context.ledger.render("--gres", f"{gres.count} {gres.name} for each pod")


def _claim_channel(context: Context, devices: Devices) -> None:
    if context.options.target == "slurm-bridge":
        text = "the partition's NVLink spans nodes, and Slurm does not see compute domains"
        context.ledger.refuse("dra-compute-domain", "--partition", text)
        return
    devices.claims[CHANNEL_CLAIM] = ""
    if context.kueue:
        text = f"the Kueue Configuration has to map {CHANNEL_CLASS}, with a large quota"
        context.ledger.warn("dra-mapping", "--partition", text)


def channel_name(element: Element) -> str:
    """Return the name of the claim template that the compute domain's controller makes."""
    return f"{element.name}-imex"


def compute_domain(context: Context, element: Element) -> Manifest:
    """Return the ComputeDomain of one job: memory shared over the NVLinks of several nodes."""
    template = {"name": channel_name(element)}
    return {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {
            "name": element.name, "namespace": context.namespace, "labels": context.labels,
        },
        # numNodes is deprecated: 0 lets the driver take the pods as they come.
        "spec": {
            "numNodes": 0,
            "channel": {"allocationMode": "Single", "resourceClaimTemplate": template},
        },
    }  # fmt: skip


def _add_fabric(context: Context, devices: Devices) -> None:
    fabric = context.profile.fabric
    if fabric.kind == "dra" and context.layout.gpus and context.options.gpu_api != "dra":
        text = "the site's network devices are claimed together with the GPUs"
        context.ledger.refuse("dra-fabric", "", text)
    if uses_fabric(context):
        devices.resources.update(fabric.resources)


def uses_fabric(context: Context) -> bool:
    """Whether the pods get at the GPUs' network: jobs with GPUs, where the site has one."""
    return context.profile.fabric.kind != "none" and context.layout.gpus > 0
