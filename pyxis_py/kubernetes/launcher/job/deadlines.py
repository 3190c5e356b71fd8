"""When a job is warned, asked to end, and ended: by its time limit, or by the cluster's SIGTERM.

Pure. Source: sbatch(1), --time and --signal; slurm.conf(5), KillWait; Kubernetes, pod lifecycle:
SIGKILL follows SIGTERM after terminationGracePeriodSeconds.
"""

from __future__ import annotations

from typing import NamedTuple

KILL_WAIT = 30.0
"""Seconds between SIGTERM and SIGKILL: Slurm's KillWait."""
LAST_SECONDS = 15.0
"""Of a pod's grace, for programs to end after SIGTERM when they were warned before."""
FAREWELL = 3.0
"""Seconds of a pod's grace that the launcher keeps for itself."""


class Deadline(NamedTuple):
    """Something to do after so many seconds: "warn" (--signal), "end" (SIGTERM) or "kill"."""

    seconds: float
    action: str


def time_limit_deadlines(limit: int | None, lead: int) -> tuple[Deadline, ...]:
    """Return what a time limit leads to, counted from the job's start.

    Args:
        limit: seconds, None for none.
        lead: seconds of --signal, 0 without it.
    """
    if limit is None:
        return ()
    found = [Deadline(float(limit), "end"), Deadline(limit + KILL_WAIT, "kill")]
    if lead:
        found.insert(0, Deadline(float(max(0, limit - lead)), "warn"))
    return tuple(found)


def eviction_deadlines(grace: int, *, warned: bool) -> tuple[Deadline, ...]:
    """Return what the SIGTERM of a pod leads to, counted from it.

    Args:
        grace: the pod's terminationGracePeriodSeconds.
        warned: whether --signal was given: it comes first then, and SIGTERM near the end.
    """
    kill = Deadline(max(0.0, grace - FAREWELL), "kill")
    if not warned:
        return Deadline(0.0, "end"), kill
    end = Deadline(max(0.0, grace - LAST_SECONDS), "end")
    return Deadline(0.0, "warn"), end, kill
