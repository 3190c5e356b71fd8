"""A container's variables: values, ConfigMaps, Secrets, and the downward API.

Pure. Source: Kubernetes API, EnvVar and EnvFromSource; kubelet_pods.go for the order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tests.kubernetes.emulator.expansion import expand
from tests.kubernetes.emulator.objects import EmulatorError, Manifest, Objects, Pod
from tests.kubernetes.emulator.quantities import in_units_of

_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]\Z")
_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*\Z")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod runs, which only the kubelet knows."""

    address: str
    node: str
    node_address: str


def container_environment(
    container: Manifest, pod: Pod, place: Place, objects: Objects
) -> dict[str, str]:
    """Return what the kubelet adds to the image's variables.

    Raises:
        EmulatorError: if something refers to what is not there (CreateContainerConfigError).
    """
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        found.update(_from_whole(source, objects))
    for row in [*container.get("env", ()), *_rows(pod.environ)]:
        name = row["name"]
        if "valueFrom" in row:
            value = _resolve(row["valueFrom"], container, pod, place, objects)
            if value is None:
                continue
        else:
            value = row.get("value", "")
            if not isinstance(value, str):
                raise EmulatorError(f"the value of {name} is not a string: {value!r}")
            # What stands before it counts, and what comes later does not.
            value = expand(value, found)
        found[name] = value
    return found


def _rows(environ: Mapping[str, str]) -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in environ.items()]


def _from_whole(source: Manifest, objects: Objects) -> dict[str, str]:
    kind, reference = next(
        (kind, source[kind]) for kind in ("configMapRef", "secretRef") if kind in source
    )
    name = reference["name"]
    data = objects.config_map(name) if kind == "configMapRef" else objects.secret(name)
    if data is None:
        if reference.get("optional"):
            return {}
        raise EmulatorError(f"no {kind[:-3]} {name}")
    prefix = source.get("prefix", "")
    # Keys that cannot be names of variables are left out, with an event.
    return {prefix + k: v.decode() for k, v in data.items() if _NAME.match(prefix + k)}


def _resolve(
    source: Manifest, container: Manifest, pod: Pod, place: Place, objects: Objects
) -> str | None:
    if "fieldRef" in source:
        return field_value(source["fieldRef"]["fieldPath"], pod, place)
    if "resourceFieldRef" in source:
        return resource_value(source["resourceFieldRef"], container)
    for kind, look_up in (
        ("configMapKeyRef", objects.config_map),
        ("secretKeyRef", objects.secret),
    ):
        if kind in source:
            reference = source[kind]
            data = look_up(reference["name"])
            if data is not None and reference["key"] in data:
                return data[reference["key"]].decode()
            if reference.get("optional"):
                return None
            raise EmulatorError(f"no key {reference['key']} in {kind[:-6]} {reference['name']}")
    raise EmulatorError(f"unknown source of a variable: {', '.join(source)}")


def field_value(path: str, pod: Pod, place: Place) -> str:
    """Return a field of the downward API; an absent label or annotation is empty."""
    keyed = _KEYED.match(path)
    if keyed:
        rows = pod.labels if keyed[1] == "labels" else pod.annotations
        return rows.get(keyed[2], "")
    fields = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.uid,
        "spec.nodeName": place.node,
        "spec.serviceAccountName": pod.spec.get("serviceAccountName", "default"),
        "status.hostIP": place.node_address,
        "status.podIP": place.address,
        "status.podIPs": place.address,
    }
    if path not in fields:
        raise EmulatorError(f"no field of the downward API: {path}")
    return fields[path]


def resource_value(reference: Manifest, container: Manifest) -> str:
    """Return a resource of a container, in whole divisors, rounded up.

    Raises:
        EmulatorError: if there is no such request or limit; a node's size is not known here.
    """
    kind, _, name = reference["resource"].partition(".")
    amount = container.get("resources", {}).get(kind, {}).get(name)
    if amount is None:
        raise EmulatorError(f"the container has no {reference['resource']}")
    return str(in_units_of(str(amount), str(reference.get("divisor", "1"))))
