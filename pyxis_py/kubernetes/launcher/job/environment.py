"""Variables of the body, of steps and of tasks.

The body has the image's variables, those of the pod (SLURM_* of the job, from the renderer), and
the submitter's exports, which lose against the image's as they do under Pyxis. A step has the
variables of its srun, with SLURM_* of the step; each task adds its own.

Pure. Source: sbatch(1) and srun(1), OUTPUT ENVIRONMENT VARIABLES; src/common/env.c of Slurm 22.05;
pyxis 0.24 README for --container-env.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pyxis_py.kubernetes.launcher.job.allocation import Share
from pyxis_py.kubernetes.launcher.job.hostlist import compress_hosts, format_counts
from pyxis_py.kubernetes.launcher.job.job_file import Job

BIN_VARIABLE = "PYXIS_LAUNCHER_BIN"
"""The folder of Slurm's commands; first in PATH, and another one in every pod."""
CONTROLLER_VARIABLE = "PYXIS_CONTROLLER"
"""The batch host's address and port, as the commands reach it."""
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are looked for if neither the image nor the job says."""
_OURS = (BIN_VARIABLE, CONTROLLER_VARIABLE, "PYXIS_LAUNCHER_FOLDER", "PYXIS_TOKEN_FOLDER")
_PODS = ("POD_NAME", "POD_IP", "K8S_NODE_NAME", "HOSTNAME", *_OURS)
"""Variables that each pod has its own values of; those of the pod that runs srun stay there."""
_NOT_OF_IMAGE = ("SLURM_", "PYXIS_", "KUBERNETES_")
_IDENTITY = ("USER", "LOGNAME", "HOME", "PWD", "SHLVL", "_", *_PODS)


def body_environment(
    job: Job, pod: Mapping[str, str], secrets: Mapping[str, str], start: int
) -> dict[str, str]:
    """Return the variables of the batch script.

    Args:
        pod: the variables that the kubelet started the launcher with.
        secrets: values of `job.secrets`.
        start: when the job starts, in seconds since 1970.
    """
    environ = dict(pod)
    for name, value in (*job.exports.items(), *secrets.items()):
        if name not in pod or name in job.container_env:
            environ[name] = value
    environ.update(job_variables(job, start))
    host = job.host
    environ.update({
        "ENVIRONMENT": "BATCH",
        "SLURMD_NODENAME": host,
        "SLURM_NODEID": str(job.number),
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_GTIDS": "0",
        "SLURM_PRIO_PROCESS": "0",
        "SLURM_TOPOLOGY_ADDR": host,
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
        "SLURM_NODE_ALIASES": "(null)",
    })  # fmt: skip
    if not environ.get("SLURM_RESTART_COUNT", "0").strip("0"):
        # As Slurm: only a job that was started before has it.
        environ.pop("SLURM_RESTART_COUNT", None)
    if job.gpus:
        environ["CUDA_VISIBLE_DEVICES"] = _join(range(job.gpus))
        environ["GPU_DEVICE_ORDINAL"] = _join(range(job.gpus))
    return environ


def job_variables(job: Job, start: int) -> dict[str, str]:
    """Return variables of the job that the pod template cannot have."""
    found = {
        "SLURM_JOB_ID": str(job.job_id),
        "SLURM_JOBID": str(job.job_id),
        "SLURM_JOB_NODELIST": compress_hosts(job.hosts),
        "SLURM_NODELIST": compress_hosts(job.hosts),
        "SLURM_JOB_START_TIME": str(start),
    }
    if job.time_limit is not None:
        found["SLURM_JOB_END_TIME"] = str(start + job.time_limit)
    if job.element:
        found["SLURM_ARRAY_TASK_ID"] = job.element
    return found


class Step(NamedTuple):
    """A step as its tasks see it.

    Attributes:
        shares: what it has of each of its nodes, in the order of the nodes.
        cpus_per_task: 0 unless srun was asked for a number.
        launcher: address and port of the pod where srun runs.
        extra: further variables, from srun's options.
    """

    job_id: str
    number: int
    hosts: tuple[str, ...]
    shares: tuple[Share, ...]
    cpus_per_task: int
    distribution: str
    launcher: tuple[str, int]
    umask: int
    preserve: bool = False
    extra: tuple[tuple[str, str], ...] = ()

    @property
    def ntasks(self) -> int:
        """Tasks of the whole step."""
        return sum(len(share.tasks) for share in self.shares)


def step_environment(base: Mapping[str, str], step: Step) -> dict[str, str]:
    """Return the variables that all tasks of a step share.

    Args:
        base: the variables of srun, after --export.
    """
    environ = {name: value for name, value in base.items() if name not in _PODS}
    for name in ("SLURM_STEP_GPUS", "SLURM_TASK_PID"):
        environ.pop(name, None)
    nodes = compress_hosts(step.hosts)
    counts = format_counts(len(share.tasks) for share in step.shares)
    number, tasks = str(len(step.hosts)), str(step.ntasks)
    environ.update({
        "SLURM_STEP_ID": str(step.number),
        "SLURM_STEPID": str(step.number),
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_NUM_NODES": number,
        "SLURM_STEP_NUM_TASKS": tasks,
        "SLURM_STEP_TASKS_PER_NODE": counts,
        "SLURM_STEP_LAUNCHER_PORT": str(step.launcher[1]),
        "SLURM_TASKS_PER_NODE": counts,
        "SLURM_DISTRIBUTION": step.distribution,
        "SLURM_LAUNCH_NODE_IPADDR": step.launcher[0],
        "SLURM_SRUN_COMM_HOST": step.launcher[0],
        "SLURM_SRUN_COMM_PORT": str(step.launcher[1]),
        "SLURM_UMASK": f"{step.umask:04o}",
        "SLURM_PRIO_PROCESS": environ.get("SLURM_PRIO_PROCESS", "0"),
        "SRUN_DEBUG": "3",
    })  # fmt: skip
    if not step.preserve:
        environ.update({"SLURM_NNODES": number, "SLURM_NTASKS": tasks, "SLURM_NPROCS": tasks})
    if step.cpus_per_task:
        environ["SLURM_CPUS_PER_TASK"] = str(step.cpus_per_task)
    environ.update(step.extra)
    return environ


def task_environment(
    base: Mapping[str, str], share: Share, place: tuple[int, int], local: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of one task.

    Args:
        base: the variables of the step.
        share: what the step has of the node.
        place: the node's number in the step, and the task's among those of the node.
        local: variables that belong to the node: see `local_variables`.
    """
    environ = dict(base)
    environ.update(local)
    environ.update({
        "SLURM_NODEID": str(place[0]),
        "SLURM_PROCID": str(share.tasks[place[1]]),
        "SLURM_LOCALID": str(place[1]),
        "SLURM_GTIDS": _join(share.tasks),
        "SLURM_CPUS_ON_NODE": str(share.cpus),
    })  # fmt: skip
    if share.gpus:
        environ["SLURM_STEP_GPUS"] = _join(share.gpus)
        environ["SLURM_GPUS_ON_NODE"] = str(len(share.gpus))
    return environ


def local_variables(
    job: Job, pod: Mapping[str, str], bin_folder: str, controller: str
) -> dict[str, str]:
    """Return what is the same for all tasks of one pod, and different in another one."""
    found = {name: pod[name] for name in _PODS if name in pod}
    found.update({
        BIN_VARIABLE: bin_folder,
        CONTROLLER_VARIABLE: controller,
        "SLURMD_NODENAME": job.host,
        "SLURM_TOPOLOGY_ADDR": job.host,
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
    })  # fmt: skip
    return found


def move_path(path: str, old: str, new: str) -> str:
    """Return a PATH with this pod's folder of commands in front, and no other pod's."""
    parts = [part for part in path.split(":") if part not in (old, new)]
    return ":".join([new, *parts])


def image_variables(pod: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that (as far as a process can tell) come from the image."""
    return {
        name: value
        for name, value in pod.items()
        if name not in _IDENTITY and not name.startswith(_NOT_OF_IMAGE)
    }


def apply_image(
    environ: Mapping[str, str], image: Mapping[str, str], kept: Iterable[str]
) -> dict[str, str]:
    """Let the image's variables win over those of a step that starts a container under Pyxis.

    Args:
        kept: names of --container-env, which the job's values win for.
    """
    names = set(kept)
    return {**environ, **{name: value for name, value in image.items() if name not in names}}


def export_environment(environ: Mapping[str, str], text: str) -> dict[str, str]:
    """Return the variables that `srun --export` lets through; SLURM_* always are.

    Args:
        text: `ALL`, `NONE`, or a list of names and of NAME=value, perhaps with ALL.
    """
    items = _split_export(text) if text else ["ALL"]
    words = {item.upper() for item in items if "=" not in item}
    if "ALL" in words:
        found = dict(environ)
    else:
        kept = ("SLURM_", "PYXIS_", "PMI_")
        found = {name: value for name, value in environ.items() if name.startswith(kept)}
        if "PATH" in environ:
            found["PATH"] = environ["PATH"]
    for item in items:
        name, equals, value = item.partition("=")
        if equals:
            found[name] = value
        elif name in environ:
            found[name] = environ[name]
    return found


def _split_export(text: str) -> list[str]:
    """Cut at commas, but for those within quotes of a value."""
    items, quote = [""], ""
    for character in text:
        if character in "'\"" and quote in ("", character):
            quote = "" if quote else character
        elif character == "," and not quote:
            items.append("")
        else:
            items[-1] += character
    return [item for item in items if item]


def _join(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def bind_gpus(text: str, share: Share, place: int, per_task: int) -> tuple[int, ...]:
    """Return the GPUs that one task sees.

    Args:
        text: the value of --gpu-bind, "" without it.
        place: the task's number among those of the node.
        per_task: GPUs of each task, 0 if srun was not asked for a number.
    """
    words = [word for word in text.lower().split(",") if word != "verbose"]
    kind, _, value = ",".join(words).partition(":")
    count = len(share.tasks)
    if kind in ("", "closest") and not per_task or kind == "none" or not share.gpus:
        return share.gpus
    if kind in ("map_gpu", "mask_gpu"):
        return _mapped_gpus(kind, value, share, place)
    if kind == "single":
        # So many tasks in a row share one GPU.
        return (share.gpus[place // max(1, int(value or 1)) % len(share.gpus)],)
    size = int(value) if kind == "per_task" and value else per_task
    size = size or len(share.gpus) // count or 1
    first = place * size % len(share.gpus)
    return tuple(share.gpus[first : first + size])


def _mapped_gpus(kind: str, value: str, share: Share, place: int) -> tuple[int, ...]:
    entries = [entry for part in value.split(",") if part for entry in _repeated(part)]
    if not entries:
        return share.gpus
    entry = entries[place % len(entries)]
    if kind == "map_gpu":
        number = int(entry, 16 if entry.startswith("0x") else 10)
        return (share.gpus[number],) if number < len(share.gpus) else share.gpus
    mask = int(entry, 16)
    return tuple(gpu for bit, gpu in enumerate(share.gpus) if mask >> bit & 1)


def _repeated(part: str) -> Sequence[str]:
    entry, star, times = part.partition("*")
    return [entry] * (int(times) if star and times.isdecimal() else 1)
