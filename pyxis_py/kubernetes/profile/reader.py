"""The site profile's YAML, checked strictly and turned into types.

`profile init` writes the commented file of template.py. Pure, but for `read_profile`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from enroot_py import NotFoundError, SettingsError, UsageError
from pyxis_py.kubernetes.profile.site import (
    GPU_CLASS,
    GPU_RESOURCE,
    Fabric,
    Feature,
    GresRule,
    GresType,
    MountRule,
    NodeShape,
    Partition,
    Profile,
    Qos,
    Registry,
    Security,
    Topology,
)
from pyxis_py.kubernetes.shapes.language import check
from pyxis_py.kubernetes.shapes.profile_shape import PROFILE
from pyxis_py.kubernetes.spec.slurm_values import parse_size, parse_time

RESERVED_VOLUMES = frozenset(("launcher", "token", "shm", "tmp", "infiniband", "python"))
"""Volumes that the renderer makes itself."""


def read_profile(path: str) -> Profile:
    """Read a profile.

    Raises:
        NotFoundError: if the file cannot be read.
        SettingsError: naming the file and every place that is wrong.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise NotFoundError(f"Cannot read the profile {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8") from error
    return parse_profile(text, origin=path)


def parse_profile(text: str, *, origin: str) -> Profile:
    """Parse a profile's text.

    Raises:
        SettingsError: naming `origin` and every place that is wrong.
    """
    document = _load(text, origin)
    problems = list(check(document, PROFILE))
    if not problems:
        try:
            return _build(document)
        except (SettingsError, UsageError) as error:
            problems = [str(error)]
    hint = "`profile init` writes a commented profile"
    if any(": not a string: " in problem for problem in problems):
        hint += "; quotes make a string of what YAML takes for a number, as 24:00:00"
    raise SettingsError("\n".join(f"{origin}: {problem}" for problem in problems), hint=hint)


def _load(text: str, origin: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Takes no key twice: the first section would be lost without a word."""

        def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
            # Before merge keys (<<) are replaced: what they bring gives way to keys of the section.
            node = super().compose_mapping_node(anchor)
            found: list[Any] = []
            for key, _ in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    continue
                text = key.tag == "tag:yaml.org,2002:value"  # the key =
                name = key.value if text else self.construct_object(key, deep=True)
                if name in found:
                    raise yaml.MarkedYAMLError(
                        problem=f"{name} is there twice", problem_mark=key.start_mark
                    )
                found.append(name)
            return node

    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SettingsError(f"{origin}: not YAML: {error}") from error


def _build(document: Mapping[str, Any]) -> Profile:
    cluster = document.get("cluster", {})
    default = Profile()
    partitions = {name: _partition(row) for name, row in document.get("partitions", {}).items()}
    chosen = cluster.get("partition", "")
    if chosen and chosen not in partitions:
        raise SettingsError(f"cluster.partition: there is no partition {chosen!r}")
    return Profile(
        strict=True,
        cluster_name=cluster.get("name", default.cluster_name),
        dns_domain=cluster.get("dnsDomain", default.dns_domain),
        namespace=cluster.get("namespace", default.namespace),
        target=cluster.get("target", default.target),
        gpu_api=cluster.get("gpuApi", default.gpu_api),
        default_registry=cluster.get("registry", default.default_registry),
        launcher_config_map=cluster.get("launcherConfigMap", default.launcher_config_map),
        names_launcher="launcherConfigMap" in cluster,
        python_image=cluster.get("pythonImage", default.python_image),
        hostnames=dict(cluster.get("hostnames", {})),
        ttl_seconds=cluster.get("ttlSeconds", default.ttl_seconds),
        accounts={name: row["namespace"] for name, row in document.get("accounts", {}).items()},
        partitions=partitions,
        default_partition=chosen,
        qos={name: _qos(row) for name, row in document.get("qos", {}).items()},
        features={
            name: Feature(row["label"], tuple(row["values"]))
            for name, row in document.get("features", {}).items()
        },
        gres={name: _gres(name, row) for name, row in document.get("gres", {}).items()},
        reservations={
            name: _pairs(row["nodeSelector"])
            for name, row in document.get("reservations", {}).items()
        },
        mounts=_mounts(document.get("mounts", [])),
        registries={
            host: Registry(row.get("pullSecret", ""), row.get("users", {}), row.get("rewrite", ""))
            for host, row in document.get("registries", {}).items()
        },
        fabric=_fabric(document.get("fabric", {})),
        security=_security(document.get("security", {})),
    )


def _pairs(row: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(row.items()))


def _partition(row: Mapping[str, Any]) -> Partition:
    node = row.get("node")
    topology = row.get("topology")
    return Partition(
        queue=row["queue"],
        node_selector=_pairs(row.get("nodeSelector", {})),
        tolerations=tuple(row.get("tolerations", [])),
        node=NodeShape(node["cpus"], _memory(node["memory"]), node.get("gpus", 0))
        if node
        else None,
        topology=_topology(topology) if topology else None,
        max_time=parse_time(row["maxTime"]) if "maxTime" in row else None,
        guaranteed=row.get("guaranteed", False),
        compute_domain=row.get("computeDomain", False),
    )


def _memory(text: str) -> int:
    """A quantity (1800Gi) or a size as Slurm has it (1800G), both of powers of two."""
    return parse_size(text.removesuffix("i"))


def _topology(row: Mapping[str, Any]) -> Topology:
    levels = tuple(row["levels"])
    chosen = {name: row.get(name, levels[-1]) for name in ("switches", "segment")}
    for name, level in chosen.items():
        if level not in levels:
            raise SettingsError(f"topology.{name}: {level!r} is none of the levels")
    return Topology(
        levels,
        chosen["switches"],
        chosen["segment"],
        row.get("switchesTier", 1),
        row.get("segmentTier", 1),
    )


def _qos(row: Mapping[str, Any]) -> Qos:
    return Qos(
        row.get("workloadPriorityClass", ""),
        row.get("priorityClass", ""),
        row.get("preemptible", True),
        row.get("graceSeconds", 0),
    )


def _gres(name: str, row: Mapping[str, Any]) -> GresRule:
    gpu = name == "gpu"
    resource = row.get("resource", GPU_RESOURCE if gpu else "")
    device_class = row.get("deviceClass", GPU_CLASS if gpu else "")
    if not resource and not device_class:
        raise SettingsError(f"gres.{name}: neither resource nor deviceClass")
    types = {
        kind: GresType(
            item.get("resource", resource),
            item.get("deviceClass", device_class),
            item.get("selector", ""),
            _pairs(item.get("nodeLabels", {})),
        )
        for kind, item in row.get("types", {}).items()
    }
    return GresRule(GresType(resource, device_class), types)


def _mounts(rows: Sequence[Mapping[str, Any]]) -> tuple[MountRule, ...]:
    """Names of volumes tell filesystems apart: one name with two sources would mix them up."""
    rules = tuple(_mount(row) for row in rows)
    sources: dict[str, Mapping[str, Any]] = {}
    for number, rule in enumerate(rules):
        if rule.name in RESERVED_VOLUMES or rule.name.startswith(("host-", "tmpfs-")):
            raise SettingsError(f"mounts[{number}].name: {rule.name} is taken by every pod")
        if sources.setdefault(rule.name, rule.source) != rule.source:
            raise SettingsError(f"mounts[{number}].name: {rule.name} has another source already")
    return rules


def _mount(row: Mapping[str, Any]) -> MountRule:
    kind = next(name for name in ("pvc", "nfs", "csi", "hostPath", "image") if name in row)
    source: dict[str, Any]
    if kind == "pvc":
        source = {"persistentVolumeClaim": {"claimName": row["pvc"]}}
    elif kind == "hostPath":
        source = {"hostPath": {"path": row["hostPath"], "type": "Directory"}}
    elif kind == "image":
        source = {"image": {"reference": row["image"], "pullPolicy": "IfNotPresent"}}
    else:
        source = {kind: dict(row[kind])}
    path = row["path"].rstrip("/") or "/"
    return MountRule(path, row["name"], source, row.get("submounts", False))


def _fabric(row: Mapping[str, Any]) -> Fabric:
    return Fabric(
        row.get("kind", "none"),
        _pairs(row.get("resources", {})),
        _pairs(row.get("annotations", {})),
        row.get("deviceClass", ""),
        row.get("privileged", False),
        _pairs(row.get("environment", {})),
    )


def _security(row: Mapping[str, Any]) -> Security:
    return Security(
        tuple(row.get("hostPaths", [])),
        row.get("userNamespaces", False),
        row.get("seccomp", "RuntimeDefault"),
        row.get("allowRoot", True),
    )
