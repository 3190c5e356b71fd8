"""Strict validation with the schemas of Kubernetes and of the CRDs themselves.

Rules for CRD schemas: every object with properties is closed, the root's metadata is Kubernetes'
ObjectMeta, int-or-string and nullable are spelled out, and keys of list maps are unique.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

FOLDER = Path(__file__).with_name("schemas")
VERSIONS = ("1.34.0", "1.36.0", "1.37.0")
CRDS = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): "jobset.x-k8s.io_jobsets.yaml",
    ("batch.volcano.sh/v1alpha1", "Job"): "batch.volcano.sh_jobs.yaml",
    ("resource.nvidia.com/v1beta1", "ComputeDomain"): "resource.nvidia.com_computedomains.yaml",
    ("kueue.x-k8s.io/v1beta2", "Workload"): "kueue.x-k8s.io_workloads.yaml",
    ("bus.volcano.sh/v1alpha1", "Command"): "bus.volcano.sh_commands.yaml",
}
WITHOUT_SCHEMA = {("scheduling.x-k8s.io/v1alpha1", "PodGroup")}


@functools.cache
def kubernetes_schemas(version: str) -> dict[str, Any]:
    """The strict JSON schemas of a Kubernetes version."""
    loaded: dict[str, Any] = json.loads((FOLDER / f"kubernetes-{version}-strict.json").read_text())
    return loaded


@functools.cache
def crd_schema(name: str, api_version: str) -> dict[str, Any]:
    """The schema in one file of a CustomResourceDefinition."""
    document = yaml.load((FOLDER / name).read_text(), Loader=yaml.CSafeLoader)
    version = api_version.rpartition("/")[2]
    found = next(row for row in document["spec"]["versions"] if row["name"] == version)
    schema: dict[str, Any] = found["schema"]["openAPIV3Schema"]
    return schema


def _closed(schema: Any, *, junctor: bool = False) -> Any:
    if isinstance(schema, list):
        return [_closed(item, junctor=junctor) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        key: {name: _closed(item, junctor=junctor) for name, item in value.items()}
        if key == "properties"
        else _closed(value, junctor=junctor or key in ("allOf", "anyOf", "oneOf", "not"))
        if key in ("items", "additionalProperties", "allOf", "anyOf", "oneOf", "not")
        else value
        for key, value in schema.items()
        if key not in ("default", "format", "description")
    }
    if result.get("x-kubernetes-int-or-string"):
        result.pop("anyOf", None)
        result["type"] = ["integer", "string"]
    if schema.get("format") == "int32":
        result.setdefault("minimum", -(2**31))
        result.setdefault("maximum", 2**31 - 1)
    if result.get("nullable") and isinstance(result.get("type"), str):
        result["type"] = [result["type"], "null"]
    if (
        "properties" in result
        and "additionalProperties" not in result
        and not result.get("x-kubernetes-preserve-unknown-fields")
        and not junctor
    ):
        result["additionalProperties"] = False
    return result


@functools.cache
def _validator(version: str, api_version: str, kind: str) -> Draft202012Validator:
    kubernetes = kubernetes_schemas(version)
    definitions = kubernetes.get("$defs", kubernetes)
    if (api_version, kind) in CRDS:
        schema = _closed(crd_schema(CRDS[api_version, kind], api_version))
        meta = next(name for name in definitions if name.endswith("ObjectMeta"))
        schema["properties"]["metadata"] = {"$ref": f"#/$defs/{meta}"}
        return Draft202012Validator({**schema, "$defs": definitions})
    root = kubernetes["roots"][f"{api_version}/{kind}"]
    reference = root if str(root).startswith("#") else f"#/$defs/{root}"
    return Draft202012Validator({"$ref": reference, "$defs": definitions})


def problems(manifest: dict[str, Any], version: str) -> list[str]:
    """Everything that the reference schemas of a Kubernetes version find wrong."""
    api_version, kind = manifest["apiVersion"], manifest["kind"]
    validator = _validator(version, api_version, kind)
    found = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(manifest)]
    if (api_version, kind) in CRDS:
        schema = crd_schema(CRDS[api_version, kind], api_version)
        found += list(_duplicates(manifest, schema, "$"))
        found += list(_rules(manifest))
    return found


def _duplicates(value: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            below = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            if isinstance(below, dict):
                yield from _duplicates(item, below, f"{path}.{key}")
    elif isinstance(value, list):
        keys = schema.get("x-kubernetes-list-map-keys")
        if keys:
            defaults = {
                key: schema["items"]["properties"].get(key, {}).get("default") for key in keys
            }
            rows = [tuple(item.get(key, defaults[key]) for key in keys) for item in value]
            if len(set(rows)) != len(rows):
                yield f"{path}: duplicate {keys}"
        for number, item in enumerate(value):
            yield from _duplicates(item, schema.get("items", {}), f"{path}[{number}]")


def _rules(manifest: dict[str, Any]) -> Iterator[str]:
    """The CEL rules of the CRDs that a new object can break."""
    if manifest["kind"] == "JobSet":
        spec = manifest["spec"]
        in_order = spec.get("startupPolicy", {}).get("startupPolicyOrder") == "InOrder"
        if in_order and any("dependsOn" in job for job in spec["replicatedJobs"]):
            yield "$.spec: startupPolicy InOrder and dependsOn exclude each other"
        for policy in spec.get("volumeClaimPolicies", []):
            if any(row.get("metadata", {}).get("namespace") for row in policy["templates"]):
                yield "$.spec.volumeClaimPolicies: a template with a namespace"
