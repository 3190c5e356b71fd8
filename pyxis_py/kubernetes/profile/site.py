"""The site profile: what Slurm has in slurm.conf, and no script says.

reader.py makes it of one YAML file. Without one the renderer works with what the command
line says, and notes what it assumed.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GPU_RESOURCE = "nvidia.com/gpu"
GPU_CLASS = "gpu.nvidia.com"


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What a pod can have of one node: CPUs, memory in MiB, GPUs."""

    cpus: int
    memory: int
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Topology:
    """Where nodes stand. Levels are label keys, widest first; tiers are Volcano's HyperNode tiers.

    `switches` and `segment` are the levels within which those options keep nodes together.
    """

    levels: tuple[str, ...]
    switches: str
    segment: str
    switches_tier: int = 1
    segment_tier: int = 1


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: its queue, which nodes it has and what they offer."""

    queue: str
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Mapping[str, Any], ...] = ()
    node: NodeShape | None = None
    topology: Topology | None = None
    max_time: int | None = None
    guaranteed: bool = False
    compute_domain: bool = False


@dataclass(frozen=True, slots=True)
class Qos:
    """A QOS: Kueue's and Kubernetes' priority class, and how preemption treats its jobs."""

    workload_priority_class: str = ""
    priority_class: str = ""
    preemptible: bool = True
    grace_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of `--constraint`: a node label and the values that count."""

    label: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GresType:
    """A resource as the device plugin counts it, and as a DRA driver describes it.

    Attributes:
        resource: extended resource name.
        device_class: DeviceClass; "" where no driver serves it.
        selector: CEL expression for the device, or "".
        node_labels: labels of the nodes that have it.
    """

    resource: str
    device_class: str = ""
    selector: str = ""
    node_labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class GresRule:
    """A generic resource without a type, and its types."""

    plain: GresType
    types: Mapping[str, GresType] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MountRule:
    """Where the files below a path come from. `source` is the volume source of a pod.

    Attributes:
        path: absolute path on the Slurm nodes.
        name: of the volume in the pod.
        source: one-key object such as `{"nfs": {…}}`.
        submounts: whether other filesystems are mounted below it.
    """

    path: str
    name: str
    source: Mapping[str, Any]
    submounts: bool = False


@dataclass(frozen=True, slots=True)
class Registry:
    """Pull secrets of a registry, by user; `rewrite` replaces the host."""

    pull_secret: str = ""
    users: Mapping[str, str] = field(default_factory=dict)
    rewrite: str = ""


@dataclass(frozen=True, slots=True)
class Fabric:
    """How pods get at the network of the GPUs: one of the recipes of the profile."""

    kind: str = "none"
    resources: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    device_class: str = ""
    privileged: bool = False
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Security:
    """What pods of this site may do."""

    host_paths: tuple[str, ...] = ()
    user_namespaces: bool = False
    seccomp: str = "RuntimeDefault"
    allow_root: bool = True


@dataclass(frozen=True, slots=True)
class Profile:
    """A site. The defaults are those of no profile; `strict` tells that there is one.

    `names_launcher` tells whether the site has put the launcher into a ConfigMap itself.
    `python_image` is where --bring-python takes Python from.
    """

    strict: bool = False
    cluster_name: str = "kubernetes"
    dns_domain: str = "cluster.local"
    namespace: str = "default"
    target: str = "kueue"
    gpu_api: str = "device-plugin"
    default_registry: str = "docker.io"
    launcher_config_map: str = "pyxis-launcher"
    names_launcher: bool = False
    python_image: str = ""
    hostnames: Mapping[str, str] = field(default_factory=dict)
    ttl_seconds: int = 604800
    accounts: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    default_partition: str = ""
    qos: Mapping[str, Qos] = field(default_factory=dict)
    features: Mapping[str, Feature] = field(default_factory=dict)
    gres: Mapping[str, GresRule] = field(default_factory=dict)
    reservations: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    mounts: tuple[MountRule, ...] = ()
    registries: Mapping[str, Registry] = field(default_factory=dict)
    fabric: Fabric = Fabric()
    security: Security = Security()
