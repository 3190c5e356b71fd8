"""Hook `50-slurm-pmi`: what MPI needs of a Slurm step, inside the container.

Source: enroot 4.1.2 conf/hooks/extra/50-slurm-pmi.sh; Slurm's mpi/pmi2 and mpi/pmix plugins.
"""

from __future__ import annotations

import os

from enroot_py import log
from enroot_py.hooks.context import NO_EDITS, Edits
from enroot_py.plan.fstab import Mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from enroot_py.hooks.context import HookContext

_OPTIONS = ("x-create=dir", "bind", "rw", "nosuid", "noexec", "nodev", "private", "nofail")

# One container may serve all tasks of a step on a node: it is then started without a task's
# identity (no SLURM_PROCID), and what of one task leaked into its environment must not reach the
# others, who have their own. The original gives every task the first one's PMI_RANK.
_OF_ONE_TASK = frozenset(
    {
        "PMI_FD",
        "PMI_ID",
        "PMI_PORT",
        "PMI_RANK",
        "PMIX_RANK",
        "SLURM_LOCALID",
        "SLURM_PROCID",
        "SLURM_TASK_PID",
    }
)

_MCA = (
    ("PMIX_PTL_MODULE", "PMIX_MCA_ptl"),
    ("PMIX_SECURITY_MODE", "PMIX_MCA_psec"),
    ("PMIX_GDS_MODULE", "PMIX_MCA_gds"),
)


def run(context: HookContext) -> Edits:
    """Pass on Slurm's, PMIx's and PMI's variables, and mount the PMIx server's folder."""
    edits = plan_pmi(context.settings.environment)
    present = tuple(mount for mount in edits.mounts if os.path.isdir(mount.source))
    if present != edits.mounts:
        log.warn("PMIX_SERVER_TMPDIR names no folder: it is not mounted")
    return Edits(present, edits.environ)


def plan_pmi(host: Mapping[str, str]) -> Edits:
    """Decide from the host's environment. Pure."""
    if not host.get("SLURM_JOB_ID") or not host.get("SLURM_STEP_ID"):
        return NO_EDITS
    shared = not host.get("SLURM_PROCID")
    prefixes = ["SLURM_", "PMI_"]
    mpi_type = host.get("SLURM_MPI_TYPE", "")
    pmix = mpi_type in ("", "pmix") or mpi_type.startswith("pmix")
    if pmix:
        prefixes.append("PMIX_")
    environ = [
        (name, host[name])
        for name in sorted(host)
        if name.startswith(tuple(prefixes)) and not (shared and name in _OF_ONE_TASK)
    ]
    mounts: tuple[Mount, ...] = ()
    if pmix:
        for source, target in _MCA:
            if host.get(source) and not host.get(target):
                environ.append((target, host[source]))
        folder = host.get("PMIX_SERVER_TMPDIR", "")
        if folder:
            mounts = (Mount(folder, folder, "none", _OPTIONS),)
    return Edits(mounts, tuple(environ))
