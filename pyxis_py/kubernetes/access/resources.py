"""The kinds of objects that jobs are made of or tell about, and their paths in the API.

Pure. Source: kubernetes.io, "Kubernetes API Concepts"; the CRDs named in docs/kubernetes.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind, as discovery lists it.

    Attributes:
        api_version: group and version, "v1" for the core group.
        kind: singular, as manifests have it.
        plural: as paths have it.
    """

    api_version: str
    kind: str
    plural: str

    @property
    def group(self) -> str:
        """The API group, "" for the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def title(self) -> str:
        """`jobsets.jobset.x-k8s.io`: what kubectl and messages call it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str, name: str = "", part: str = "") -> str:
        """Return the path of an object, of its part such as `log`, or of the whole collection."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"
        place = f"/namespaces/{namespace}" if namespace else ""
        words = [root + place, self.plural, *filter(None, (name, part))]
        return "/".join(words)


CONFIG_MAP = Resource("v1", "ConfigMap", "configmaps")
SECRET = Resource("v1", "Secret", "secrets")
SERVICE = Resource("v1", "Service", "services")
POD = Resource("v1", "Pod", "pods")
JOB = Resource("batch/v1", "Job", "jobs")
JOBSET = Resource("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets")
VOLCANO_JOB = Resource("batch.volcano.sh/v1alpha1", "Job", "jobs")
COMMAND = Resource("bus.volcano.sh/v1alpha1", "Command", "commands")
CLAIM_TEMPLATE = Resource("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates")
COMPUTE_DOMAIN = Resource("resource.nvidia.com/v1beta1", "ComputeDomain", "computedomains")
POD_GROUP = Resource("scheduling.x-k8s.io/v1alpha1", "PodGroup", "podgroups")
WORKLOADS = tuple(
    Resource(f"kueue.x-k8s.io/{version}", "Workload", "workloads")
    for version in ("v1beta2", "v1beta1")
)
LOCAL_QUEUES = tuple(
    Resource(f"kueue.x-k8s.io/{version}", "LocalQueue", "localqueues")
    for version in ("v1beta2", "v1beta1")
)
"""Newest first: what is read of them is the same in both."""

JOBS = (JOBSET, JOB, VOLCANO_JOB)
"""What a job can be."""
_RENDERED = (
    CONFIG_MAP, SECRET, SERVICE, JOB, JOBSET, VOLCANO_JOB, CLAIM_TEMPLATE, COMPUTE_DOMAIN,
    POD_GROUP, COMMAND,
)  # fmt: skip
_BY_KIND = {(row.api_version, row.kind): row for row in _RENDERED}

PROVIDERS = {
    "jobset.x-k8s.io": "JobSet",
    "kueue.x-k8s.io": "Kueue",
    "batch.volcano.sh": "Volcano",
    "bus.volcano.sh": "Volcano",
    "resource.nvidia.com": "NVIDIA's DRA driver",
    "resource.k8s.io": "Kubernetes 1.34 or newer",
    "scheduling.x-k8s.io": "the PodGroup of slurm-bridge",
}
"""What has to be installed for a group to be there."""


def resource_of(manifest: Object) -> Resource:
    """Return the resource that a rendered manifest, or an object read from a cluster, is of."""
    return _BY_KIND[manifest["apiVersion"], manifest["kind"]]
