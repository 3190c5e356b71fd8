"""The numbers of nodes and tasks that follow from srun's options.

Pure. Source: srun(1); src/srun/libsrun/opt.c of Slurm 22.05, `_opt_args`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyxis_py.kubernetes.launcher.job.command_line import CommandLineError, parse_count, quantity
from pyxis_py.kubernetes.launcher.job.step_request import StepRequest
from pyxis_py.kubernetes.launcher.srun.options import Srun

DISTRIBUTIONS = ("block", "cyclic", "plane", "arbitrary")


def plan_request(
    srun: Srun, job_nodes: int, hostfile: Sequence[str] = ()
) -> tuple[StepRequest, list[str]]:
    """Return the request of an srun in a job of so many nodes, and warnings.

    Args:
        hostfile: hosts of SLURM_HOSTFILE, one for each task, for `-m arbitrary`.

    Raises:
        CommandLineError: if the numbers contradict one another.
    """
    warnings: list[str] = []
    distribution, plane = _distribution(srun, hostfile)
    required = _required(srun, distribution, hostfile)
    least, most = _nodes(srun, len(dict.fromkeys(required)))
    if most and len(required) > most and distribution != "arbitrary":
        warnings.append(f"the list of nodes is cut to {quantity(most, 'node')}")
        required = required[:most]
    ntasks = len(required) if distribution == "arbitrary" else _tasks(srun, least)
    if ntasks < least:
        if "nodes" in srun.chosen:
            warnings.append(f"{quantity(ntasks, 'task')} cannot use {quantity(least, 'node')}: "
                            f"{ntasks} will do")  # fmt: skip
        least = most = ntasks
    per_node = srun.ntasks_per_node
    if per_node and least * per_node != ntasks and most in (0, least):
        warnings.append(f"--ntasks-per-node={per_node} does not go with "
                        f"{quantity(ntasks, 'task')} on {quantity(least, 'node')}, and is "
                        "ignored")  # fmt: skip
        per_node = 0
    if least > job_nodes:
        raise CommandLineError(f"{quantity(least, 'node')}, but the job has {job_nodes}")
    gpus, gpus_per_node = _gpus(srun, ntasks, per_node)
    request = _request(srun)._replace(
        nodes=(least, most or least), ntasks=ntasks, per_node=per_node, required=required,
        distribution=distribution, plane=plane, gpus=gpus, gpus_per_node=gpus_per_node,
    )  # fmt: skip
    return request, warnings


def _request(srun: Srun) -> StepRequest:
    """Return what follows from one option each."""
    part = srun.has("exact") or srun.has("exclusive") or srun.cpus_per_task
    return StepRequest(
        name=srun.text("job-name") or srun.command[0].rpartition("/")[2],
        nodes=(1, 1),
        ntasks=1,
        per_node=0,
        cpus=_cpus(srun),
        required=(),
        excluded=srun.exclude,
        relative=srun.relative,
        distribution="block",
        plane=0,
        overlap=srun.has("overlap"),
        whole=not part or srun.has("whole"),
        overcommit=srun.has("overcommit"),
        gpus=srun.gpus,
        gpus_per_node=srun.gpus_per_node,
        gpus_per_task=srun.gpus_per_task,
    )


def _required(srun: Srun, distribution: str, hostfile: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes that are asked for by name; for an arbitrary distribution, each task's."""
    if distribution != "arbitrary":
        return srun.nodelist
    hosts = tuple(hostfile) or srun.nodelist
    if not hosts:
        raise CommandLineError("--distribution=arbitrary needs --nodelist or SLURM_HOSTFILE")
    if "ntasks" not in srun.chosen:
        return hosts
    if srun.ntasks > len(hosts):
        raise CommandLineError(
            f"{quantity(srun.ntasks, 'task')}, but the list names {quantity(len(hosts), 'host')}"
        )
    return hosts[: srun.ntasks]


def _nodes(srun: Srun, listed: int) -> tuple[int, int]:
    least, most = srun.nodes
    given = srun.has("nodes")
    if most and most < least:
        raise CommandLineError(f"--nodes: from {least} to {most}")
    most = most or least
    if listed:
        least = max(listed, least) if given else listed
        least = min(least, most) if given and "nodes" in srun.chosen else least
        most = max(most, least)
    return max(least, 1), most


def _tasks(srun: Srun, nodes: int) -> int:
    if srun.ntasks:
        return srun.ntasks
    if srun.ntasks_per_gpu:
        if srun.gpus > 0:
            return srun.ntasks_per_gpu * srun.gpus
        if srun.gpus_per_node > 0:
            return srun.ntasks_per_gpu * srun.gpus_per_node * nodes
    return nodes * (srun.ntasks_per_node or 1)


def _cpus(srun: Srun) -> int:
    if srun.cpus_per_task:
        return srun.cpus_per_task
    text = srun.text("cpus-per-gpu")
    if text and srun.gpus_per_task > 0:
        return parse_count(text, "--cpus-per-gpu") * srun.gpus_per_task
    return 1


def _gpus(srun: Srun, ntasks: int, per_node: int) -> tuple[int, int]:
    """Return the GPUs of the step and of a node; -1 where they are not asked for.

    What --ntasks-per-gpu makes of all tasks is all the step's, not a node's.
    """
    asked = max(srun.gpus, srun.gpus_per_node, srun.gpus_per_task) >= 0
    tasks = srun.ntasks_per_gpu
    if asked or not tasks or not srun.ntasks:
        return srun.gpus, srun.gpus_per_node
    return -(-ntasks // tasks), -(-per_node // tasks) if per_node else -1


def _distribution(srun: Srun, hostfile: Sequence[str]) -> tuple[str, int]:
    """Return the distribution over nodes, and the size of a plane."""
    text = srun.text("distribution").lower()
    first = text.partition(":")[0].partition(",")[0]
    if first.startswith("plane"):
        size = text.partition("=")[2]
        if not size:
            raise CommandLineError("--distribution=plane needs a size: plane=4")
        return "plane", parse_count(size, "--distribution=plane")
    if first in ("", "*", "pack", "nopack"):
        return "block", 0
    if first == "arbitrary" and "distribution" not in srun.chosen:
        # The job's own, whose list named the cluster's nodes: without a new one it says nothing.
        return ("arbitrary" if hostfile or srun.nodelist else "block"), 0
    if first not in DISTRIBUTIONS:
        raise CommandLineError(f"--distribution: not a distribution over nodes: {text!r}")
    return first, 0
