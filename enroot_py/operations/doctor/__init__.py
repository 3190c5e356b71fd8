"""Examine this machine: what of it keeps containers from working, and the commands that mend it.

Nothing is changed. Made for the place where it matters, `srun enroot doctor` among them: what a
login node allows says little about a compute node inside a step's limits.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

from enroot_py.errors import EnrootError
from enroot_py.operations.doctor.findings import Finding, Status, fault, ok
from enroot_py.operations.doctor.folders import (
    examine_configuration,
    examine_credentials,
    examine_folders,
    examine_hooks,
    examine_mounts,
    examine_names,
)
from enroot_py.operations.doctor.gpus import examine_gpus
from enroot_py.operations.doctor.kernel import (
    examine_kernel,
    examine_programs,
    read_fuse_mode,
    read_switches,
)
from enroot_py.operations.doctor.probe import try_steps
from enroot_py.settings import load_settings

__all__ = ["Finding", "Status", "doctor"]


def doctor(*, registries: Sequence[str] = (), offline: bool = False) -> tuple[Finding, ...]:
    """Examine this machine and return the findings, in the order in which they are shown.

    Args:
        registries: hosts to ask; if there are none, those with credentials, else Docker Hub.
        offline: ask no registry.
    """
    findings = [_host()]
    try:
        settings = load_settings()
    except EnrootError as error:
        remedy = f"# {error.hint}" if error.hint else "# mend the file or the variable named above"
        return (*findings, fault("configuration", str(error), remedy))
    keep = os.geteuid() == 0 and settings.allow_superuser
    attempts = try_steps(keep_user_namespace=keep)
    findings += examine_kernel(attempts, read_switches(), read_fuse_mode())
    findings += examine_programs(settings.native_overlayfs)
    findings += examine_gpus(settings)
    findings.append(examine_configuration(settings))
    findings += examine_names(settings)
    findings += examine_folders(settings)
    findings += examine_hooks(settings)
    findings += examine_mounts(settings)
    findings.append(examine_credentials(settings))
    if not offline:
        from enroot_py.operations.doctor.registries import examine_registries

        findings += examine_registries(registries, settings)
    return tuple(findings)


def _host() -> Finding:
    system = os.uname()
    text = f"{system.nodename}, Linux {system.release} {system.machine}"
    text += f", Python {platform.python_version()}"
    job, step = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_STEP_ID")
    if job:
        text += f", Slurm job {job}" + (f" step {step}" if step else "")
    return ok("host", text)
