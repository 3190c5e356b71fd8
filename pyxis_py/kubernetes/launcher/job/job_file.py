"""job.json and the variables of the pod: which job this is, and which of its nodes.

Pure, but for `read_job` and `read_token`. Source: docs/adr/0061.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyxis_py.kubernetes.launcher.job.hostlist import parse_counts

VERSION = 1
SHORTEST_TOKEN = 16
"""Characters; the renderer makes 64."""


class JobFileError(Exception):
    """job.json, the token or a variable of the pod is not what the renderer writes."""


class Signal(NamedTuple):
    """`--signal`: which, how many seconds before the end, and whether for the body alone."""

    name: str
    seconds: int
    batch_only: bool


class Job(NamedTuple):
    """The job as every pod knows it.

    Attributes:
        hosts: node names, in the order of their numbers.
        number: this pod's number.
        tasks: tasks on each node.
        memory: MiB of each node, 0 for no limit.
        time_limit: seconds, None for none.
        grace: seconds between SIGTERM and SIGKILL of a pod.
        output: the job's output file as given, patterns unexpanded.
        directory: where the script starts if that is in the pod; "" for the pod's own folder.
        options: values of sbatch's options that are the launcher's.
        exports: variables that the submitter exports; `secrets` are files of the token's folder.
        ignore_mpi: whether `srun --mpi=pmix` starts programs without a server for MPI.
        image: --container-image as given, "" if job.json does not say.
        contained: whether steps have the job's --container-* options, as Slurm hands them on; not
            if the image is that of a step.
        mounts: where --container-mounts are in the pod; None if job.json does not say.
        element: SLURM_ARRAY_TASK_ID, "" if the job is no element of an array.
    """

    job_id: int
    name: str
    arguments: tuple[str, ...]
    hosts: tuple[str, ...]
    number: int
    tasks: tuple[int, ...]
    cpus_per_task: int
    cpus: int
    gpus: int
    gpus_per_task: int
    memory: int
    time_limit: int | None
    grace: int
    requeue: bool
    port: int
    output: str
    directory: str
    container_env: tuple[str, ...]
    exports: dict[str, str]
    secrets: tuple[str, ...]
    options: dict[str, str]
    umask: int
    ignore_mpi: bool
    image: str
    contained: bool
    mounts: tuple[str, ...] | None
    element: str
    signal: Signal | None

    @property
    def host(self) -> str:
        """This pod's node name."""
        return self.hosts[self.number]

    def subject(self, index: int) -> bytes:
        """What a connection to node `index` is about; elements of an array share one token."""
        return f"{self.hosts[0]} {index}".encode()


def read_job(path: str, environ: Mapping[str, str]) -> Job:
    """Read job.json.

    Raises:
        JobFileError: if it is missing, malformed or of another version.
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError) as error:
        raise JobFileError(f"cannot read {path}: {error}") from error
    return parse_job(content, environ)


def parse_job(content: Any, environ: Mapping[str, str]) -> Job:
    """Return the job of job.json's content for the pod with these variables.

    Raises:
        JobFileError: if the content is of another version or lacks something.
    """
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise JobFileError(
            "job.json is of another version than this launcher; render the job again with the "
            "launcher that belongs to it"
        )
    try:
        return _parse(content, environ)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise JobFileError(f"job.json: {error!r}") from error


def _parse(content: dict[str, Any], environ: Mapping[str, str]) -> Job:
    index = int(environ.get("SLURM_NODEID") or 0)
    job_id, hosts, element = _identity(content, environ)
    if not 0 <= index < len(hosts):
        raise ValueError(f"node {index} of {len(hosts)}")
    limit, mounts = content["timeLimitSeconds"], content.get("containerMounts")
    return Job(
        job_id=job_id,
        name=str(content["jobName"]),
        arguments=tuple(map(str, content["arguments"])),
        hosts=hosts,
        number=index,
        tasks=tuple(parse_counts(content["tasksPerNode"])),
        cpus_per_task=int(content["cpusPerTask"]),
        cpus=int(content["cpusPerNode"]),
        gpus=int(content["gpusPerNode"]),
        gpus_per_task=int(content["gpusPerTask"]),
        memory=int(content["memPerNodeMiB"]),
        time_limit=None if limit is None else int(limit),
        grace=int(content["graceSeconds"]),
        requeue=bool(content["requeue"]),
        port=int(content["controlPort"]),
        output=str(content["output"]),
        directory=str(content.get("directory", "")),
        container_env=tuple(map(str, content["containerEnv"])),
        exports={str(name): str(value) for name, value in content["exportEnv"].items()},
        secrets=tuple(map(str, content["secretEnv"])),
        options={str(name): str(value) for name, value in content["options"].items()},
        umask=int(content.get("umask", 0o022)),
        ignore_mpi=bool(content.get("ignoreMpi", False)),
        image=str(content.get("containerImage", "")),
        contained=bool(content.get("containerOfSteps", False)),
        mounts=None if mounts is None else tuple(map(str, mounts)),
        element=element,
        signal=_signal(content.get("signal")),
    )


def _identity(
    content: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[int, tuple[str, ...], str]:
    """Return the job's number, its hosts, and its element of an array or ""."""
    pattern = content["hostPattern"]
    array_index = environ.get("PYXIS_ARRAY_INDEX", "")
    if array_index:
        # Every pod of an Indexed Job is an element of the array, and a job of one node.
        element = str(content["arrayIndices"][int(array_index)])
        job_id = int(content["jobId"]) + int(array_index)
        return job_id, (pattern.format(index=array_index),), element
    element = environ.get("SLURM_ARRAY_TASK_ID", "")
    numbers = range(int(content["nodes"]))
    hosts = tuple(pattern.format(index=number, task=element) for number in numbers)
    return int(environ.get("SLURM_JOB_ID") or content["jobId"]), hosts, element


def _signal(content: Mapping[str, Any] | None) -> Signal | None:
    if content is None:
        return None
    return Signal(str(content["name"]), int(content["seconds"]), bool(content["batchOnly"]))


def read_token(path: str) -> bytes:
    """Return the job's token.

    Raises:
        JobFileError: if there is none, or one that could be guessed.
    """
    try:
        with open(path, "rb") as file:
            token = file.read(4096).strip()
    except OSError as error:
        raise JobFileError(f"cannot read the job's token: {error.strerror}") from error
    if len(token) < SHORTEST_TOKEN:
        raise JobFileError("the job's token is too short to be one")
    return token
