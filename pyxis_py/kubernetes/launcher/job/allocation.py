"""Which nodes, CPUs and GPUs of the job a step gets, and which tasks go where.

Steps that do not overlap wait for one another as Slurm's do: a step takes all CPUs of its nodes
unless it asks for its own part with --exact, --exclusive or --cpus-per-task. Memory is not divided.

Pure. Source: srun(1), --exact and --overlap; src/slurmctld/step_mgr.c and
src/common/slurm_step_layout.c for the order of nodes and tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyxis_py.kubernetes.launcher.job.command_line import quantity
from pyxis_py.kubernetes.launcher.job.step_request import StepRequest


class AllocationError(Exception):
    """The job does not have what the step asks for, now or ever."""


class Share(NamedTuple):
    """A step's part of one node.

    Attributes:
        node: the node's number in the job.
        tasks: ids of the tasks on it, in the order of their local ids.
        cpus: how many CPUs the step has there.
        gpus: numbers of its GPUs there.
    """

    node: int
    tasks: tuple[int, ...]
    cpus: int
    gpus: tuple[int, ...]


class Allocation:
    """The job's nodes, all alike, and what steps have of them.

    Attributes:
        lost: numbers of nodes that have gone; steps are given others where that is possible.
    """

    def __init__(self, hosts: Sequence[str], cpus: int, gpus: int) -> None:
        self.hosts = tuple(hosts)
        self.cpus = cpus
        self.gpus = gpus
        self.lost: set[int] = set()
        self._used_cpus = [0] * len(self.hosts)
        self._used_gpus: list[set[int]] = [set() for _ in self.hosts]

    def allocate(self, request: StepRequest) -> tuple[Share, ...] | None:
        """Give a step its part; None while other steps have it.

        Raises:
            AllocationError: if waiting would not help.
        """
        self._place(request, free=True)
        placed = self._place(request, free=False)
        if placed is None:
            return None
        if not request.overlap:
            for share in placed:
                self._used_cpus[share.node] += share.cpus
                self._used_gpus[share.node] |= set(share.gpus)
        return placed

    def release(self, request: StepRequest, shares: Sequence[Share]) -> None:
        """Take back what a step had."""
        if not request.overlap:
            for share in shares:
                self._used_cpus[share.node] -= share.cpus
                self._used_gpus[share.node] -= set(share.gpus)

    def _place(self, request: StepRequest, *, free: bool) -> tuple[Share, ...] | None:
        """Place a step, as if nothing else ran (`free`, which raises) or as things are."""
        candidates = self._candidates(request)
        capacity = {node: self._capacity(request, node, free=free) for node in candidates}
        if request.distribution == "arbitrary":
            # In the order of the list, which decides about the tasks' ids.
            nodes = self._numbers(dict.fromkeys(request.required))
            counts = [request.required.count(self.hosts[node]) for node in nodes]
            if any(capacity[node] < counts[place] for place, node in enumerate(nodes)):
                nodes = []
        else:
            nodes = self._choose(request, candidates, capacity)
            counts = _spread(request, [capacity[node] for node in nodes]) if nodes else []
        if not nodes:
            if free:
                raise AllocationError(self._shortage(request, candidates))
            return None
        ids = _number_tasks(request, counts, [self.hosts[node] for node in nodes])
        shares = []
        for place, node in enumerate(nodes):
            gpus = self._take_gpus(request, node, (counts[place], len(nodes), place), free=free)
            if gpus is None:
                return None
            cpus = self._cpus(request, counts[place])
            shares.append(Share(node, ids[place], cpus, gpus))
        return tuple(shares)

    def _numbers(self, hosts: dict[str, None]) -> list[int]:
        strange = [host for host in hosts if host not in self.hosts]
        if strange:
            raise AllocationError(f"{', '.join(strange)}: not a node of the job")
        return [self.hosts.index(host) for host in hosts]

    def _candidates(self, request: StepRequest) -> list[int]:
        required = self._numbers(dict.fromkeys(request.required))
        excluded = {self.hosts.index(host) for host in request.excluded if host in self.hosts}
        if excluded & set(required):
            raise AllocationError("a node is both asked for and excluded")
        gone = ", ".join(self.hosts[node] for node in required if node in self.lost)
        if gone:
            raise AllocationError(f"{gone}: this part of the job is lost")
        first = request.relative or 0
        others = [
            node
            for node in range(first, len(self.hosts))
            if node not in excluded and node not in required and node not in self.lost
        ]
        return required + others

    def _capacity(self, request: StepRequest, node: int, *, free: bool) -> int:
        """How many tasks a node can take."""
        cpus = self.cpus if free or request.overlap else self.cpus - self._used_cpus[node]
        if request.whole and cpus < self.cpus:
            return 0
        if request.overcommit:
            most = request.ntasks if cpus else 0
        else:
            most = cpus // request.cpus
        most = min(most, self._gpu_capacity(request, node, free=free))
        return min(most, request.per_node) if request.per_node else most

    def _gpu_capacity(self, request: StepRequest, node: int, *, free: bool) -> int:
        """How many tasks a node can take as far as its GPUs go."""
        left = self.gpus if free or request.overlap else self.gpus - len(self._used_gpus[node])
        if request.gpus_per_task > 0:
            return left // request.gpus_per_task
        if request.gpus_per_task == 0:
            wanted = 0
        elif request.gpus_per_node >= 0:
            wanted = request.gpus_per_node
        elif request.gpus >= 0:
            wanted = request.gpus // request.nodes[1]
        else:
            wanted = self.gpus
        return request.ntasks if wanted <= left else 0

    def _choose(
        self, request: StepRequest, candidates: list[int], capacity: dict[int, int]
    ) -> list[int]:
        """Return nodes that can take all tasks, in the job's order; none if there are not."""
        required = len(dict.fromkeys(request.required))
        if any(capacity[node] < 1 for node in candidates[:required]):
            return []
        usable = [node for node in candidates if capacity[node] > 0]
        least, most = request.nodes
        if request.relative is not None and usable[: least - required] != candidates[:least]:
            usable = usable if usable[:least] == candidates[:least] else []
        chosen = usable[:least]
        for node in usable[least:most]:
            if sum(capacity[other] for other in chosen) >= request.ntasks:
                break
            chosen.append(node)
        enough = sum(capacity[node] for node in chosen) >= request.ntasks
        return sorted(chosen) if len(chosen) >= least and enough else []

    def _shortage(self, request: StepRequest, candidates: list[int]) -> str:
        lost = ", ".join(self.hosts[node] for node in sorted(self.lost))
        gone = f": {lost}: this part of the job is lost" if lost else ""
        if len(candidates) < request.nodes[0]:
            count = len(candidates)
            wished = quantity(request.nodes[0], "node")
            return f"{wished}, but the job has {count} to choose from{gone}"
        wanted = max(request.gpus_per_task, request.gpus_per_node, request.gpus)
        if wanted > self.gpus * (1 if request.gpus < 0 else request.nodes[1]):
            return f"{wanted} GPUs, but the job has {self.gpus} on each node"
        return (
            f"{quantity(request.ntasks, 'task')} with {quantity(request.cpus, 'CPU')} on up to "
            f"{quantity(request.nodes[1], 'node')}, but the job has {quantity(self.cpus, 'CPU')} "
            f"and {quantity(self.gpus, 'GPU')} on each of {quantity(len(self.hosts), 'node')}{gone}"
        )

    def _cpus(self, request: StepRequest, tasks: int) -> int:
        if request.whole:
            return self.cpus
        return min(self.cpus, max(1, tasks * request.cpus))

    def _take_gpus(
        self, request: StepRequest, node: int, place: tuple[int, int, int], *, free: bool
    ) -> tuple[int, ...] | None:
        """Return GPUs of one node; None while other steps have them.

        Args:
            place: tasks on this node, nodes of the step, and this one's place among them.
        """
        tasks, nodes, number = place
        if request.gpus_per_task >= 0:
            wanted = request.gpus_per_task * tasks
        elif request.gpus_per_node >= 0:
            wanted = request.gpus_per_node
        elif request.gpus >= 0:
            wanted = request.gpus // nodes + (number < request.gpus % nodes)
        else:
            wanted = self.gpus
        if wanted > self.gpus:
            raise AllocationError(f"{wanted} GPUs on a node, but the job has {self.gpus} on each")
        used: set[int] = set() if free or request.overlap else self._used_gpus[node]
        left = [gpu for gpu in range(self.gpus) if gpu not in used]
        return tuple(left[:wanted]) if len(left) >= wanted else None


def _spread(request: StepRequest, capacity: Sequence[int]) -> list[int]:
    """Return how many tasks each node gets: in turns, planes of them if asked for."""
    counts = [0] * len(capacity)
    left = request.ntasks
    turn = request.plane if request.distribution == "plane" else 1
    while left:
        before = left
        for node, most in enumerate(capacity):
            take = min(turn, most - counts[node], left)
            counts[node] += take
            left -= take
        if left == before:
            raise AllocationError("tasks that fit nowhere")  # `_choose` has seen to it
    return counts


def _number_tasks(
    request: StepRequest, counts: Sequence[int], hosts: Sequence[str]
) -> list[tuple[int, ...]]:
    """Return the ids of each node's tasks."""
    ids: list[list[int]] = [[] for _ in counts]
    if request.distribution == "arbitrary":
        for task, host in enumerate(request.required):
            ids[hosts.index(host)].append(task)
    elif request.distribution == "block":
        first = 0
        for place, count in enumerate(counts):
            ids[place] += range(first, first + count)
            first += count
    else:
        turn = request.plane if request.distribution == "plane" else 1
        task = 0
        while task < request.ntasks:
            for place, count in enumerate(counts):
                take = min(turn, count - len(ids[place]))
                ids[place] += range(task, task + take)
                task += take
    return [tuple(tasks) for tasks in ids]
