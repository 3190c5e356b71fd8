"""Patches as an API server applies them: merge, strategic merge, JSON and apply."""

from __future__ import annotations

import copy
from typing import Any

import yaml

MERGE_KEYS = {
    "containers": "name", "initContainers": "name", "volumes": "name", "env": "name",
    "ports": "containerPort", "volumeMounts": "mountPath", "ownerReferences": "uid",
    "imagePullSecrets": "name", "resourceClaims": "name", "conditions": "type",
}  # fmt: skip
"""x-kubernetes-patch-merge-key of the lists that occur here."""


def patched(content_type: str, current: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Return the object that a patch makes of another one.

    Raises:
        ValueError: if the patch is of an unknown type.
    """
    patch = yaml.safe_load(body)
    if content_type == "application/merge-patch+json":
        return _merged(current, patch)
    if content_type == "application/strategic-merge-patch+json":
        return _strategic(current, patch)
    if content_type == "application/apply-patch+yaml":
        return _strategic(current, patch)
    if content_type == "application/json-patch+json":
        return _operations(current, patch)
    raise ValueError(content_type)


def _merged(current: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(current) if isinstance(current, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _strategic(current: Any, patch: Any, name: str = "") -> Any:
    if isinstance(patch, list):
        return _lists(current, patch, name)
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    result = dict(current) if isinstance(current, dict) else {}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _strategic(result.get(key), value, key)
    return result


def _lists(current: Any, patch: list[Any], name: str) -> list[Any]:
    key = MERGE_KEYS.get(name)
    if key is None or not isinstance(current, list):
        return [row for row in patch if not (isinstance(row, dict) and "$patch" in row)]
    rows = {row[key]: row for row in current}
    for row in patch:
        if row.get("$patch") == "delete":
            rows.pop(row[key], None)
        else:
            rows[row[key]] = _strategic(rows.get(row[key]), row)
    return list(rows.values())


def _operations(current: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    result = copy.deepcopy(current)
    for operation in patch:
        *path, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"][1:].split("/")
        ]
        parent: Any = result
        for part in path:
            parent = parent[int(part)] if isinstance(parent, list) else parent[part]
        key: Any = int(last) if isinstance(parent, list) else last
        if operation["op"] == "remove":
            del parent[key]
        elif operation["op"] == "test":
            if parent[key] != operation["value"]:
                raise ValueError("test failed")
        else:
            parent[key] = operation["value"]
    return result
