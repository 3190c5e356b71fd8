"""CDI documents for tests."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import yaml

MINIMAL: dict[str, object] = {
    "cdiVersion": "0.5.0",
    "kind": "vendor.com/device",
    "devices": [{"name": "one", "containerEdits": {"env": ["A=b"]}}],
}

FULL: dict[str, object] = {
    "cdiVersion": "1.1.0",
    "kind": "vendor.com/class.sub",
    "annotations": {"vendor.com/note": "text"},
    "devices": [
        {
            "name": "0",
            "annotations": {"x": "y"},
            "containerEdits": {
                "deviceNodes": [
                    {
                        "path": "/dev/x", "hostPath": "/dev/null", "type": "c", "major": 1,
                        "minor": 3, "fileMode": 438, "permissions": "rw", "uid": 0, "gid": 44,
                    }
                ],
                "additionalGids": [0, 44],
            },
        },
        {"name": "a:b-c_d.e", "containerEdits": {"env": ["X="]}},
    ],
    "containerEdits": {
        "env": ["A=b=c"],
        "mounts": [
            {"hostPath": "/etc/hosts", "containerPath": "/m", "options": ["ro"], "type": "none"}
        ],
        "hooks": [
            {
                "hookName": "createContainer", "path": "/bin/hook", "args": ["hook", "x"],
                "env": ["K=v"], "timeout": 3,
            }
        ],
        "netDevices": [{"hostInterfaceName": "eth7", "name": "eth0"}],
        "intelRdt": {"closID": "gold", "schemata": ["L3:0=f"], "enableMonitoring": True},
    },
}  # fmt: skip


def changed(base: dict[str, object], *keys: object, value: object) -> dict[str, object]:
    """A deep copy of a document with one place replaced (or removed, if `value` is ...)."""
    document = copy.deepcopy(base)
    place: object = document
    for key in keys[:-1]:
        place = place[key]  # type: ignore[index]
    if value is ...:
        del place[keys[-1]]  # type: ignore[attr-defined]
    else:
        place[keys[-1]] = value  # type: ignore[index]
    return document


def write(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document) if path.suffix == ".json" else yaml.safe_dump(document)
    path.write_text(text)
    return path
