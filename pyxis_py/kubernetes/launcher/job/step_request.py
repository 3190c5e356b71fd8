"""What a step needs, as srun asks the batch host for it.

Pure.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class StepRequest(NamedTuple):
    """What the batch host is asked for; travels as JSON.

    Attributes:
        nodes: the smallest and the largest number of nodes.
        per_node: no more tasks than this on one node; 0 for as many as fit.
        cpus: CPUs of one task.
        required: nodes that have to be among those of the step.
        plane: tasks in a row on one node, for distribution "plane".
        whole: whether the step takes all CPUs of its nodes.
        gpus: GPUs of the step, of a node, of a task; -1 where not asked for.
    """

    name: str
    nodes: tuple[int, int]
    ntasks: int
    per_node: int
    cpus: int
    required: tuple[str, ...]
    excluded: tuple[str, ...]
    relative: int | None
    distribution: str
    plane: int
    overlap: bool
    whole: bool
    overcommit: bool
    gpus: int
    gpus_per_node: int
    gpus_per_task: int

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> StepRequest:
        """Return the request that `_asdict` wrote; KeyError or TypeError if it is none."""
        fields = {name: content[name] for name in cls._fields}
        for name in ("nodes", "required", "excluded"):
            fields[name] = tuple(fields[name])
        return cls(**fields)
