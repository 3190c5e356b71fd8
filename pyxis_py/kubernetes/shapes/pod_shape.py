"""The shape of a pod template, with the fields that are ever rendered, and no others.

Narrower than the API on purpose: a field that nobody renders is a mistake when it shows up.

Pure. Source: Kubernetes API 1.34 to 1.37, PodTemplateSpec.
"""

from __future__ import annotations

from pyxis_py.kubernetes.shapes.language import ListOf, MapOf, Number, Record, Switch, Text
from pyxis_py.kubernetes.shapes.profile_shape import (
    DNS_LABEL,
    DNS_NAME,
    LABEL_KEY,
    LABEL_VALUE,
    NAME,
    QUANTITY,
    TOLERATION,
)

LABEL = Text(DNS_LABEL, longest=63, what="a DNS label")
NAME_1035 = Text(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", longest=63, what="a DNS-1035 label")
LABELS = MapOf(Text(LABEL_VALUE, longest=63, what="a label's value"), LABEL_KEY)
ANNOTATIONS = MapOf(Text(), LABEL_KEY)
ABSOLUTE = Text(r"/[^\x00]*", what="an absolute path")
MOUNT_PATH = Text(r"/[^\x00:]*", what="an absolute path without a colon")
SUB_PATH = Text(r"(?!/)(?!\.\.(/|$))(?!.*/\.\.(/|$))[^\x00]+", what="a relative path without ..")
QUANTITIES = MapOf(Text(QUANTITY, what="a quantity"), LABEL_KEY)
POSITIVE = Number(1)

_FIELD = Record(
    {
        "fieldPath": Text(
            r"metadata\.name|status\.podIP|spec\.nodeName"
            rf"|metadata\.(labels|annotations)\['{LABEL_KEY}'\]",
            what="a field of the downward API",
        )
    },
    required=("fieldPath",),
)
_KEY_REF = Record({"name": NAME, "key": Text(r"[A-Za-z0-9._-]+")}, required=("name", "key"))
_ENV = Record(
    {
        "name": Text(r"[A-Za-z_][A-Za-z0-9_]*", what="a variable's name"),
        "value": Text(),
        "valueFrom": Record(
            {"fieldRef": _FIELD, "secretKeyRef": _KEY_REF}, one_of=("fieldRef", "secretKeyRef")
        ),
    },
    required=("name",),
    one_of=("value", "valueFrom"),
)
_CONTAINER_SECURITY = Record({
    "allowPrivilegeEscalation": Switch(),
    "privileged": Switch(),
    "readOnlyRootFilesystem": Switch(),
    "capabilities": Record({
        "drop": ListOf(Text(choices=("ALL",))),
        "add": ListOf(Text(choices=("IPC_LOCK",))),
    }),
})  # fmt: skip
_VOLUME_MOUNT = Record(
    {
        "name": LABEL,
        "mountPath": MOUNT_PATH,
        "subPath": SUB_PATH,
        "readOnly": Switch(),
        "recursiveReadOnly": Text(choices=("IfPossible",)),
        "mountPropagation": Text(choices=("HostToContainer",)),
    },
    required=("name", "mountPath"),
)
_CONTAINER = Record(
    {
        "name": LABEL,
        "image": Text(r"\S+", what="an image reference"),
        "imagePullPolicy": Text(choices=("IfNotPresent",)),
        "workingDir": ABSOLUTE,
        "command": ListOf(Text(), least=1),
        "args": ListOf(Text(), least=1),
        "env": ListOf(_ENV, key=("name",)),
        "ports": ListOf(
            Record(
                {"name": Text(r"[a-z0-9-]{1,15}"), "containerPort": Number(1, 65535)},
                required=("containerPort",),
            ),
            key=("containerPort",),
        ),
        "resources": Record(
            {
                "requests": QUANTITIES,
                "limits": QUANTITIES,
                "claims": ListOf(Record({"name": LABEL}, required=("name",)), key=("name",)),
            },
            required=("requests",),
        ),
        "securityContext": _CONTAINER_SECURITY,
        "volumeMounts": ListOf(_VOLUME_MOUNT, key=("mountPath",)),
    },
    required=("name", "image", "imagePullPolicy", "env", "resources", "securityContext",
              "volumeMounts"),
    one_of=("command", "args"),
)  # fmt: skip
_INIT_CONTAINER = Record(
    {
        "name": LABEL,
        "image": Text(r"\S+", what="an image reference"),
        "imagePullPolicy": Text(choices=("IfNotPresent",)),
        "command": ListOf(Text(), least=1),
        "resources": Record({"requests": QUANTITIES, "limits": QUANTITIES}, required=("requests",)),
        "securityContext": _CONTAINER_SECURITY,
        "volumeMounts": ListOf(_VOLUME_MOUNT, key=("mountPath",)),
    },
    required=("name", "image", "imagePullPolicy", "command", "resources", "securityContext",
              "volumeMounts"),
)  # fmt: skip

_MODE = Number(0, 0o777)
_VOLUME_SOURCES = {
    "configMap": Record({"name": NAME, "defaultMode": _MODE}, required=("name",)),
    "secret": Record({"secretName": NAME, "defaultMode": _MODE}, required=("secretName",)),
    "projected": Record(
        {
            "sources": ListOf(
                Record({"configMap": Record({"name": NAME}, required=("name",))}), least=1
            ),
            "defaultMode": _MODE,
        },
        required=("sources",),
    ),
    "emptyDir": Record({
        "medium": Text(choices=("Memory",)), "sizeLimit": Text(QUANTITY, what="a quantity"),
    }),
    "persistentVolumeClaim": Record({"claimName": NAME}, required=("claimName",)),
    "nfs": Record({"server": Text(), "path": ABSOLUTE}, required=("server", "path")),
    "csi": Record(
        {"driver": NAME, "fsType": Text(), "volumeAttributes": MapOf(Text())},
        required=("driver",),
    ),
    "hostPath": Record(
        {"path": ABSOLUTE, "type": Text(choices=("", "Directory"))}, required=("path",)
    ),
    "image": Record(
        {"reference": Text(), "pullPolicy": Text(choices=("IfNotPresent",))},
        required=("reference",),
    ),
}  # fmt: skip

_EXPRESSION = Record(
    {
        "key": Text(LABEL_KEY, what="a label's key"),
        "operator": Text(choices=("In", "NotIn")),
        "values": ListOf(Text(LABEL_VALUE, longest=63, what="a label's value"), least=1),
    },
    required=("key", "operator", "values"),
)
_REQUIRED_DURING = "requiredDuringSchedulingIgnoredDuringExecution"
_AFFINITY = Record({
    "nodeAffinity": Record({
        _REQUIRED_DURING: Record(
            {
                "nodeSelectorTerms": ListOf(
                    Record({"matchExpressions": ListOf(_EXPRESSION, least=1)}), least=1
                )
            },
            required=("nodeSelectorTerms",),
        )
    }),
    "podAntiAffinity": Record({
        _REQUIRED_DURING: ListOf(
            Record(
                {
                    "labelSelector": Record({"matchLabels": LABELS}),
                    "topologyKey": Text(LABEL_KEY, what="a label's key"),
                },
                required=("labelSelector", "topologyKey"),
            )
        )
    }),
})  # fmt: skip

_IDENTITY = Number(0)
POD_SPEC = Record(
    {
        "schedulerName": NAME,
        "restartPolicy": Text(choices=("Never",)),
        "terminationGracePeriodSeconds": Number(30),
        "activeDeadlineSeconds": POSITIVE,
        "enableServiceLinks": Switch(),
        "automountServiceAccountToken": Switch(),
        "subdomain": LABEL,
        "dnsConfig": Record(
            {"searches": ListOf(Text(DNS_NAME, longest=253, what="a DNS domain"), most=32)}
        ),
        "dnsPolicy": Text(choices=("ClusterFirstWithHostNet",)),
        "hostNetwork": Switch(),
        "hostUsers": Switch(),
        "priorityClassName": NAME,
        "securityContext": Record(
            {
                "runAsUser": _IDENTITY,
                "runAsGroup": _IDENTITY,
                "supplementalGroups": ListOf(_IDENTITY),
                "runAsNonRoot": Switch(),
                "seccompProfile": Record(
                    {"type": Text(choices=("RuntimeDefault", "Unconfined"))}, required=("type",)
                ),
            },
            required=("runAsUser", "runAsGroup", "seccompProfile"),
        ),
        "imagePullSecrets": ListOf(Record({"name": NAME}, required=("name",)), key=("name",)),
        "nodeSelector": LABELS,
        "affinity": _AFFINITY,
        "tolerations": ListOf(TOLERATION),
        "resourceClaims": ListOf(
            Record(
                {"name": LABEL, "resourceClaimTemplateName": NAME},
                required=("name", "resourceClaimTemplateName"),
            ),
            key=("name",),
        ),
        "initContainers": ListOf(_INIT_CONTAINER, key=("name",), least=1, most=1),
        "containers": ListOf(_CONTAINER, key=("name",), least=1, most=1),
        "volumes": ListOf(
            Record(
                {"name": LABEL, **_VOLUME_SOURCES},
                required=("name",),
                one_of=tuple(_VOLUME_SOURCES),
            ),
            key=("name",),
        ),
    },
    required=("restartPolicy", "terminationGracePeriodSeconds", "enableServiceLinks",
              "automountServiceAccountToken", "securityContext", "containers", "volumes"),
)  # fmt: skip
POD_TEMPLATE = Record(
    {
        "metadata": Record({"labels": LABELS, "annotations": ANNOTATIONS}, required=("labels",)),
        "spec": POD_SPEC,
    },
    required=("metadata", "spec"),
)
