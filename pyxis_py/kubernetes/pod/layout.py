"""How many pods, and what each of them needs: nodes, tasks, CPUs, memory, GPUs.

Pure. Source: srun(1) and sbatch(1) for what follows from which option.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyxis_py.kubernetes.profile.site import NodeShape
from pyxis_py.kubernetes.spec.jobspec import JobSpec
from pyxis_py.kubernetes.spec.notes import Ledger
from pyxis_py.kubernetes.spec.slurm_values import Gres


@dataclass(frozen=True, slots=True)
class Layout:
    """The job in numbers; CPUs, memory (MiB, 0 for no limit) and GPUs are those of one pod.

    Attributes:
        tasks: how many tasks each pod has, in the order of the pods.
        whole_node: whether GPUs alone keep a second pod of the job off the node.
    """

    nodes: int
    tasks: tuple[int, ...]
    cpus: int
    memory: int
    gpus: int
    gpu_type: str
    gres: tuple[Gres, ...]
    whole_node: bool

    @property
    def ntasks(self) -> int:
        """Tasks of the whole job."""
        return sum(self.tasks)


def lay_out(job: JobSpec, node: NodeShape | None, ledger: Ledger) -> Layout:
    """Turn counts for nodes, tasks, CPUs and GPUs in all their forms into counts for one pod."""
    nodes = _nodes(job, ledger)
    gpus, gpu_type = _gpus(job, nodes, ledger)
    tasks = _tasks(job, nodes, gpus, ledger)
    if len(tasks) < nodes:
        text = f"{len(tasks)} tasks do not need {nodes} nodes: {len(tasks)} pods"
        ledger.warn("fewer-nodes", "--nodes", text)
        nodes = len(tasks)
    elif job.nodes and job.nodes_least == job.nodes:
        ledger.render("--nodes", f"{job.nodes} pods, one for each node")
    gpus = gpus or _gpus_of_tasks(job, tasks, ledger)
    cpus = _cpus(job, max(tasks), gpus)
    memory = _memory(job, node, cpus, gpus, ledger)
    if job.exclusive:
        if node is None:
            ledger.refuse("exclusive-shape", "--exclusive", "what a whole node has is not known")
        else:
            cpus, gpus = max(cpus, node.cpus), max(gpus, node.gpus)
            memory = memory or node.memory
            ledger.render("--exclusive", "a pod as large as the node")
    way_out = "ask for less, or correct the profile"
    if nodes == 1 and not job.nodes:
        way_out = f"name --nodes: without it a job has one pod; or {way_out}"
    _warn_of_too_much(node, (cpus, memory, gpus), way_out, ledger)
    whole = node is not None and node.gpus > 0 and gpus == node.gpus
    others = tuple(gres for gres in job.gres if gres.name != "gpu" and gres.count)
    return Layout(nodes, tasks, cpus, memory, gpus, gpu_type, others, whole)


def _nodes(job: JobSpec, ledger: Ledger) -> int:
    if job.nodes:
        if job.nodes_least != job.nodes:
            text = f"{job.nodes} pods, the largest number asked for"
            ledger.approximate("nodes-range", "--nodes", text)
        return job.nodes
    if job.nodelist:
        return len(job.nodelist)
    if job.ntasks and job.ntasks_per_node:
        return -(-job.ntasks // job.ntasks_per_node)
    if job.ntasks > 1:
        ledger.approximate("one-node", "--ntasks", "one pod, for want of --nodes")
    return 1


def _tasks(job: JobSpec, nodes: int, gpus: int, ledger: Ledger) -> tuple[int, ...]:
    if job.ntasks:
        total = job.ntasks
    elif job.ntasks_per_gpu and gpus:
        total = job.ntasks_per_gpu * gpus * nodes
    else:
        total = nodes * (job.ntasks_per_node or 1)
    nodes = min(nodes, total)
    each, more = divmod(total, nodes)
    if job.ntasks_per_node and each + bool(more) > job.ntasks_per_node:
        text = f"{total} tasks do not fit on {nodes} nodes with {job.ntasks_per_node} on each"
        ledger.refuse("invalid-value", "--ntasks-per-node", text)
    for option, value in (("ntasks", job.ntasks), ("ntasks-per-node", job.ntasks_per_node)):
        if value:
            ledger.render(f"--{option}", f"{total} tasks on {nodes} pods, started by the launcher")
    if job.ntasks_per_gpu:
        ledger.render("--ntasks-per-gpu", f"{total} tasks, started by the launcher")
    return (each + 1,) * more + (each,) * (nodes - more)


def _gpus(job: JobSpec, nodes: int, ledger: Ledger) -> tuple[int, str]:
    """GPUs of one pod and their type, but for those that are counted by tasks."""
    in_gres = tuple(gres for gres in job.gres if gres.name == "gpu")
    types = {
        gres.type
        for gres in (*in_gres, *job.gpus, *job.gpus_per_node, *job.gpus_per_task)
        if gres.type and gres.count
    }
    if len(types) > 1:
        option = "--gres" if in_gres else "--gpus-per-node" if job.gpus_per_node else "--gpus"
        ledger.refuse("gpu-mixed", option, f"GPUs of several types: {', '.join(sorted(types))}")
    counts: dict[str, int] = {}
    if in_gres:
        counts["--gres"] = sum(gres.count for gres in in_gres)
    if job.gpus_per_node:
        counts["--gpus-per-node"] = sum(gres.count for gres in job.gpus_per_node)
    if job.gpus:
        total = sum(gres.count for gres in job.gpus)
        counts["--gpus"] = total // nodes
        if total % nodes:
            text = f"{total} GPUs cannot be divided among {nodes} nodes"
            ledger.refuse("gpus-indivisible", "--gpus", text)
    if len(set(counts.values())) > 1:
        text = "different numbers of GPUs: " + ", ".join(f"{k} {v}" for k, v in counts.items())
        ledger.refuse("invalid-value", next(iter(counts)), text)
    for option, count in counts.items():
        ledger.render(option, f"{count} GPUs for each pod")
    return next(iter(counts.values()), 0), next(iter(sorted(types)), "")


def _gpus_of_tasks(job: JobSpec, tasks: tuple[int, ...], ledger: Ledger) -> int:
    if job.gpus_per_task:
        each = sum(gres.count for gres in job.gpus_per_task)
        if min(tasks) != max(tasks):
            text = "every pod has the GPUs of the fullest one"
            ledger.approximate("gpus-uneven", "--gpus-per-task", text)
        else:
            ledger.render("--gpus-per-task", f"{each * max(tasks)} GPUs for each pod")
        return each * max(tasks)
    if job.ntasks_per_gpu:
        if any(count % job.ntasks_per_gpu for count in tasks):
            text = f"{max(tasks)} tasks of a node do not fill GPUs"
            ledger.refuse("gpus-indivisible", "--ntasks-per-gpu", text)
        return max(tasks) // job.ntasks_per_gpu
    return 0


def _cpus(job: JobSpec, tasks: int, gpus: int) -> int:
    if job.cpus_per_task:
        cpus = job.cpus_per_task * tasks
    elif job.cpus_per_gpu and gpus:
        cpus = job.cpus_per_gpu * gpus
    else:
        cpus = tasks
    return max(cpus, job.mincpus)


def _memory(job: JobSpec, node: NodeShape | None, cpus: int, gpus: int, ledger: Ledger) -> int:
    if job.memory is None:
        return 0
    option = "--mem" if job.memory_per == "node" else f"--mem-per-{job.memory_per}"
    if job.memory == 0:
        if node is None:
            ledger.refuse("mem-zero", option, "how much memory a whole node has is not known")
            return 0
        ledger.render(option, f"{node.memory} MiB, all that a pod can have of the node")
        return node.memory
    memory = job.memory * {"node": 1, "cpu": cpus, "gpu": gpus}[job.memory_per]
    if not memory:
        ledger.refuse("invalid-value", option, "the job has no GPUs")
    ledger.render(option, f"{memory} MiB as request and limit")
    return memory


def _warn_of_too_much(
    node: NodeShape | None, wanted: tuple[int, int, int], way_out: str, ledger: Ledger
) -> None:
    if node is None:
        return
    cpus, memory, gpus = wanted
    asked = (
        ("cpu-headroom", "--cpus-per-task", cpus, node.cpus, "CPUs"),
        ("memory-headroom", "--mem", memory, node.memory, "MiB"),
        ("gpu-headroom", "--gpus-per-node", gpus, node.gpus, "GPUs"),
    )
    for code, option, needed, there, unit in asked:
        if needed > there:
            text = f"{needed} {unit}, but a pod can have {there}: it will stay pending"
            ledger.warn(code, option, text, way_out=way_out)
