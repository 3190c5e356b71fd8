"""What a job under Slurm and one in emulated pods have in common, names apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_NUMBER = re.compile(r"\d+\Z")

BATCH = (
    "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NAME", "SLURM_JOB_PARTITION", "SLURM_JOB_QOS",
    "SLURM_JOB_ACCOUNT", "SLURM_CLUSTER_NAME", "SLURM_SUBMIT_DIR", "SLURM_JOB_USER",
    "SLURM_JOB_UID", "SLURM_JOB_GID", "SLURM_JOB_NODELIST", "SLURM_NODELIST",
    "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_CPUS_PER_TASK",
    "SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU",
    "SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS", "SLURM_RESTART_COUNT",
    "SLURM_NODEID", "SLURMD_NODENAME", "SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN",
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_GTIDS", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_STEP", "SLURM_NODE_ALIASES", "SLURM_DISTRIBUTION", "CUDA_VISIBLE_DEVICES",
    "IN_IMAGE",
)  # fmt: skip
"""Variables of a batch script that are compared: set or not, and to what."""

STEP = (
    *BATCH, "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASK_PID", "SLURM_STEP_GPUS",
    "SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST", "SLURM_SRUN_COMM_PORT",
    "SLURM_STEP_LAUNCHER_PORT", "SLURM_UMASK",
)  # fmt: skip
"""Variables of a task that are compared."""

NOT_COMPARED = {
    "SLURM_JOB_START_TIME": "from Slurm 23.02 on; the test Slurm is 22.05",
    "SLURM_JOB_END_TIME": "from Slurm 23.02 on; the test Slurm is 22.05",
    "SLURM_SUBMIT_HOST": "the name of another machine",
    "SLURM_CONF": "there is no Slurm in a pod",
    "SLURM_WORKING_CLUSTER": "where slurmctld is, and there is none",
    "SLURM_PRIO_PROCESS": "the nice value of who called sbatch, which no pod inherits",
    "SLURM_EXPORT_ENV": "of sbatch --export, which is carried out when manifests are rendered",
    "SLURM_GET_USER_ENV": "of sbatch --export, likewise",
    "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0": "of heterogeneous jobs, which are refused",
}
"""Variables of the specification and of the test Slurm that are not, and why."""
# SLURM_SPANK_*: what Slurm passes plugins on in; there are none in a pod.

_HIDDEN = ("SLURM_TASK_PID", "SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT")
_ADDRESSES = ("SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST")


@dataclass(frozen=True, slots=True)
class Names:
    """What differs between two clusters by necessity.

    Attributes:
        node: what comes before a node's number.
        first: the number of the first node.
        job: the job's id.
        folder: where the job was submitted.
    """

    node: str
    first: int
    job: str
    folder: Path

    def normalise(self, text: str) -> str:
        """Put the same words in place of names, in host lists too."""
        text = text.replace(str(self.folder), "FOLDER")
        text = re.sub(rf"\b{re.escape(self.node)}(\[[^\]]+\]|\d+\b)", self._nodes, text)
        return re.sub(rf"\b{self.job}\b", "JOB", text) if len(self.job) > 3 else text

    def _nodes(self, match: re.Match[str]) -> str:
        shifted = re.sub(r"\d+", lambda number: str(int(number[0]) - self.first), match[1])
        return f"node{shifted}"


def sections(text: str) -> dict[str, list[str]]:
    """Return the lines below each `== title`."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in text.splitlines():
        if line.startswith("== "):
            title = line[3:]
            found[title] = []
        else:
            found.setdefault(title, []).append(line)
    return found


def read_variables(path: Path) -> dict[str, str]:
    """Return what `env -0` has written."""
    rows = (row.partition("=") for row in path.read_text(errors="replace").split("\0") if row)
    return {name: value for name, _, value in rows}


def comparable(
    variables: Mapping[str, str], which: tuple[str, ...], names: Names
) -> dict[str, str]:
    """Return the compared ones of these variables, normalised."""
    found = {}
    for name in which:
        if name not in variables:
            continue
        value = variables[name]
        if name in ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_ARRAY_JOB_ID") and value == names.job:
            value = "JOB"
        if name in _HIDDEN and _NUMBER.match(value):
            value = "a number"
        if name in _ADDRESSES and re.fullmatch(r"\d+(\.\d+){3}", value):
            value = "an address"
        found[name] = names.normalise(value)
    return found


def unknown(variables: Mapping[str, str]) -> set[str]:
    """Return Slurm's variables that are neither compared nor known to differ."""
    known = {*STEP, *NOT_COMPARED}
    return {
        name
        for name in variables
        if name.startswith("SLURM") and not name.startswith("SLURM_SPANK_") and name not in known
    }
