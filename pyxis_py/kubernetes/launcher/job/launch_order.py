"""What srun tells the agent of a node: programs, variables, folder and streams of its tasks.

Pure.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pyxis_py.kubernetes.launcher.job.allocation import Share


class LaunchOrder(NamedTuple):
    """The tasks of one node of a step; travels as JSON.

    Attributes:
        step: the step's number.
        place: the node's number in the step.
        share: what the step has of the node.
        programs: arguments of each task, by its number.
        environ: variables that all tasks share, but for `secrets`: names that each pod has a file
            for.
        image_kept: variables that win over the image's; None if all do.
        bin: the folder of commands in the pod of srun, which is part of PATH.
        directory: where tasks start; "" for the folder in which the pod's container started.
        limits: soft resource limits by name.
        streams: what becomes of stdin, stdout and stderr: "null", "srun", "file:PATTERN", and for
            stderr "output", where stdout goes.
        stdin_task: the task that srun's standard input is for, or messages.ALL_TASKS.
        places: for PMI, the number of each rank's node; () without it.
    """

    step: int
    place: int
    share: Share
    programs: dict[int, list[str]]
    environ: dict[str, str]
    secrets: tuple[str, ...]
    image_kept: tuple[str, ...] | None
    bin: str
    directory: str
    umask: int
    limits: dict[str, int]
    streams: tuple[str, ...]
    stdin_task: int
    append: bool
    unbuffered: bool
    gpu_bind: str
    gpus_per_task: int
    cpu_bind: str
    cpus_per_task: int
    places: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the order as JSON takes it."""
        return self._asdict()

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> LaunchOrder:
        """Return the order that `to_json` wrote; KeyError, TypeError or ValueError for others."""
        fields = {name: content[name] for name in cls._fields}
        node, tasks, cpus, gpus = fields["share"]
        fields["share"] = Share(int(node), tuple(tasks), int(cpus), tuple(gpus))
        fields["programs"] = {int(task): list(argv) for task, argv in fields["programs"].items()}
        kept = fields["image_kept"]
        fields["image_kept"] = None if kept is None else tuple(kept)
        for name in ("secrets", "streams", "places"):
            fields[name] = tuple(fields[name])
        if set(fields["programs"]) != set(fields["share"].tasks) or len(fields["streams"]) != 3:
            raise ValueError("tasks without programs, or streams")
        return cls(**fields)
