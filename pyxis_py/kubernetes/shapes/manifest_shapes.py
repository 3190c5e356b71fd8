"""The shape of every object that is ever rendered, by apiVersion and kind.

Pure. Source: Kubernetes API 1.34 to 1.37, JobSet v0.12, Volcano v1.15, NVIDIA DRA driver v0.4.
"""

from __future__ import annotations

from pyxis_py.kubernetes.shapes.language import ListOf, MapOf, Number, Record, Shape, Switch, Text
from pyxis_py.kubernetes.shapes.pod_shape import (
    ANNOTATIONS,
    LABEL,
    LABELS,
    NAME_1035,
    POD_TEMPLATE,
    POSITIVE,
)
from pyxis_py.kubernetes.shapes.profile_shape import LABEL_KEY, NAME

_METADATA = Record(
    {"name": NAME_1035, "namespace": LABEL, "labels": LABELS, "annotations": ANNOTATIONS},
    required=("name", "namespace", "labels"),
)


def _object(api_version: str, kind: str, fields: dict[str, Shape], *required: str) -> Record:
    head: dict[str, Shape] = {
        "apiVersion": Text(choices=(api_version,)),
        "kind": Text(choices=(kind,)),
        "metadata": _METADATA,
    }
    return Record({**head, **fields}, required=("apiVersion", "kind", "metadata", *required))


_DATA_KEY = r"[A-Za-z0-9._-]{1,253}"
_CONFIG_MAP = _object(
    "v1",
    "ConfigMap",
    {
        "immutable": Switch(),
        "data": MapOf(Text(), _DATA_KEY),
        "binaryData": MapOf(Text(r"[A-Za-z0-9+/]+={0,2}", what="base64"), _DATA_KEY),
    },
    "data",
)
_SECRET = _object(
    "v1",
    "Secret",
    {
        "immutable": Switch(),
        "type": Text(choices=("Opaque",)),
        "stringData": MapOf(Text(), _DATA_KEY),
    },
    "type",
    "stringData",
)
_SERVICE = _object(
    "v1",
    "Service",
    {
        "spec": Record(
            {
                "clusterIP": Text(choices=("None",)),
                "publishNotReadyAddresses": Switch(),
                "selector": LABELS,
                "ports": ListOf(
                    Record({"name": LABEL, "port": Number(1, 65535)}, required=("name", "port")),
                    key=("name",),
                ),
            },
            required=("clusterIP", "publishNotReadyAddresses", "selector", "ports"),
        )
    },
    "spec",
)

_DISRUPTION = Record(
    {"type": Text(choices=("DisruptionTarget",)), "status": Text(choices=("True",))},
    required=("type", "status"),
)
_EXIT_CODES = Record(
    {
        "containerName": LABEL,
        "operator": Text(choices=("In",)),
        "values": ListOf(Number(1, 255), least=1, most=255),
    },
    required=("operator", "values"),
)
_JOB_SPEC = Record(
    {
        "suspend": Switch(),
        "completionMode": Text(choices=("Indexed",)),
        "completions": POSITIVE,
        "parallelism": POSITIVE,
        "backoffLimit": Number(0),
        "backoffLimitPerIndex": Number(0),
        "activeDeadlineSeconds": POSITIVE,
        "podReplacementPolicy": Text(choices=("Failed",)),
        "successPolicy": Record(
            {"rules": ListOf(Record({"succeededIndexes": Text(r"\d+")}), least=1, most=20)},
            required=("rules",),
        ),
        "podFailurePolicy": Record(
            {
                "rules": ListOf(
                    Record(
                        {
                            "action": Text(choices=("FailJob", "FailIndex", "Ignore", "Count")),
                            "onPodConditions": ListOf(_DISRUPTION, least=1),
                            "onExitCodes": _EXIT_CODES,
                        },
                        required=("action",),
                        one_of=("onPodConditions", "onExitCodes"),
                    ),
                    least=1,
                    most=20,
                )
            },
            required=("rules",),
        ),
        "ttlSecondsAfterFinished": Number(0),
        "template": POD_TEMPLATE,
    },
    required=("completionMode", "completions", "parallelism", "podReplacementPolicy",
              "podFailurePolicy", "template"),
)  # fmt: skip
_JOB = _object("batch/v1", "Job", {"spec": _JOB_SPEC}, "spec")

_RULE = Record(
    {
        "name": Text(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", what="a rule's name"),
        "action": Text(
            choices=("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts")
        ),
        "onJobFailureReasons": ListOf(
            Text(
                choices=("BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes",
                         "MaxFailedIndexesExceeded", "PodFailurePolicy")
            )
        ),
    },
    required=("name", "action"),
)  # fmt: skip
_JOBSET = _object(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    {
        "spec": Record(
            {
                "suspend": Switch(),
                "network": Record({
                    "enableDNSHostnames": Switch(),
                    "subdomain": NAME_1035,
                    "publishNotReadyAddresses": Switch(),
                }),
                "coordinator": Record(
                    {"replicatedJob": LABEL, "jobIndex": Number(0), "podIndex": Number(0)},
                    required=("replicatedJob",),
                ),
                "successPolicy": Record(
                    {"operator": Text(choices=("All", "Any")),
                     "targetReplicatedJobs": ListOf(LABEL)},
                    required=("operator",),
                ),
                "ttlSecondsAfterFinished": Number(0),
                "failurePolicy": Record(
                    {
                        "maxRestarts": Number(0),
                        "restartStrategy": Text(choices=("Recreate", "BlockingRecreate")),
                        "rules": ListOf(_RULE, key=("name",)),
                    },
                    required=("maxRestarts", "rules"),
                ),
                "replicatedJobs": ListOf(
                    Record(
                        {
                            "name": LABEL,
                            "replicas": POSITIVE,
                            "template": Record({"spec": _JOB_SPEC}, required=("spec",)),
                        },
                        required=("name", "replicas", "template"),
                    ),
                    key=("name",),
                    least=1,
                ),
            },
            required=("suspend", "network", "failurePolicy", "replicatedJobs"),
        )
    },
    "spec",
)  # fmt: skip

_NETWORK_TOPOLOGY = Record(
    {"mode": Text(choices=("hard", "soft")), "highestTierAllowed": POSITIVE}, required=("mode",)
)
_EVENTS = ("PodFailed", "PodEvicted", "TaskCompleted")
_POLICY = Record(
    {
        "exitCode": Number(),
        "event": Text(choices=_EVENTS),
        "action": Text(choices=("RestartJob", "TerminateJob", "CompleteJob")),
    },
    required=("action",),
    one_of=("exitCode", "event"),
)
_TASK = Record(
    {
        "name": LABEL,
        "replicas": POSITIVE,
        "minAvailable": POSITIVE,
        "maxRetry": POSITIVE,
        "partitionPolicy": Record(
            {
                "totalPartitions": POSITIVE,
                "partitionSize": POSITIVE,
                "minPartitions": Number(0),
                "networkTopology": _NETWORK_TOPOLOGY,
            },
            required=("totalPartitions", "partitionSize"),
        ),
        "template": POD_TEMPLATE,
    },
    required=("name", "replicas", "minAvailable", "template"),
)
_VOLCANO = _object(
    "batch.volcano.sh/v1alpha1",
    "Job",
    {
        "spec": Record(
            {
                "schedulerName": Text(choices=("volcano",)),
                "queue": NAME,
                "priorityClassName": NAME,
                "minAvailable": POSITIVE,
                "maxRetry": POSITIVE,
                "ttlSecondsAfterFinished": Number(0),
                "runningEstimate": Text(r"\d+h\d+m\d+s", what="a duration"),
                "plugins": MapOf(ListOf(Text()), "svc|env"),
                "networkTopology": _NETWORK_TOPOLOGY,
                "policies": ListOf(_POLICY),
                "tasks": ListOf(_TASK, key=("name",), least=1),
            },
            required=("schedulerName", "queue", "minAvailable", "maxRetry", "plugins", "policies",
                      "tasks"),
        )
    },
    "spec",
)  # fmt: skip

_REQUEST = Record(
    {
        "name": LABEL,
        "exactly": Record(
            {
                "deviceClassName": NAME,
                "allocationMode": Text(choices=("ExactCount",)),
                "count": POSITIVE,
                "selectors": ListOf(
                    Record(
                        {"cel": Record({"expression": Text(r"(?s).+", longest=10240)},
                                       required=("expression",))},
                        required=("cel",),
                    ),
                    least=1,
                    most=32,
                ),
            },
            required=("deviceClassName", "allocationMode", "count"),
        ),
    },
    required=("name", "exactly"),
)  # fmt: skip
_CLAIM_TEMPLATE = _object(
    "resource.k8s.io/v1",
    "ResourceClaimTemplate",
    {
        "spec": Record(
            {
                "metadata": Record({"labels": LABELS}),
                "spec": Record(
                    {
                        "devices": Record(
                            {
                                "requests": ListOf(_REQUEST, key=("name",), least=1, most=32),
                                "constraints": ListOf(
                                    Record(
                                        {
                                            "requests": ListOf(LABEL),
                                            "matchAttribute": Text(LABEL_KEY, what="an attribute"),
                                        },
                                        required=("requests", "matchAttribute"),
                                    )
                                ),
                            },
                            required=("requests",),
                        )
                    },
                    required=("devices",),
                ),
            },
            required=("spec",),
        )
    },
    "spec",
)
_COMPUTE_DOMAIN = _object(
    "resource.nvidia.com/v1beta1",
    "ComputeDomain",
    {
        "spec": Record(
            {
                "numNodes": Number(0, 0),
                "channel": Record(
                    {
                        "allocationMode": Text(choices=("Single", "All")),
                        "resourceClaimTemplate": Record({"name": NAME}, required=("name",)),
                    },
                    required=("resourceClaimTemplate",),
                ),
            },
            required=("numNodes", "channel"),
        )
    },
    "spec",
)
_POD_GROUP = _object(
    "scheduling.x-k8s.io/v1alpha1",
    "PodGroup",
    {"spec": Record({"minMember": POSITIVE}, required=("minMember",))},
    "spec",
)

MANIFESTS: dict[tuple[str, str], Record] = {
    ("v1", "ConfigMap"): _CONFIG_MAP,
    ("v1", "Secret"): _SECRET,
    ("v1", "Service"): _SERVICE,
    ("batch/v1", "Job"): _JOB,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): _JOBSET,
    ("batch.volcano.sh/v1alpha1", "Job"): _VOLCANO,
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): _CLAIM_TEMPLATE,
    ("resource.nvidia.com/v1beta1", "ComputeDomain"): _COMPUTE_DOMAIN,
    ("scheduling.x-k8s.io/v1alpha1", "PodGroup"): _POD_GROUP,
}
