"""What srun tells agents: the program, its variables and folder, for each node of a step."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from pyxis_py.kubernetes.launcher.commands.client import Client
from pyxis_py.kubernetes.launcher.job.allocation import Share
from pyxis_py.kubernetes.launcher.job.command_line import CommandLineError
from pyxis_py.kubernetes.launcher.job.environment import (
    BIN_VARIABLE,
    Step,
    export_environment,
    step_environment,
)
from pyxis_py.kubernetes.launcher.job.job_file import Job
from pyxis_py.kubernetes.launcher.job.launch_order import LaunchOrder
from pyxis_py.kubernetes.launcher.job.limits import own_limits
from pyxis_py.kubernetes.launcher.job.places import find_places
from pyxis_py.kubernetes.launcher.srun.containers import ContainerStep, read_container
from pyxis_py.kubernetes.launcher.srun.multi_prog import parse_programs
from pyxis_py.kubernetes.launcher.srun.options import MPI_TYPES, Srun
from pyxis_py.kubernetes.launcher.srun.step_streams import StepStreams


def check_mpi(srun: Srun, job: Job) -> None:
    """Refuse what there is no server for, unless the job was submitted with `--allow mpi-server`.

    Raises:
        CommandLineError: for any type but none.
    """
    kind = srun.text("mpi").lower() or "none"
    if kind not in MPI_TYPES and not kind.startswith("pmix_"):
        raise CommandLineError(f"--mpi: not a type: {kind!r}")
    if kind not in ("none", "pmi2") and not job.ignore_mpi:
        raise CommandLineError(
            f"mpi-server: --mpi={kind}: there is no such server in a pod: start MPI programs with "
            "mpirun, which finds the job's nodes by itself; other programs need no --mpi"
        )


def read_programs(srun: Srun, ntasks: int) -> dict[int, list[str]] | None:
    """Return the program of each task with --multi-prog, None without.

    Raises:
        CommandLineError: if the file is malformed or leaves a task out.
        OSError: if it cannot be read.
    """
    if not srun.has("multi-prog"):
        return None
    with open(srun.command[0], encoding="utf-8", errors="surrogateescape") as file:
        return parse_programs(file.read(), ntasks, srun.command[1:])


class CreatedStep(NamedTuple):
    """The batch host's answer: the step's number, its nodes, and what it has of each."""

    number: int
    hosts: tuple[str, ...]
    shares: tuple[Share, ...]


def order_tasks(
    srun: Srun,
    client: Client,
    created: CreatedStep,
    streams: StepStreams,
    programs: Mapping[int, list[str]] | None,
) -> list[LaunchOrder]:
    """Return an order for each node of a step.

    Args:
        programs: those of --multi-prog.

    Raises:
        CommandLineError: if the options ask for another container than the job's.
    """
    order = _order(srun, client, created)._replace(
        streams=tuple(streams.modes), stdin_task=streams.stdin_task
    )
    command = list(srun.command)
    return [
        order._replace(
            place=place,
            share=share,
            programs={task: programs[task] if programs else command for task in share.tasks},
        )
        for place, share in enumerate(created.shares)
    ]


def _order(srun: Srun, client: Client, created: CreatedStep) -> LaunchOrder:
    """Return what is the same for all nodes."""
    container = read_container(srun, client.job)
    umask = os.umask(0)
    os.umask(umask)
    environ = export_environment(os.environ, srun.text("export"))
    environ = step_environment(environ, _step(srun, client, created, umask))
    secrets = _take_secrets(client, environ)
    return LaunchOrder(
        step=created.number,
        place=0,
        share=created.shares[0],
        programs={},
        environ=environ,
        secrets=tuple(secrets),
        image_kept=None if container is None else container.kept,
        bin=os.environ.get(BIN_VARIABLE, ""),
        directory=_directory(srun, container),
        umask=umask,
        limits=own_limits(),
        streams=(),
        stdin_task=0,
        append=srun.text("open-mode").startswith("a"),
        unbuffered=srun.has("unbuffered"),
        gpu_bind=srun.text("gpu-bind"),
        gpus_per_task=max(0, srun.gpus_per_task),
        cpu_bind=srun.text("cpu-bind"),
        cpus_per_task=srun.cpus_per_task,
        places=_places(created.shares) if srun.text("mpi").lower() == "pmi2" else (),
    )


def _step(srun: Srun, client: Client, created: CreatedStep, umask: int) -> Step:
    return Step(
        job_id=str(client.job.job_id),
        number=created.number,
        hosts=created.hosts,
        shares=created.shares,
        cpus_per_task=srun.cpus_per_task,
        distribution=_distribution(srun, created.shares),
        launcher=(os.environ.get("POD_IP") or "127.0.0.1", client.controller[1]),
        umask=umask,
        preserve=srun.has("preserve-env"),
        extra=_extra(srun),
    )


def _places(shares: tuple[Share, ...]) -> tuple[int, ...]:
    """Return the number of each task's node in the step."""
    places = {task: place for place, share in enumerate(shares) for task in share.tasks}
    return tuple(places[task] for task in sorted(places))


def _take_secrets(client: Client, environ: dict[str, str]) -> list[str]:
    """Take out of the variables what every pod has in a file: it need not travel."""
    folder = find_places(os.environ).token_folder
    found = []
    for name in client.job.secrets:
        try:
            path = os.path.join(folder, f"env.{name}")
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                same = environ.get(name) == file.read()
        except OSError:
            continue
        if same:
            del environ[name]
            found.append(name)
    return found


def _directory(srun: Srun, container: ContainerStep | None) -> str:
    """Where tasks start; "" for the folder in which the pod's container started."""
    if container is not None:
        # As under Pyxis, where --chdir is about the node.
        return container.directory
    return os.path.abspath(srun.text("chdir")) if srun.has("chdir") else os.getcwd()


def _distribution(srun: Srun, shares: tuple[Share, ...]) -> str:
    """The name that SLURM_DISTRIBUTION has; Slurm calls one task on each node cyclic."""
    text = srun.text("distribution").partition("=")[0].partition(",")[0]
    if text and not text.startswith("*"):
        return text
    return "cyclic" if sum(len(share.tasks) for share in shares) <= len(shares) else "block"


def _extra(srun: Srun) -> tuple[tuple[str, str], ...]:
    found = []
    if srun.has("label"):
        found.append(("SLURM_LABELIO", "1"))
    if srun.has("overcommit"):
        found.append(("SLURM_OVERCOMMIT", "1"))
    return tuple(found)
