"""The commands that a script finds in its PATH.

Pure.
"""

from __future__ import annotations

COMMANDS = ("srun", "scontrol", "squeue", "scancel", "pyxis-rsh")
"""What the script can call."""
ABSENT = {
    "sbatch": "jobs are submitted from outside: pyxis kube submit",
    "salloc": "there is nothing to wait for inside a job",
    "sattach": "use kubectl logs -f",
    "sbcast": "put the file on a mounted filesystem",
    "sacct": "there is no accounting: use kubectl get",
    "sacctmgr": "there is no accounting database",
    "sinfo": "use kubectl get nodes",
    "sstat": "there is no accounting: use the cluster's metrics",
    "sprio": "the cluster's queue orders jobs",
    "sshare": "the cluster's queue orders jobs",
    "sreport": "there is no accounting database",
    "strigger": "there are no triggers",
    "sgather": "put the file on a mounted filesystem",
}
"""Slurm's other commands, and what to do instead; each exists, to say so."""
