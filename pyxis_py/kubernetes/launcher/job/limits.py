"""Resource limits: those of the shell that calls srun hold for its tasks, as far as pods allow.

Source: srun(1), --propagate; slurm.conf(5), PropagateResourceLimits.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping

PROPAGATED = (
    "AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "STACK",
)  # fmt: skip
"""Names of limits, without RLIMIT_."""

_FOUND = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in PROPAGATED}


def own_limits() -> dict[str, int]:
    """Return the soft limits that this process was started with; -1 for none."""
    return dict(_FOUND)


def raise_file_limit() -> None:
    """Let this process open as many files as it may: a step can have a thousand connections."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def set_limits(limits: Mapping[str, int]) -> None:
    """Set soft limits of this process, none beyond its hard ones.

    Raises:
        OSError: if the kernel refuses one.
    """
    for name, wanted in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(number)[1]
        beyond = hard != resource.RLIM_INFINITY and (wanted < 0 or wanted > hard)
        resource.setrlimit(number, (hard if beyond else wanted, hard))
