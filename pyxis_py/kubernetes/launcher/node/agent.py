"""The agent of a pod: starts tasks of steps, carries their streams, signals and statuses."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

from pyxis_py.kubernetes.launcher.job.job_file import Job
from pyxis_py.kubernetes.launcher.job.launch_order import LaunchOrder
from pyxis_py.kubernetes.launcher.node.node_step import NodeStep
from pyxis_py.kubernetes.launcher.node.processes import Processes
from pyxis_py.kubernetes.launcher.node.task_plan import LaunchError, PodFacts
from pyxis_py.kubernetes.launcher.wire import messages
from pyxis_py.kubernetes.launcher.wire.channel import Channel
from pyxis_py.kubernetes.launcher.wire.loop import Loop


class Agent:
    """All steps that have tasks in this pod.

    Args:
        pod: the variables that the kubelet started the launcher with.
        local: variables of every task in this pod.
        secrets: values of the job's secret variables, which srun does not send.
    """

    def __init__(
        self,
        loop: Loop,
        processes: Processes,
        job: Job,
        variables: tuple[Mapping[str, str], Mapping[str, str], Mapping[str, str]],
    ) -> None:
        self.pod, self.local, self._secrets = variables
        self._directory = os.getcwd()
        self.on_idle: Callable[[], None] = lambda: None
        self._loop = loop
        self._processes = processes
        self._job = job
        self._steps: dict[int, NodeStep] = {}
        self._ending = False

    @property
    def idle(self) -> bool:
        """Whether no step has tasks here."""
        return not self._steps

    def serve(self, channel: Channel, content: dict[str, Any]) -> None:
        """Start the tasks that an srun asks for; they end when its connection does."""
        order = LaunchOrder.from_json(content)
        number = order.step
        if self._ending or number in self._steps:
            text = "the job is ending" if self._ending else f"step {number} is here already"
            channel.send(messages.REFUSED, messages.encode({"text": text, "code": 1}))
            return
        step = NodeStep(self._loop, self._processes, channel, self._job)
        self._steps[number] = step
        step.on_done = lambda: self._done(number)
        cpus = sorted(os.sched_getaffinity(0))
        facts = PodFacts(self.pod, self.local, self._secrets, self._directory, cpus)
        try:
            step.launch(order, facts)
        except LaunchError as error:
            channel.send(messages.REFUSED, messages.encode({"text": str(error), "code": 1}))
            step.abort()

    def _done(self, number: int) -> None:
        self._steps.pop(number, None)
        if not self._steps:
            self.on_idle()

    def signal_steps(self, number: int, step: int | None = None) -> None:
        """Signal the tasks of one step, or of all."""
        for found, node_step in list(self._steps.items()):
            if step is None or step == found:
                if number == signal.SIGTERM:
                    # A stopped task could not act upon it.
                    node_step.signal(signal.SIGCONT)
                node_step.signal(number)

    def end(self, seconds: float) -> None:
        """Take no more steps; end the tasks that run, the hard way after some seconds."""
        self._ending = True
        self.signal_steps(signal.SIGTERM)
        self._loop.call_later(seconds, lambda: self.signal_steps(signal.SIGKILL))
