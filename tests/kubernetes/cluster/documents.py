"""Discovery and OpenAPI documents of the stub API server, made from the schema files."""

from __future__ import annotations

import functools
from typing import Any

from tests.kubernetes.cluster.kinds import KINDS, UNCHECKED, Kind
from tests.kubernetes.reference_schemas import (
    CRDS,
    WITHOUT_SCHEMA,
    crd_schema,
    kubernetes_schemas,
)

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force", "pretty")


def version(kubernetes: str) -> dict[str, str]:
    """/version."""
    major, minor, _ = kubernetes.split(".")
    return {"major": major, "minor": minor, "gitVersion": f"v{kubernetes}", "platform": "linux"}


def groups(served: tuple[Kind, ...] = KINDS) -> dict[str, Any]:
    """/apis."""
    versions: dict[str, list[str]] = {}
    for kind in served:
        if kind.group:
            versions.setdefault(kind.group, [])
            if kind.version not in versions[kind.group]:
                versions[kind.group].append(kind.version)
    rows = [
        {
            "name": group,
            "versions": [{"groupVersion": f"{group}/{name}", "version": name} for name in names],
            "preferredVersion": {"groupVersion": f"{group}/{names[0]}", "version": names[0]},
        }
        for group, names in versions.items()
    ]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": rows}


def resources(group_version: str, served: tuple[Kind, ...] = KINDS) -> dict[str, Any] | None:
    """The resource list of one group and version."""
    rows: list[dict[str, Any]] = []
    for kind in served:
        if kind.group_version != group_version:
            continue
        row = {"name": kind.plural, "singularName": kind.kind.lower(), "namespaced": True,
               "kind": kind.kind, "verbs": VERBS, "shortNames": list(kind.short)}  # fmt: skip
        rows.append(row)
        if kind.kind == "Pod":
            rows.append({**row, "name": "pods/log", "verbs": ["get"], "shortNames": []})
            rows.append({**row, "name": "pods/exec", "verbs": ["create", "get"], "shortNames": []})
    if not rows:
        return None
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
            "resources": rows}  # fmt: skip


def openapi_index(served: tuple[Kind, ...] = KINDS) -> dict[str, Any]:
    """/openapi/v3."""
    roots = dict.fromkeys(kind.root for kind in served)
    return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in roots}}


@functools.cache
def openapi(root: str, kubernetes: str, served: tuple[Kind, ...] = KINDS) -> dict[str, Any] | None:
    """/openapi/v3/ROOT: paths with the parameters that kubectl looks for, and all schemas."""
    rows = [kind for kind in served if kind.root == root]
    if not rows:
        return None
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string"}} for name in _PARAMETERS
    ]
    paths: dict[str, Any] = {}
    schemas = (
        _rewritten(kubernetes_schemas(kubernetes)["$defs"]) if _built_in(rows, kubernetes) else {}
    )
    for kind in rows:
        group = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        name, schema = _schema(kind, kubernetes)
        schemas[name] = {**schema, "x-kubernetes-group-version-kind": [group]}
        reference = {"$ref": f"#/components/schemas/{name}"}
        operation = {
            "parameters": parameters,
            "x-kubernetes-group-version-kind": group,
            "requestBody": {"content": {"application/json": {"schema": reference}}},
            "responses": {"200": {"description": "OK"}},
        }
        path = f"/{kind.root}/namespaces/{{namespace}}/{kind.plural}"
        paths[path] = {"post": {**operation, "x-kubernetes-action": "post"}}
        paths[f"{path}/{{name}}"] = {"patch": {**operation, "x-kubernetes-action": "patch"}}
    return {"openapi": "3.0.0", "info": {"title": "stub", "version": kubernetes}, "paths": paths,
            "components": {"schemas": schemas}}  # fmt: skip


def _built_in(rows: list[Kind], kubernetes: str) -> bool:
    roots = kubernetes_schemas(kubernetes)["roots"]
    return any(f"{kind.group_version}/{kind.kind}" in roots for kind in rows)


def _schema(kind: Kind, kubernetes: str) -> tuple[str, dict[str, Any]]:
    key = (kind.group_version, kind.kind)
    if key in CRDS:
        schema = dict(crd_schema(CRDS[key], kind.group_version))
        return f"{kind.group}.{kind.version}.{kind.kind}", schema
    if key in WITHOUT_SCHEMA or key in UNCHECKED:
        return f"{kind.group}.{kind.version}.{kind.kind}", OPEN
    root = str(kubernetes_schemas(kubernetes)["roots"][f"{kind.group_version}/{kind.kind}"])
    name = root.rpartition("/")[2]
    return name, dict(_rewritten(kubernetes_schemas(kubernetes)["$defs"][name]))


def _rewritten(schema: Any) -> Any:
    """JSON Schema as OpenAPI 3.0 has it: references elsewhere, `nullable`, one type."""
    if isinstance(schema, list):
        return [_rewritten(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        key: value.replace("#/$defs/", "#/components/schemas/")
        if key == "$ref"
        else _rewritten(value)
        for key, value in schema.items()
        if key not in ("$schema", "additionalProperties") or isinstance(value, dict)
    }
    kinds = result.get("type")
    if isinstance(kinds, list):
        rest = [kind for kind in kinds if kind != "null"]
        if len(rest) == 1:
            result["type"] = rest[0]
        else:
            del result["type"]
            result["oneOf"] = [{"type": kind} for kind in rest]
    return result
