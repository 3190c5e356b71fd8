"""The command `srun`: asks the batch host for a step, starts its tasks by the agents, and waits."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from pyxis_py.kubernetes.launcher.commands.client import (
    Client,
    CommandError,
    call_controller,
    complain,
    error_code,
    find_client,
)
from pyxis_py.kubernetes.launcher.job.allocation import Share
from pyxis_py.kubernetes.launcher.job.command_line import CommandLineError
from pyxis_py.kubernetes.launcher.job.deadlines import KILL_WAIT
from pyxis_py.kubernetes.launcher.job.launch_order import LaunchOrder
from pyxis_py.kubernetes.launcher.job.statuses import exit_code
from pyxis_py.kubernetes.launcher.job.step_request import StepRequest
from pyxis_py.kubernetes.launcher.srun.launch import (
    CreatedStep,
    check_mpi,
    order_tasks,
    read_programs,
)
from pyxis_py.kubernetes.launcher.srun.options import Srun, parse_signal
from pyxis_py.kubernetes.launcher.srun.plan import plan_request
from pyxis_py.kubernetes.launcher.srun.step_streams import StepStreams
from pyxis_py.kubernetes.launcher.srun.task_report import TaskReport
from pyxis_py.kubernetes.launcher.wire import messages
from pyxis_py.kubernetes.launcher.wire.channel import Channel, open_channel
from pyxis_py.kubernetes.launcher.wire.loop import Loop, Timer

FORWARDED = (
    signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT,
    signal.SIGALRM,
)  # fmt: skip
"""Signals that tasks get instead of srun."""
INTERRUPT_INTERVAL = 1.0
"""Seconds within which a second Ctrl-C ends the step, as srun's own."""


class StepClient:
    """One step, from its creation to the last status.

    Attributes:
        code: what srun exits with: the highest of the tasks.
        warnings: what is to be said about the numbers that were asked for.
    """

    def __init__(
        self, loop: Loop, client: Client, srun: Srun, plan: tuple[StepRequest, list[str]]
    ) -> None:
        self.code = 0
        self._request, self.warnings = plan
        self._loop = loop
        self._client = client
        self._srun = srun
        self._streams: StepStreams | None = None
        self._created = False
        self._channels: dict[int, Channel] = {}
        self._running: dict[int, int] = {}
        self._grace: Timer | None = None
        self._ended = False
        self._interrupted = 0.0
        self._signals: list[int] = []
        self._failed: set[int] = set()
        self._fenced: dict[int, dict[str, str]] = {}
        self._report = TaskReport(loop, srun, client.job.hosts)
        self._name = str(client.job.job_id)
        self._controller = call_controller(client, loop)

    def begin(self) -> None:
        """Ask for the step; everything else follows from the answers."""
        controller = self._controller
        controller.on_ready = self._ask
        controller.on_frame = self._hear
        controller.on_close = self._left_alone
        for number in FORWARDED:
            self._loop.on_signal(number, self._forwarder(number))
        self._loop.on_signal(signal.SIGINT, self._interrupt)

    def _ask(self) -> None:
        content = {
            "request": self._request._asdict(),
            "command": " ".join(self._srun.command),
            "time": self._srun.time,
        }
        self._controller.send(messages.CREATE_STEP, messages.encode(content))

    def _left_alone(self, reason: str) -> None:
        complain("srun", f"the batch host is lost: {reason or 'it has left'}")
        self._fail()

    def _hear(self, kind: int, payload: bytes) -> None:
        content = messages.decode(payload)
        if kind == messages.STEP_CREATED:
            self._launch(content)
        elif kind == messages.STEP_WAITS:
            if not self._srun.has("quiet"):
                print(f"srun: the step waits: {content['text']}", file=sys.stderr, flush=True)
            self._wait_at_most()
        elif kind == messages.REFUSED:
            complain("srun", f"cannot create the step: {content['text']}")
            self._fail(error_code())
        elif kind == messages.NOTICE:
            complain("srun", str(content["text"]))
        elif kind == messages.LOST_NODE:
            self._lose_node(int(content["index"]), str(content["text"]))

    def _wait_at_most(self) -> None:
        text = self._srun.values.get("immediate")
        if text is not None:
            seconds = float(text) if text.isdecimal() else 5.0
            self._loop.call_later(seconds, self._too_late)

    def _too_late(self) -> None:
        if not self._created:
            complain("srun", "the step could not start at once, as --immediate asks")
            self._fail()

    def _launch(self, content: dict[str, Any]) -> None:
        shares = tuple(
            Share(node, tuple(tasks), cpus, tuple(gpus))
            for node, tasks, cpus, gpus in content["shares"]
        )
        created = CreatedStep(int(content["number"]), tuple(content["hosts"]), shares)
        self._created = True
        self._name = f"{self._client.job.job_id}.{created.number}"
        self._running = {task: share.node for share in shares for task in share.tasks}
        try:
            programs = read_programs(self._srun, len(self._running))
            self._streams = StepStreams(
                self._loop, self._srun, self._client.job, created.number, self._running
            )
            orders = order_tasks(self._srun, self._client, created, self._streams, programs)
        except (CommandLineError, OSError) as error:
            text = str(error)
            if isinstance(error, OSError):
                text = f"cannot open {error.filename}: {error.strerror}"
            complain("srun", text)
            self._fail()
            return
        for order in orders:
            address, port = content["addresses"][order.place]
            self._connect(order, (str(address), int(port)))
        if self._srun.has("signal") and self._srun.time:
            number, lead = parse_signal(self._srun.text("signal"))
            seconds = max(0, self._srun.time - lead)
            self._loop.call_later(seconds, lambda: self._signal(number))

    def _connect(self, order: LaunchOrder, address: tuple[str, int]) -> None:
        node = order.share.node
        secret = self._client.token, self._client.job.subject(node)
        channel = open_channel(self._loop, address, secret)
        self._channels[node] = channel
        channel.on_ready = lambda: self._start(channel, order)
        channel.on_frame = lambda kind, payload: self._agent_says(node, kind, payload)
        channel.on_close = lambda reason: self._agent_left(node, reason)
        assert self._streams is not None
        self._streams.add_channel(node, channel)

    def _start(self, channel: Channel, order: LaunchOrder) -> None:
        try:
            channel.send(messages.LAUNCH, messages.encode(order.to_json()))
        except ValueError as error:
            complain("srun", f"variables and arguments are too long: {error}")
            self._fail()
            return
        if self._streams is not None:
            self._streams.tell_broken(channel)
        for number in self._signals:
            channel.send(messages.SIGNAL, messages.encode({"signal": number}))

    def _agent_says(self, node: int, kind: int, payload: bytes) -> None:
        assert self._streams is not None
        if kind == messages.OUTPUT:
            task, stream, data = messages.decode_stream(payload)
            self._streams.write(task, stream, data)
            if not data:
                self._check_over()
            return
        content = messages.decode(payload)
        if kind == messages.STARTED:
            self._streams.node_started(node)
        elif kind == messages.EXITED:
            self._exited(int(content["task"]), int(content["status"]))
        elif kind == messages.FENCE:
            self._fence(node, content["values"])
        elif kind == messages.ABORT:
            complain("srun", f"step {self._name} is ended by MPI_Abort")
            self.code = max(self.code, int(content["status"]) & 255)
            self._kill()
        elif kind == messages.STDIN_TAKEN:
            self._streams.taken(node, int(content["bytes"]))
        elif kind == messages.REFUSED:
            host = self._client.job.hosts[node]
            complain("srun", f"{host}: cannot start tasks: {content['text']}")
            self._lose_tasks(node, int(content["code"]))
            self._kill()

    def _fence(self, node: int, values: dict[str, str]) -> None:
        """Gather what the tasks of all nodes have put, and let them go on together."""
        self._fenced[node] = values
        if set(self._running.values()) <= set(self._fenced):
            together: dict[str, str] = {}
            for found in self._fenced.values():
                together.update(found)
            self._fenced.clear()
            for channel in self._channels.values():
                channel.send(messages.FENCE_END, messages.encode({"values": together}))

    def _agent_left(self, node: int, reason: str) -> None:
        self._channels.pop(node, None)
        if node in self._running.values():
            # The batch host knows more about it, and tells in a moment.
            text = f"the agent of {self._client.job.hosts[node]} is lost: {reason or 'it has left'}"
            self._loop.call_later(1.0, lambda: self._lose_node(node, text))
        elif self._streams is not None:
            self._streams.end_node(node)
            self._check_over()

    def _lose_node(self, node: int, text: str) -> None:
        """Give up the tasks of a node that is lost; those of others are ended.

        A node all of whose tasks did well is not missed.
        """
        if node not in self._failed and node not in self._running.values():
            return
        self._failed.discard(node)
        complain("srun", f"step {self._name}: {text}")
        channel = self._channels.pop(node, None)
        if channel is not None:
            channel.on_close = lambda reason: None
            channel.close()
        self._lose_tasks(node, 1)
        self._kill()

    def _lose_tasks(self, node: int, code: int) -> None:
        for task in [task for task, where in self._running.items() if where == node]:
            del self._running[task]
        self.code = max(self.code, code)
        if self._streams is not None:
            self._streams.end_node(node)
        self._check_over()

    def _exited(self, task: int, status: int) -> None:
        node = self._running.pop(task, None)
        if node is None:
            return
        if status:
            self._failed.add(node)
            self._report.add(task, node, status)
            self.code = max(self.code, exit_code(status))
            if self._srun.kill_on_bad_exit and self._running:
                self._end_for_failure()
        if self._srun.wait and self._grace is None and self._running:
            self._grace = self._loop.call_later(self._srun.wait, self._out_of_patience)
        self._check_over()

    def _end_for_failure(self) -> None:
        """The first failure ends the step; those that this ends are none."""
        if not self._ended:
            self._ended = True
            self._report.flush()
            complain("srun", f"step {self._name} is ended: a task failed (--kill-on-bad-exit)")
            self._signal(signal.SIGTERM)
            self._loop.call_later(KILL_WAIT, self._kill)

    def _out_of_patience(self) -> None:
        if self._running:
            seconds = self._srun.wait
            complain("srun", f"the first task ended {seconds} s ago (--wait): step {self._name} "
                     "is ended")  # fmt: skip
            self.code = max(self.code, 1)
            self._kill()

    def _forwarder(self, number: int) -> Callable[[], None]:
        return lambda: self._forward(number)

    def _forward(self, number: int) -> None:
        if not self._created:
            # No task is there yet: the signal means srun.
            self._fail(128 + number)
            return
        self._signal(number)

    def _interrupt(self) -> None:
        """The first Ctrl-C tells how things stand, a second one soon after it ends the step."""
        now = time.monotonic()
        if not self._created:
            self._fail(128 + signal.SIGINT)
        elif self._srun.has("quit-on-interrupt") or now - self._interrupted < INTERRUPT_INTERVAL:
            complain("srun", f"step {self._name} is interrupted")
            self._signal(signal.SIGINT)
            self._loop.call_later(1.0, self._kill)
        else:
            self._interrupted = now
            print(f"srun: {len(self._running)} tasks of step {self._name} are running; a second "
                  "Ctrl-C within 1 s ends them", file=sys.stderr, flush=True)  # fmt: skip

    def _signal(self, number: int) -> None:
        self._signals.append(number)
        for channel in self._channels.values():
            if channel.established:
                channel.send(messages.SIGNAL, messages.encode({"signal": number}))

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _check_over(self) -> None:
        if self._running or self._streams is None or not self._streams.ended:
            return
        self._report.flush()
        self._streams.finish(self._loop.stop)

    def _fail(self, code: int = 1) -> None:
        self.code = max(self.code, code)
        self._loop.stop()


def find_step_client(loop: Loop, srun: Srun, hostfile: Sequence[str]) -> StepClient:
    """Return the client of a step in the job that this process belongs to.

    Raises:
        CommandError: outside of a job.
        CommandLineError: if the job cannot have such a step.
    """
    client = find_client(os.environ)
    job_id = srun.text("jobid")
    if job_id and job_id != str(client.job.job_id):
        raise CommandError(f"--jobid: this is job {client.job.job_id}")
    check_mpi(srun, client.job)
    request, warnings = plan_request(srun, len(client.job.hosts), hostfile)
    return StepClient(loop, client, srun, (request, warnings))
