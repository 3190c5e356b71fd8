"""What srun says about tasks that failed: one line for those that failed alike."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pyxis_py.kubernetes.launcher.commands.client import complain
from pyxis_py.kubernetes.launcher.job.hostlist import compress_hosts
from pyxis_py.kubernetes.launcher.job.statuses import describe_status
from pyxis_py.kubernetes.launcher.srun.options import Srun
from pyxis_py.kubernetes.launcher.wire.loop import Loop, Timer

GATHER = 0.1
"""Seconds in which lines are gathered: a step of a thousand tasks fails as one."""


class TaskReport:
    """Gathers statuses and prints them."""

    def __init__(self, loop: Loop, srun: Srun, hosts: Sequence[str]) -> None:
        self._loop = loop
        self._quiet = srun.has("quiet")
        self._hosts = hosts
        self._found: dict[int, list[tuple[int, int]]] = {}
        self._timer: Timer | None = None

    def add(self, task: int, node: int, status: int) -> None:
        """Note a task that did not exit with 0; --quiet is about those that exited."""
        if self._quiet and not os.WIFSIGNALED(status):
            return
        self._found.setdefault(status, []).append((task, node))
        if self._timer is None:
            self._timer = self._loop.call_later(GATHER, self.flush)

    def flush(self) -> None:
        """Print what has been gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        found, self._found = self._found, {}
        for status, places in found.items():
            tasks = sorted(task for task, _ in places)
            nodes = sorted({node for _, node in places})
            hosts = compress_hosts(self._hosts[node] for node in nodes)
            numbers = compress_hosts(map(str, tasks)).strip("[]")
            word = "task" if len(tasks) == 1 else "tasks"
            complain("srun", f"{hosts}: {word} {numbers}: {describe_status(status)}")
