"""Variables, CPUs and GPUs of each task that an order asks for.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyxis_py.kubernetes.launcher.job.binding import bind_cpus
from pyxis_py.kubernetes.launcher.job.command_line import CommandLineError
from pyxis_py.kubernetes.launcher.job.environment import (
    BIN_VARIABLE,
    DEFAULT_PATH,
    apply_image,
    bind_gpus,
    image_variables,
    move_path,
    task_environment,
)
from pyxis_py.kubernetes.launcher.job.job_file import Job
from pyxis_py.kubernetes.launcher.job.launch_order import LaunchOrder
from pyxis_py.kubernetes.launcher.job.output_names import Place

MARK = "PYXIS_STEP"
"""A variable that tells of every process which step, on which node, it belongs to.

Not one of Slurm's: mpiexec gives its own values of those to all it starts.
"""
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


class LaunchError(Exception):
    """Tasks that cannot be started as they were asked for."""


class PodFacts(NamedTuple):
    """What an agent knows of its pod.

    Attributes:
        pod: the variables that the kubelet started the launcher with.
        local: variables of every task in this pod.
        secrets: values of the job's secret variables, which srun does not send.
        directory: where the pod's container started.
        cpus: the CPUs that the pod may use, in order.
    """

    pod: Mapping[str, str]
    local: Mapping[str, str]
    secrets: Mapping[str, str]
    directory: str
    cpus: Sequence[int]


class TaskPlan(NamedTuple):
    """One task, ready to be started; `place` is what names of its files are made of."""

    number: int
    argv: list[str]
    environ: dict[str, str]
    directory: str
    cpus: tuple[int, ...]
    place: Place


def mark_of(order: LaunchOrder, job: Job) -> str:
    """Return the value of `MARK` for the tasks of an order."""
    return f"{job.hosts[0]}.{order.step}.{job.number}"


def plan_tasks(order: LaunchOrder, job: Job, facts: PodFacts) -> list[TaskPlan]:
    """Return the tasks of an order.

    Raises:
        LaunchError: if CPUs cannot be bound as asked.
    """
    base = dict(order.environ)
    base.update({name: facts.secrets[name] for name in order.secrets if name in facts.secrets})
    if order.image_kept is not None:
        base = apply_image(base, image_variables(facts.pod), order.image_kept)
    path = base.get("PATH", DEFAULT_PATH)
    base["PATH"] = move_path(path, order.bin, facts.local[BIN_VARIABLE])
    base[MARK] = mark_of(order, job)
    array_job = base.get("SLURM_ARRAY_JOB_ID", "")
    plans = []
    for local, number in enumerate(order.share.tasks):
        environ = task_environment(base, order.share, (order.place, local), facts.local)
        _show_gpus(environ, order, local, job)
        place = Place(
            job.job_id, job.name, base.get("USER", ""), job.host,
            int(array_job) if array_job.isdecimal() else job.job_id, job.element,
            str(order.step), order.place, number,
        )  # fmt: skip
        directory = order.directory or facts.directory
        cpus = _cpus(order, facts.cpus, local)
        plans.append(TaskPlan(number, order.programs[number], environ, directory, cpus, place))
    return plans


def _show_gpus(environ: dict[str, str], order: LaunchOrder, local: int, job: Job) -> None:
    """Let a task see its GPUs; without any it sees none, but the job's variables if it has none."""
    if job.gpus:
        for name in _GPU_VARIABLES:
            environ.pop(name, None)
    gpus = bind_gpus(order.gpu_bind, order.share, local, order.gpus_per_task)
    if gpus:
        environ.update(dict.fromkeys(_GPU_VARIABLES, ",".join(map(str, gpus))))


def _cpus(order: LaunchOrder, allowed: Sequence[int], local: int) -> tuple[int, ...]:
    try:
        return bind_cpus(order.cpu_bind, allowed, local, order.cpus_per_task or 1)
    except CommandLineError as error:
        raise LaunchError(str(error)) from error
