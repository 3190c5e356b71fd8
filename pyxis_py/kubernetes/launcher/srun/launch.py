"""What srun tells agents: the program, its variables and folder, for each node of a step."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

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
from pyxis_py.kubernetes.launcher.job.limits import own_limits
from pyxis_py.kubernetes.launcher.job.places import find_places
from pyxis_py.kubernetes.launcher.srun.containers import ContainerStep, read_container
from pyxis_py.kubernetes.launcher.srun.multi_prog import parse_programs
from pyxis_py.kubernetes.launcher.srun.options import MPI_TYPES, Srun
from pyxis_py.kubernetes.launcher.srun.step_streams import StepStreams
from pyxis_py.kubernetes.launcher.wire import messages


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


def launch_content(
    srun: Srun,
    client: Client,
    environ: Mapping[str, str],
    facts: tuple[dict[str, Any], tuple[Share, ...], StepStreams, Mapping[int, list[str]] | None],
) -> tuple[Step, Callable[[int, Share], bytes]]:
    """Return the step, and a function that makes the message for one node of it.

    Args:
        environ: srun's own variables.
        facts: the batch host's answer, the nodes' shares, streams, and --multi-prog's programs.

    Raises:
        CommandLineError: if the options ask for another container than the job's.
    """
    created, shares, streams, programs = facts
    container = read_container(srun, client.job)
    umask = os.umask(0)
    os.umask(umask)
    step = Step(
        job_id=str(client.job.job_id),
        number=int(created["number"]),
        hosts=tuple(created["hosts"]),
        shares=shares,
        cpus_per_task=srun.cpus_per_task,
        distribution=_distribution(srun, shares),
        launcher=(environ.get("POD_IP") or "127.0.0.1", client.controller[1]),
        umask=umask,
        preserve=srun.has("preserve-env"),
        extra=_extra(srun),
    )
    base = step_environment(export_environment(environ, srun.text("export")), step)
    secrets = _take_secrets(client, base)
    content: dict[str, Any] = {
        "step": step.number,
        "environ": base,
        "secrets": secrets,
        "gpuBind": srun.text("gpu-bind"),
        "gpusPerTask": max(0, srun.gpus_per_task),
        "cpuBind": srun.text("cpu-bind"),
        "cpusPerTask": srun.cpus_per_task,
        "directory": _directory(srun, container),
        "umask": umask,
        "limits": own_limits(),
        "streams": streams.modes,
        "stdinTask": streams.stdin_task,
        "append": srun.text("open-mode").startswith("a"),
        "unbuffered": srun.has("unbuffered"),
        "imageKept": None if container is None else container.kept,
        "bin": environ.get(BIN_VARIABLE, ""),
        "pmi": _places(shares) if srun.text("mpi").lower() == "pmi2" else [],
    }

    def for_node(place: int, share: Share) -> bytes:
        own: dict[str, Any] = {"place": place, "share": share}
        if programs is None:
            own["argv"] = list(srun.command)
        else:
            own["programs"] = {str(task): programs[task] for task in share.tasks}
        return messages.encode({**content, **own})

    return step, for_node


def _places(shares: tuple[Share, ...]) -> list[int]:
    """Return the number of each task's node in the step."""
    places = {task: place for place, share in enumerate(shares) for task in share.tasks}
    return [places[task] for task in sorted(places)]


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


def _directory(srun: Srun, container: ContainerStep | None) -> str | None:
    """Where tasks start; None for the folder in which the pod's container started."""
    if container is not None:
        # As under Pyxis, where --chdir is about the node.
        return container.directory or None
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
