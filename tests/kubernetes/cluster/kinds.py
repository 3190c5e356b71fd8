"""What the stub API server serves: kinds, their paths, and the schemas that hold for them."""

from __future__ import annotations

from typing import Any, NamedTuple

from pyxis_py.kubernetes.render.validate import find_problems
from tests.kubernetes.reference_schemas import WITHOUT_SCHEMA, problems


class Kind(NamedTuple):
    """One row of discovery."""

    group_version: str
    kind: str
    plural: str
    short: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """ "" for the core group."""
        return self.group_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """Without the group."""
        return self.group_version.rpartition("/")[2]

    @property
    def root(self) -> str:
        """Path of the group and version, without a leading slash."""
        return ("apis/" if self.group else "api/") + self.group_version


KINDS = (
    Kind("v1", "ConfigMap", "configmaps", ("cm",)),
    Kind("v1", "Secret", "secrets"),
    Kind("v1", "Service", "services", ("svc",)),
    Kind("v1", "Pod", "pods", ("po",)),
    Kind("batch/v1", "Job", "jobs"),
    Kind("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates"),
    Kind("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets"),
    Kind("kueue.x-k8s.io/v1beta2", "Workload", "workloads", ("wl",)),
    Kind("kueue.x-k8s.io/v1beta2", "LocalQueue", "localqueues", ("queue",)),
    Kind("batch.volcano.sh/v1alpha1", "Job", "jobs", ("vcjob", "vj")),
    Kind("bus.volcano.sh/v1alpha1", "Command", "commands"),
    Kind("resource.nvidia.com/v1beta1", "ComputeDomain", "computedomains"),
    Kind("scheduling.x-k8s.io/v1alpha1", "PodGroup", "podgroups"),
)
BUILT_IN = ("", "batch", "resource.k8s.io")
"""Groups whose objects take strategic merge patches."""
UNCHECKED = {("kueue.x-k8s.io/v1beta2", "LocalQueue")}


def find_kind(group_version: str, plural: str) -> Kind | None:
    """The kind behind a path."""
    for kind in KINDS:
        if (kind.group_version, kind.plural) == (group_version, plural):
            return kind
    return None


def faults(manifest: dict[str, Any], version: str) -> list[str]:
    """Everything that the schema of an object's kind finds wrong, status included."""
    key = (manifest["apiVersion"], manifest["kind"])
    if key in UNCHECKED:
        return []
    if key in WITHOUT_SCHEMA:
        metadata = manifest["metadata"]
        kept = {name: metadata[name] for name in ("name", "namespace", "labels", "annotations")}
        rest = {name: value for name, value in manifest.items() if name != "status"}
        return find_problems([{**rest, "metadata": kept}])
    return problems(manifest, version)
