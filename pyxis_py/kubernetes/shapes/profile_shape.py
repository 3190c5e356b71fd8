"""The shape of a site profile, field by field.

Pure.
"""

from __future__ import annotations

from pyxis_py.kubernetes.shapes.language import ListOf, MapOf, Number, Record, Shape, Switch, Text

DNS_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
DNS_NAME = rf"{DNS_LABEL}(\.{DNS_LABEL})*"
LABEL_KEY = rf"({DNS_NAME}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?"
LABEL_VALUE = r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?"
QUANTITY = r"[0-9]{1,15}(\.[0-9]{1,9})?(m|k|[KMGTPE]i|[MGTPE])?"

NAME = Text(DNS_NAME, longest=253, what="the name of a Kubernetes object")
_LABEL = Text(DNS_LABEL, longest=63, what="a DNS label")
_KEY = Text(LABEL_KEY, longest=317, what="a label's key")
_VALUE = Text(LABEL_VALUE, longest=63, what="a label's value")
_PATH = Text(r"/[^\x00]*", what="an absolute path")
_LABELS = MapOf(_VALUE, LABEL_KEY)
_TEXTS = MapOf(Text())
_NAME_KEY = r"[A-Za-z0-9_][A-Za-z0-9_.+=@:-]*"

TOLERATION = Record({
    "key": _KEY,
    "operator": Text(choices=("Exists", "Equal")),
    "value": _VALUE,
    "effect": Text(choices=("NoSchedule", "PreferNoSchedule", "NoExecute")),
    "tolerationSeconds": Number(0),
})  # fmt: skip

_NODE = Record(
    {"cpus": Number(1), "memory": Text(QUANTITY, what="a quantity"), "gpus": Number(0)},
    required=("cpus", "memory"),
)
_TOPOLOGY = Record(
    {
        "levels": ListOf(_KEY, least=1, most=8),
        "switches": _KEY,
        "segment": _KEY,
        "switchesTier": Number(1),
        "segmentTier": Number(1),
    },
    required=("levels",),
)
_PARTITION = Record(
    {
        "queue": NAME,
        "nodeSelector": _LABELS,
        "tolerations": ListOf(TOLERATION),
        "node": _NODE,
        "topology": _TOPOLOGY,
        "maxTime": Text(what="a time limit"),
        "guaranteed": Switch(),
        "computeDomain": Switch(),
    },
    required=("queue",),
)
_QOS = Record({
    "workloadPriorityClass": NAME,
    "priorityClass": NAME,
    "preemptible": Switch(),
    "graceSeconds": Number(0),
})  # fmt: skip
_DEVICE: dict[str, Shape] = {"resource": _KEY, "deviceClass": NAME}
_GRES = Record({
    **_DEVICE,
    "types": MapOf(
        Record({**_DEVICE, "selector": Text(longest=10240), "nodeLabels": _LABELS}), _NAME_KEY
    ),
})  # fmt: skip
_MOUNT = Record(
    {
        "path": _PATH,
        "name": _LABEL,
        "pvc": NAME,
        "nfs": Record({"server": Text(), "path": _PATH}, required=("server", "path")),
        "csi": Record(
            {"driver": NAME, "fsType": Text(), "volumeAttributes": _TEXTS}, required=("driver",)
        ),
        "hostPath": _PATH,
        "image": Text(),
        "submounts": Switch(),
    },
    required=("path", "name"),
    one_of=("pvc", "nfs", "csi", "hostPath", "image"),
)
_FABRIC = Record(
    {
        "kind": Text(choices=("none", "host", "shared", "sriov", "dra", "efa", "gke")),
        "resources": MapOf(Text(QUANTITY, what="a quantity"), LABEL_KEY),
        "annotations": MapOf(Text(), LABEL_KEY),
        "deviceClass": NAME,
        "privileged": Switch(),
        "environment": MapOf(Text(), r"[A-Za-z_][A-Za-z0-9_]*"),
    },
    required=("kind",),
)

PROFILE = Record(
    {
        "version": Number(1, 1),
        "cluster": Record({
            "name": _VALUE,
            "dnsDomain": NAME,
            "namespace": _LABEL,
            "partition": Text(),
            "target": Text(choices=("kueue", "kueue-job", "volcano", "slurm-bridge")),
            "gpuApi": Text(choices=("device-plugin", "dra", "dra-extended")),
            "registry": Text(r"[a-z0-9.-]+(:\d+)?", what="a registry"),
            "launcherConfigMap": NAME,
            "pythonImage": Text(r"\S+", what="an image reference"),
            "ttlSeconds": Number(0),
            "hostnames": MapOf(_VALUE, DNS_NAME),
        }),
        "accounts": MapOf(Record({"namespace": _LABEL}, required=("namespace",)), _NAME_KEY),
        "partitions": MapOf(_PARTITION, _NAME_KEY),
        "qos": MapOf(_QOS, _NAME_KEY),
        "features": MapOf(
            Record(
                {"label": _KEY, "values": ListOf(_VALUE, least=1)}, required=("label", "values")
            ),
            _NAME_KEY,
        ),
        "gres": MapOf(_GRES, _NAME_KEY),
        "reservations": MapOf(
            Record({"nodeSelector": _LABELS}, required=("nodeSelector",)), _NAME_KEY
        ),
        "mounts": ListOf(_MOUNT, key=("path",)),
        "registries": MapOf(
            Record({
                "pullSecret": NAME,
                "users": MapOf(NAME),
                "rewrite": Text(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9._/-]+)?", what="a registry"),
            })
        ),
        "fabric": _FABRIC,
        "security": Record({
            "hostPaths": ListOf(_PATH),
            "userNamespaces": Switch(),
            "seccomp": Text(choices=("RuntimeDefault", "Unconfined")),
            "allowRoot": Switch(),
        }),
    },
    required=("version",),
)  # fmt: skip
