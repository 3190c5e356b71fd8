"""One step's tasks in one pod, and the connection of the srun that they belong to."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial

from pyxis_py.kubernetes.launcher.job.job_file import Job
from pyxis_py.kubernetes.launcher.job.launch_order import LaunchOrder
from pyxis_py.kubernetes.launcher.node.pmi_server import PmiServer, StepFacts
from pyxis_py.kubernetes.launcher.node.processes import (
    Processes,
    Program,
    kill_processes,
    signal_group,
)
from pyxis_py.kubernetes.launcher.node.task_plan import (
    MARK,
    LaunchError,
    PodFacts,
    TaskPlan,
    mark_of,
    plan_tasks,
)
from pyxis_py.kubernetes.launcher.node.task_streams import StreamOpener, TaskStreams
from pyxis_py.kubernetes.launcher.wire import messages
from pyxis_py.kubernetes.launcher.wire.channel import HIGH_WATER, Channel
from pyxis_py.kubernetes.launcher.wire.loop import Loop
from pyxis_py.kubernetes.launcher.wire.streams import LineSource

DRAIN_LIMIT = 2.0
"""Seconds that streams stay open after the last task of the step, for what still comes."""
TERM_INTERVAL = 1.0
"""Seconds in which a second SIGTERM is the same one."""


class _Task:
    """A task of this node: its process, and our ends of its streams."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        self.running = True
        self.streams = TaskStreams()


class NodeStep:
    """Starts tasks and serves them until all have ended, their streams too."""

    def __init__(self, loop: Loop, processes: Processes, channel: Channel, job: Job) -> None:
        self.on_done: Callable[[], None] = lambda: None
        self._loop = loop
        self._processes = processes
        self._channel = channel
        self._job = job
        self._tasks: dict[int, _Task] = {}
        self._marks: dict[str, str] = {}
        self._pmi: PmiServer | None = None
        self._taken = 0
        self._over = False
        self._terminated = -TERM_INTERVAL
        channel.on_frame = self._frame
        channel.on_close = lambda reason: self.abort()
        channel.on_drained = self._resume

    def launch(self, order: LaunchOrder, facts: PodFacts) -> None:
        """Start all tasks of this node.

        Raises:
            LaunchError: if files cannot be opened, CPUs not be bound, or processes not be started.
        """
        self._marks = {MARK: mark_of(order, self._job)}
        if order.places:
            self._pmi = self._make_pmi(order)
        opener = StreamOpener(self._loop, order, self._output)
        for plan in plan_tasks(order, self._job, facts):
            self._start(plan, order, opener)
        pids = {str(task.number): task.pid for task in self._tasks.values()}
        self._channel.send(messages.STARTED, messages.encode({"tasks": pids}))

    def _make_pmi(self, order: LaunchOrder) -> PmiServer:
        facts = StepFacts(f"{self._job.job_id}.{order.step}", order.places)

        def fence(values: dict[str, str]) -> None:
            self._channel.send(messages.FENCE, messages.encode({"values": values}))

        def abort(status: int) -> None:
            self._channel.send(messages.ABORT, messages.encode({"status": status}))

        return PmiServer(self._loop, facts, fence, abort)

    def _start(self, plan: TaskPlan, order: LaunchOrder, opener: StreamOpener) -> None:
        task = self._tasks[plan.number] = _Task(plan.number)
        environ = plan.environ
        opened: list[int] = []
        passed: tuple[int, ...] = ()
        try:
            if self._pmi is not None:
                fd, variables = self._pmi.add_task(plan.number)
                opened.append(fd)
                environ, passed = {**environ, **variables}, (fd,)
            stdio = opener.open(plan, task.streams, opened)
            program = Program(
                plan.argv, environ, plan.directory, order.umask, stdio, order.limits, plan.cpus,
                passed,
            )  # fmt: skip
            task.pid = self._processes.start(program, partial(self._exited, task))
        except OSError as error:
            task.running = False
            text = f"task {plan.number}: {error.strerror}: {error.filename}"
            raise LaunchError(text) from error
        finally:
            for fd in opened:
                os.close(fd)

    def _output(self, task: int, stream: int, data: bytes) -> None:
        self._channel.send(messages.OUTPUT, messages.encode_stream(task, stream, data))
        if self._channel.backlog > HIGH_WATER:
            for source in self._sources():
                source.pause()
        if not data:
            self._check_over()

    def _sources(self, stream: int = 0) -> list[LineSource]:
        """Our ends of what tasks write: those of one stream, or all."""
        return [
            source
            for task in self._tasks.values()
            for number, source in task.streams.sources.items()
            if stream in (0, number)
        ]

    def _resume(self) -> None:
        for source in self._sources():
            source.resume()
        self._check_over()

    def _frame(self, kind: int, payload: bytes) -> None:
        if kind == messages.STDIN:
            number, _, data = messages.decode_stream(payload)
            self._feed(number, data)
        elif kind == messages.SIGNAL:
            self.signal(int(messages.decode(payload)["signal"]))
        elif kind == messages.FENCE_END and self._pmi is not None:
            self._pmi.end_fence(messages.decode(payload)["values"])
        elif kind == messages.CLOSE_OUTPUT:
            for source in self._sources(int(messages.decode(payload)["stream"])):
                source.close()

    def _feed(self, number: int, data: bytes) -> None:
        for task in self._tasks.values():
            if number not in (messages.ALL_TASKS, task.number):
                continue
            if not data:
                task.streams.end_input()
            elif task.streams.stdin is not None:
                task.streams.stdin.write(data)
        self._taken += len(data)
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Let srun send more once the slowest task has taken what came."""
        sinks = [task.streams.stdin for task in self._tasks.values()]
        slow = [sink for sink in sinks if sink is not None and sink.backlog]
        for sink in slow:
            sink.on_drained = self._acknowledge
            sink.on_broken = lambda reason: self._acknowledge()
        if not slow and self._taken:
            taken, self._taken = self._taken, 0
            self._channel.send(messages.STDIN_TAKEN, messages.encode({"bytes": taken}))

    def signal(self, number: int) -> None:
        """Signal all tasks, each with its group.

        SIGTERM may come twice at the end of a job, from the batch host and through srun, which has
        it from there as well; it is meant once.
        """
        now = time.monotonic()
        if number == signal.SIGTERM:
            if now - self._terminated < TERM_INTERVAL:
                return
            self._terminated = now
        for task in self._tasks.values():
            if task.running and task.pid:
                signal_group(task.pid, number)

    def _exited(self, task: _Task, status: int) -> None:
        task.running = False
        task.streams.end_input()
        content = {"task": task.number, "status": status}
        self._channel.send(messages.EXITED, messages.encode(content))
        self._acknowledge()
        if not any(other.running for other in self._tasks.values()):
            # What tasks left behind would hold their streams, and CPUs of the next step.
            self._kill_rest()
            self._loop.call_later(DRAIN_LIMIT, self._drain)
        self._check_over()

    def _kill_rest(self) -> None:
        kill_processes(self._marks, [task.pid for task in self._tasks.values() if task.pid])
        if self._pmi is not None:
            self._pmi.close()

    def _drain(self) -> None:
        for source in self._sources():
            source.drain()

    def _check_over(self) -> None:
        if self._over or any(task.running for task in self._tasks.values()):
            return
        if all(source.closed for source in self._sources()):
            self._over = True
            self.on_done()

    def abort(self) -> None:
        """srun has gone, or the step could not be started as a whole: end what runs."""
        if self._over:
            return
        self.signal(signal.SIGKILL)
        if self._marks:
            self._kill_rest()
        for task in self._tasks.values():
            task.streams.end_input()
        for source in self._sources():
            source.close()
        self._check_over()
