"""A job specification to manifests: pure, deterministic, complete or refused.

Objects come in the order in which they should be created; what a job mounts stands before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyxis_py.kubernetes.pod.context import (
    Context,
    Element,
    Manifest,
    RenderOptions,
    elements,
    plan_job,
)
from pyxis_py.kubernetes.pod.devices import (
    CHANNEL_CLAIM,
    Devices,
    compute_domain,
    pod_devices,
)
from pyxis_py.kubernetes.pod.environment import read_exports
from pyxis_py.kubernetes.pod.template import note_container
from pyxis_py.kubernetes.profile.site import Profile
from pyxis_py.kubernetes.render.indexed_job import indexed_job
from pyxis_py.kubernetes.render.jobset import jobset
from pyxis_py.kubernetes.render.objects import config_map, secret, service
from pyxis_py.kubernetes.render.queueing import check_elsewhere
from pyxis_py.kubernetes.render.slurm_bridge import bridged_job
from pyxis_py.kubernetes.render.validate import check_manifests
from pyxis_py.kubernetes.render.volcano_job import volcano_job
from pyxis_py.kubernetes.spec.jobspec import JobSpec
from pyxis_py.kubernetes.spec.notes import Ledger, Note


@dataclass(frozen=True, slots=True)
class Rendering:
    """Manifests in order of creation, and what became of every option."""

    manifests: tuple[Manifest, ...]
    notes: tuple[Note, ...]


def render_job(job: JobSpec, profile: Profile, options: RenderOptions, ledger: Ledger) -> Rendering:
    """Render a job for a target.

    Raises:
        RefusedError: naming everything that has no equal there.
        ManifestRuleError: if a manifest breaks a rule of the API server or a webhook.
    """
    context = plan_job(job, profile, options, ledger)
    note_container(context)
    check_elsewhere(context)
    exports = read_exports(context)
    devices = pod_devices(context)
    manifests = [config_map(context, exports), secret(context, exports), *devices.templates]
    for element in elements(context):
        if CHANNEL_CLAIM in devices.claims:
            manifests.append(compute_domain(context, element))
        manifests += _job_objects(context, element, devices)
    ledger.close()
    check_manifests(manifests)
    return Rendering(tuple(manifests), ledger.notes)


def _job_objects(context: Context, element: Element, devices: Devices) -> list[Manifest]:
    if context.options.target == "volcano":
        return [volcano_job(context, element, devices)]
    if context.array_of_pods:
        return [indexed_job(context, element, devices)]
    if context.options.target == "kueue":
        return [jobset(context, element, devices)]
    headless = service(context, element)
    if context.options.target == "kueue-job":
        return [headless, indexed_job(context, element, devices)]
    return [headless, *bridged_job(context, element, devices)]
