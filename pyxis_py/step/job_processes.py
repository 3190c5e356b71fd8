"""Processes in containers that a job has left behind because its slurmstepd was killed.

A container that was started straight from its image has no folder by which it could be found. What
runs in it is told by the job that its cgroup, or its environment, names; programs that have cleared
their environment by the user namespace that they share with others of the job.
"""

from __future__ import annotations

import os
import signal
import time

from enroot_py import read_environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PATIENCE = 5.0  # seconds for killed processes to end
_EXEC_PATIENCE = 0.5  # seconds of a search, for processes that execute a program just then


def end_job_processes(job: int) -> None:
    """Kill what this user has left in containers of a job, and wait for the end."""
    deadline = time.monotonic() + _PATIENCE
    missed = 0
    # Two looks without any: a process that had just been forked is in no list, and its parent gone.
    while missed < 2 and time.monotonic() < deadline:
        pids = find_job_processes(job)
        missed = 0 if pids else missed + 1
        end_processes(pids)


def end_processes(pids: Iterable[int]) -> None:
    """Kill processes, and wait for the end."""
    left = set(pids)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    deadline = time.monotonic() + _PATIENCE
    while left and time.monotonic() < deadline:
        left = {pid for pid in left if not _has_ended(pid)}
        time.sleep(0.01 if left else 0)


def find_job_processes(job: int) -> list[int]:
    """Return the processes of this user that are in containers of a job."""
    own = _user_namespace("self")
    inside: dict[int, str] = {}
    # The newest first: those that flee by forking are the last in the list.
    for pid in sorted(map(int, filter(str.isdecimal, os.listdir("/proc"))), reverse=True):
        namespace = _user_namespace(str(pid))
        if namespace not in ("", own) and not _has_ended(pid):
            inside[pid] = namespace
    deadline = time.monotonic() + _EXEC_PATIENCE
    shared = {
        namespace for pid, namespace in inside.items() if _is_of_job(pid, job, deadline=deadline)
    }
    return [pid for pid, namespace in inside.items() if namespace in shared]


def belongs_to_job(cgroup: str, variables: Mapping[str, str], job: int) -> bool:
    """Tell whether a process is one of a job's.

    Args:
        cgroup: as /proc/PID/cgroup has it; where Slurm names cgroups after jobs they decide.
        variables: the process's environment. Groups of a heterogeneous job have ids of their own,
            which follow that of the first, but all have the first's in SLURM_JOB_ID.
        job: the job's id.
    """
    parts = [part for part in cgroup.replace("\n", "/").split("/") if part.startswith("job_")]
    if parts:
        return parts[0] == f"job_{job}"
    first = variables.get("SLURM_JOB_ID", "")
    groups = variables.get("SLURM_HET_SIZE", "1")
    if not (first.isdecimal() and groups.isdecimal()):
        return False
    return 0 <= job - int(first) < max(int(groups), 1)


def _is_of_job(pid: int, job: int, *, deadline: float) -> bool:
    cgroup = _read(pid, "cgroup")
    # Where the cgroup tells, the variables are not needed, for which one may have to wait.
    return belongs_to_job(cgroup, {} if "/job_" in cgroup else _variables(pid, deadline), job)


def _variables(pid: int, deadline: float) -> dict[str, str]:
    items = read_environ(pid, deadline=deadline).decode("utf-8", "surrogateescape").split("\0")
    return dict(item.partition("=")[::2] for item in items if item.startswith("SLURM_"))


def _user_namespace(pid: str) -> str:
    """Return the name of a process's user namespace, "" if it is another user's or gone."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return ""
        return os.readlink(f"/proc/{pid}/ns/user")
    except OSError:
        return ""


def _has_ended(pid: int) -> bool:
    """Whether a process is gone, or only waits for its parent to notice."""
    state = _read(pid, "stat").rpartition(")")[2].split()
    return not state or state[0] in "ZX"


def _read(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read().decode("utf-8", "surrogateescape")
    except OSError:
        return ""
