"""What slurmctld is to a job's steps: which nodes are there, which steps run, who gets CPUs next.

It runs in the pod of the batch script. Steps belong to the connections of their sruns.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from pyxis_py.kubernetes.launcher.job.allocation import Allocation, AllocationError, Share
from pyxis_py.kubernetes.launcher.job.deadlines import KILL_WAIT
from pyxis_py.kubernetes.launcher.job.job_file import Job
from pyxis_py.kubernetes.launcher.job.step_request import StepRequest
from pyxis_py.kubernetes.launcher.node.agent import Agent
from pyxis_py.kubernetes.launcher.node.log import log
from pyxis_py.kubernetes.launcher.wire import messages
from pyxis_py.kubernetes.launcher.wire.channel import SILENCE, Channel
from pyxis_py.kubernetes.launcher.wire.loop import Loop

EVICTION_DELAY = 3.0
"""Seconds after which an evicted pod without tasks may leave."""


class Node:
    """A node whose agent has joined.

    Attributes:
        address: where its agent listens; None for the batch host itself.
        pod: its pod's name, and machine the node of the cluster that it runs on.
    """

    def __init__(
        self, channel: Channel | None, address: tuple[str, int] | None, content: Mapping[str, Any]
    ) -> None:
        self.channel = channel
        self.address = address
        self.pod = str(content.get("pod", ""))
        self.machine = str(content.get("machine", ""))


class RunningStep:
    """A step that waits for CPUs (no shares yet) or runs."""

    def __init__(self, channel: Channel, request: StepRequest, content: Mapping[str, Any]) -> None:
        self.channel = channel
        self.request = request
        self.command = str(content.get("command", ""))
        self.limit = content.get("time")
        self.number = -1
        self.shares: tuple[Share, ...] = ()
        self.start = 0.0


class Controller:
    """The batch host's side of everything.

    Attributes:
        on_joined: called whenever a node joins.
        on_requeue: called when the script asks for another run.
        on_cancel: called with the content of a message that means the job, not one step.
        state: RUNNING, COMPLETING or COMPLETED.
        leaving: whether the batch host's own pod is evicted.
        disrupted: whether the cluster took a node away: its pod was evicted, or its machine died.
    """

    def __init__(self, loop: Loop, job: Job, agent: Agent, address: tuple[str, int]) -> None:
        self.on_joined: Callable[[], None] = lambda: None
        self.on_requeue: Callable[[], None] = lambda: None
        self.on_cancel: Callable[[Mapping[str, Any]], None] = lambda content: None
        self.state = "RUNNING"
        self.leaving = False
        self.disrupted = False
        self.start = time.time()
        self.end: float | None = None
        self.nodes: dict[int, Node] = {}
        self._loop = loop
        self._job = job
        self._agent = agent
        self._address = address
        self._allocation = Allocation(job.hosts, job.cpus, job.gpus)
        self._steps: dict[int, RunningStep] = {}
        self._queue: list[RunningStep] = []
        self._next = 0

    @property
    def missing(self) -> list[str]:
        """Nodes that have not joined, or were lost."""
        return [host for index, host in enumerate(self._job.hosts) if index not in self.nodes]

    @property
    def busy(self) -> bool:
        """Whether steps run."""
        return bool(self._steps)

    @property
    def alone(self) -> bool:
        """Whether all agents of other pods have left."""
        return all(node.channel is None for node in self.nodes.values())

    def add_self(self, pod: Mapping[str, str]) -> None:
        """Count the batch host's own pod."""
        content = {"pod": pod.get("POD_NAME", ""), "machine": pod.get("K8S_NODE_NAME", "")}
        self.nodes[self._job.number] = Node(None, None, content)

    def join(self, channel: Channel, content: Mapping[str, Any]) -> None:
        """Take in the agent of another pod; a pod that was replaced joins again."""
        index = int(content["index"])
        if not 0 <= index < len(self._job.hosts) or index == self._job.number:
            channel.close(f"there is no node {index}")
            return
        address = (str(content["address"]) or channel.peer, int(content["port"]))
        node = Node(channel, address, content)
        before = self.nodes.get(index)
        self.nodes[index] = node
        if before is not None and before.channel is not None:
            before.channel.close("another pod has taken its place")
        channel.on_frame = lambda kind, payload: self._hear(index, kind, payload)
        channel.on_close = lambda reason: self._lost(index, node, reason)
        self.on_joined()
        self._schedule()

    def _hear(self, index: int, kind: int, payload: bytes) -> None:
        if kind != messages.EVICTED:
            return
        if not messages.decode(payload)["idle"]:
            self.disrupted = True
            log(f"{self._job.hosts[index]}: its pod is evicted")
        else:
            # If this pod has to go as well, the script may still need the other one.
            self._loop.call_later(EVICTION_DELAY, lambda: self._dismiss(index))

    def _dismiss(self, index: int) -> None:
        """Let an evicted pod leave; its steps fail then, and the script goes on without it."""
        node = self.nodes.get(index)
        if self.state == "RUNNING" and not self.leaving and node and node.channel:
            node.channel.send(messages.JOB_OVER, messages.encode({"status": 0}))

    def _lost(self, index: int, node: Node, reason: str) -> None:
        if self.nodes.get(index) is node:
            del self.nodes[index]
        if self.state != "RUNNING":
            return
        self.disrupted = self.disrupted or reason in SILENCE
        where = f"{self._job.hosts[index]} (pod {node.pod or '?'} on {node.machine or '?'})"
        text = f"node {where} is lost: {reason or 'its agent has left'}"
        log(text)
        for step in list(self._steps.values()):
            if any(share.node == index for share in step.shares):
                content = {"index": index, "text": text}
                step.channel.send(messages.LOST_NODE, messages.encode(content))

    def signal_steps(self, number: int, step: int | None = None) -> None:
        """Signal the tasks of one step, or of all, in all pods."""
        self._agent.signal_steps(number, step)
        payload = messages.encode({"signal": number, "step": step})
        for node in list(self.nodes.values()):
            if node.channel is not None:
                node.channel.send(messages.SIGNAL_STEPS, payload)

    def notify(self, text: str, step: int | None = None) -> None:
        """Let the srun of one step, or of all, say something."""
        for running in list(self._steps.values()):
            if step is None or running.number == step:
                running.channel.send(messages.NOTICE, messages.encode({"text": text}))

    def end_job(self, status: int) -> None:
        """Let all agents leave, and all waiting sruns fail."""
        for node in list(self.nodes.values()):
            if node.channel is not None:
                node.channel.send(messages.JOB_OVER, messages.encode({"status": status}))
        for step in self._queue[:]:
            self._refuse(step.channel, "the job is ending")

    def serve(self, channel: Channel, kind: int, content: dict[str, Any]) -> None:
        """Answer a command."""
        if kind == messages.CREATE_STEP:
            self._create(channel, content)
        elif kind == messages.ASK:
            channel.send(messages.TELL, messages.encode(self.facts()))
        elif kind == messages.REQUEUE:
            self._requeue(channel)
        elif kind == messages.CANCEL:
            self._cancel(channel, content)
        else:
            channel.close(f"message {kind} is nothing for the batch host")

    def _create(self, channel: Channel, content: dict[str, Any]) -> None:
        step = RunningStep(channel, StepRequest.from_json(content["request"]), content)
        if self.state != "RUNNING":
            self._refuse(channel, "the job is ending")
            return
        channel.on_close = lambda reason: self._finish(step)
        self._queue.append(step)
        self._schedule()
        if step in self._queue:
            waits = messages.encode({"text": "its CPUs or GPUs are those of other steps"})
            channel.send(messages.STEP_WAITS, waits)

    def _schedule(self) -> None:
        """Start what can start; a step that has to wait does not hold up those behind it."""
        self._allocation.lost = set(range(len(self._job.hosts))) - set(self.nodes)
        for step in self._queue[:]:
            try:
                shares = self._allocation.allocate(step.request)
            except AllocationError as error:
                self._queue.remove(step)
                self._refuse(step.channel, str(error))
                continue
            if shares is None:
                continue
            self._queue.remove(step)
            self._start(step, shares)

    def _start(self, step: RunningStep, shares: tuple[Share, ...]) -> None:
        step.number, step.shares, step.start = self._next, shares, time.time()
        self._next += 1
        self._steps[step.number] = step
        addresses = []
        for share in shares:
            address = self.nodes[share.node].address
            addresses.append(address or (step.channel.local_address, self._address[1]))
        step.channel.send(messages.STEP_CREATED, messages.encode({
            "number": step.number,
            "hosts": [self._job.hosts[share.node] for share in shares],
            "shares": shares,
            "addresses": addresses,
        }))  # fmt: skip
        if step.limit:
            self._loop.call_later(float(step.limit), lambda: self._time_out(step))

    def _time_out(self, step: RunningStep) -> None:
        if self._steps.get(step.number) is step:
            self.notify(f"step {self._job.job_id}.{step.number}: its time is over", step.number)
            self.end_step(step.number)

    def end_step(self, number: int) -> None:
        """Ask a step's tasks to end, and end them after Slurm's KillWait."""
        self.signal_steps(signal.SIGTERM, number)
        self._loop.call_later(KILL_WAIT, lambda: self.signal_steps(signal.SIGKILL, number))

    def _finish(self, step: RunningStep) -> None:
        if step in self._queue:
            self._queue.remove(step)
        if self._steps.pop(step.number, None) is not None:
            self._allocation.release(step.request, step.shares)
            self._schedule()

    def _refuse(self, channel: Channel, text: str) -> None:
        channel.send(messages.REFUSED, messages.encode({"text": text, "code": 1}))

    def _requeue(self, channel: Channel) -> None:
        if not self._job.requeue:
            self._refuse(channel, "the job was submitted with --no-requeue")
            return
        channel.send(messages.DONE, b"{}")
        self.on_requeue()

    def _cancel(self, channel: Channel, content: dict[str, Any]) -> None:
        step = content["step"]
        if step is not None and step not in self._steps:
            self._refuse(channel, f"there is no step {step}")
            return
        channel.send(messages.DONE, b"{}")
        if step is None:
            self.on_cancel(content)
        elif content["signal"] is None:
            self.notify(f"step {self._job.job_id}.{step} is cancelled", step)
            self.end_step(step)
        else:
            self.signal_steps(content["signal"], step)

    def facts(self) -> dict[str, Any]:
        """Return what squeue and scontrol show."""
        return {
            "jobId": self._job.job_id,
            "state": self.state,
            "start": self.start,
            "end": self.end,
            "timeLimit": self._job.time_limit,
            "hosts": list(self._job.hosts),
            "cpus": self._job.cpus,
            "gpus": self._job.gpus,
            "memory": self._job.memory,
            "tasks": sum(self._job.tasks),
            "requeue": self._job.requeue,
            "nodes": {
                str(index): {"pod": node.pod, "machine": node.machine}
                for index, node in self.nodes.items()
            },
            "steps": [
                {
                    "number": step.number,
                    "name": step.request.name,
                    "command": step.command,
                    "start": step.start,
                    "hosts": [self._job.hosts[share.node] for share in step.shares],
                    "tasks": step.request.ntasks,
                    "cpus": sum(share.cpus for share in step.shares),
                    "gpus": sum(len(share.gpus) for share in step.shares),
                    "limit": step.limit,
                }
                for step in self._steps.values()
            ],
        }
