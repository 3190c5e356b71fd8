"""One step's tasks in one pod, and the connection of the srun that they belong to."""

from __future__ import annotations

import os
import pty
import signal
import termios
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pyxis_py.kubernetes.launcher.job.allocation import Share
from pyxis_py.kubernetes.launcher.job.binding import bind_cpus
from pyxis_py.kubernetes.launcher.job.command_line import CommandLineError
from pyxis_py.kubernetes.launcher.job.environment import (
    BIN_VARIABLE,
    DEFAULT_PATH,
    apply_image,
    bind_gpus,
    image_variables,
    move_path,
    task_environment,
)
from pyxis_py.kubernetes.launcher.job.job_file import Job
from pyxis_py.kubernetes.launcher.job.output_names import Place, expand_name
from pyxis_py.kubernetes.launcher.node.pmi_server import PmiServer, StepFacts
from pyxis_py.kubernetes.launcher.node.processes import (
    Processes,
    Program,
    kill_processes,
    signal_group,
)
from pyxis_py.kubernetes.launcher.wire import messages
from pyxis_py.kubernetes.launcher.wire.channel import HIGH_WATER, Channel
from pyxis_py.kubernetes.launcher.wire.loop import Loop
from pyxis_py.kubernetes.launcher.wire.streams import LineSource, Sink

if TYPE_CHECKING:
    from pyxis_py.kubernetes.launcher.node.agent import Agent

DRAIN_LIMIT = 2.0
"""Seconds that streams stay open after the last task of the step, for what still comes."""

MARK = "PYXIS_STEP"
"""A variable that tells of every process which step, on which node, it belongs to."""
TERM_INTERVAL = 1.0
"""Seconds in which a second SIGTERM is the same one."""


class LaunchError(Exception):
    """Tasks that cannot be started as they were asked for."""


class _Task:
    """A running task: its process, and what is connected to it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        self.running = True
        self.stdin: Sink | None = None
        self.sources: dict[int, LineSource] = {}


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
        self._files: set[str] = set()
        self._pmi: PmiServer | None = None
        self._taken = 0
        self._over = False
        self._terminated = -TERM_INTERVAL
        channel.on_frame = self._frame
        channel.on_close = lambda reason: self.abort()
        channel.on_drained = self._resume

    def launch(self, content: Mapping[str, Any], agent: Agent) -> None:
        """Start all tasks of this node.

        Raises:
            LaunchError: if files cannot be opened or CPUs not be bound.
            OSError: if processes cannot be started.
        """
        place, share = int(content["place"]), Share(*content["share"])
        share = share._replace(tasks=tuple(share.tasks), gpus=tuple(share.gpus))
        base = {**content["environ"], **{name: agent.secrets[name] for name in content["secrets"]
                                         if name in agent.secrets}}  # fmt: skip
        if content["imageKept"] is not None:
            base = apply_image(base, image_variables(agent.pod), content["imageKept"])
        base["PATH"] = move_path(
            base.get("PATH", DEFAULT_PATH), content["bin"], agent.local[BIN_VARIABLE]
        )
        # Not a variable of Slurm: mpiexec gives its own values of those to all it starts.
        self._marks = {MARK: f"{self._job.hosts[0]}.{content['step']}.{self._job.number}"}
        base.update(self._marks)
        if content["pmi"]:
            self._pmi = self._make_pmi(content)
        allowed = sorted(os.sched_getaffinity(0))
        for local, number in enumerate(share.tasks):
            environ = task_environment(base, share, (place, local), agent.local)
            gpus = bind_gpus(content["gpuBind"], share, local, content["gpusPerTask"])
            for name in ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"):
                if self._job.gpus:
                    environ.pop(name, None)
            if gpus:
                environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
                environ["GPU_DEVICE_ORDINAL"] = environ["CUDA_VISIBLE_DEVICES"]
            try:
                cpus = bind_cpus(content["cpuBind"], allowed, local, content["cpusPerTask"] or 1)
            except CommandLineError as error:
                raise LaunchError(str(error)) from error
            argv = content["programs"][str(number)] if "programs" in content else content["argv"]
            self._start(number, argv, environ, (content, agent.directory, cpus, local, place))
        self._channel.send(messages.STARTED, messages.encode({
            "tasks": {str(task.number): task.pid for task in self._tasks.values()},
        }))  # fmt: skip

    def _make_pmi(self, content: Mapping[str, Any]) -> PmiServer:
        facts = StepFacts(f"{self._job.job_id}.{content['step']}", tuple(content["pmi"]))

        def fence(values: dict[str, str]) -> None:
            self._channel.send(messages.FENCE, messages.encode({"values": values}))

        def abort(status: int) -> None:
            self._channel.send(messages.ABORT, messages.encode({"status": status}))

        return PmiServer(self._loop, facts, fence, abort)

    def _start(
        self, number: int, argv: list[str], environ: dict[str, str], how: tuple[Any, ...]
    ) -> None:
        content, image_directory, cpus, local, node = how
        task = self._tasks[number] = _Task(number)
        directory = content["directory"] or image_directory
        place = Place(
            self._job.job_id, self._job.name, environ.get("USER", ""), self._job.host,
            int(environ.get("SLURM_ARRAY_JOB_ID") or self._job.job_id), self._job.element,
            str(content["step"]), node, number,
        )  # fmt: skip
        opened: list[int] = []
        stdio: list[int] = []
        passed: tuple[int, ...] = ()
        try:
            if self._pmi is not None:
                fd, variables = self._pmi.add_task(number)
                environ.update(variables)
                opened.append(fd)
                passed = (fd,)
            for stream in (0, 1, 2):
                mode = content["streams"][stream]
                stdio.append(self._open(task, stream, mode, (directory, place, content, opened)))
            if content["streams"][2] == "output":
                stdio[2] = stdio[1]
            program = Program(
                argv, environ, directory, content["umask"], (stdio[0], stdio[1], stdio[2]),
                content["limits"], cpus, passed,
            )  # fmt: skip
            task.pid = self._processes.start(program, partial(self._exited, task))
        except OSError as error:
            del self._tasks[number]
            raise LaunchError(f"task {number}: {error.strerror}: {error.filename}") from error
        finally:
            for fd in opened:
                os.close(fd)

    def _open(self, task: _Task, stream: int, mode: str, how: tuple[Any, ...]) -> int:
        """Return the task's end of one stream: null, srun, output, or file:PATTERN."""
        directory, place, content, opened = how
        if mode.startswith("file:"):
            path = os.path.join(directory, expand_name(mode[5:], place))
            if stream == 0:
                fd = os.open(path, os.O_RDONLY)
            else:
                fd = self._create(path, content)
        elif mode == "srun" and stream == 0 and self._is_fed(task.number, content):
            fd, ours = os.pipe()
            os.set_blocking(ours, False)
            task.stdin = Sink(self._loop, ours, owned=True)
        elif mode == "srun" and stream > 0:
            # As under Slurm, only what programs print holds lines back for a pipe.
            ours, fd = _terminal() if content["unbuffered"] and stream == 1 else os.pipe()
            task.sources[stream] = LineSource(
                self._loop, ours, partial(self._output, task.number, stream),
                unbuffered=content["unbuffered"],
            )  # fmt: skip
        else:
            fd = os.open(os.devnull, os.O_RDONLY if stream == 0 else os.O_WRONLY)
        opened.append(fd)
        return fd

    def _is_fed(self, number: int, content: Mapping[str, Any]) -> bool:
        """Whether srun's standard input is (also) this task's."""
        return content["stdinTask"] in (messages.ALL_TASKS, number)

    def _create(self, path: str, content: Mapping[str, Any]) -> int:
        """Open an output file; tasks that share it write one behind the other."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        if not content["append"] and path not in self._files:
            flags |= os.O_TRUNC
        self._files.add(path)
        return os.open(path, flags, 0o666 & ~content["umask"])

    def _output(self, task: int, stream: int, data: bytes) -> None:
        self._channel.send(messages.OUTPUT, messages.encode_stream(task, stream, data))
        if self._channel.backlog > HIGH_WATER:
            for other in self._tasks.values():
                for source in other.sources.values():
                    source.pause()
        if not data:
            self._check_over()

    def _resume(self) -> None:
        for task in self._tasks.values():
            for source in task.sources.values():
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
            stream = int(messages.decode(payload)["stream"])
            for task in self._tasks.values():
                source = task.sources.get(stream)
                if source is not None:
                    source.close()

    def _feed(self, number: int, data: bytes) -> None:
        for task in self._tasks.values():
            if task.stdin is None or number not in (messages.ALL_TASKS, task.number):
                continue
            if data:
                task.stdin.write(data)
            else:
                task.stdin.close()
                task.stdin = None
        self._taken += len(data)
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Let srun send more once the slowest task has taken what came."""
        waiting = [task.stdin for task in self._tasks.values() if task.stdin is not None]
        slow = [sink for sink in waiting if sink.backlog]
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
        if task.stdin is not None:
            task.stdin.close()
            task.stdin = None
        self._channel.send(
            messages.EXITED, messages.encode({"task": task.number, "status": status})
        )
        self._acknowledge()
        if not any(other.running for other in self._tasks.values()):
            # What tasks left behind would hold their streams, and CPUs of the next step.
            self._kill_rest()
            if self._pmi is not None:
                self._pmi.close()
            self._loop.call_later(DRAIN_LIMIT, self._drain)
        self._check_over()

    def _kill_rest(self) -> None:
        kill_processes(self._marks, [task.pid for task in self._tasks.values()])

    def _drain(self) -> None:
        for task in self._tasks.values():
            for source in task.sources.values():
                source.drain()

    def _check_over(self) -> None:
        if self._over or any(task.running for task in self._tasks.values()):
            return
        if all(source.closed for task in self._tasks.values() for source in task.sources.values()):
            self._over = True
            self.on_done()

    def abort(self) -> None:
        """srun has gone, or the step could not be started as a whole: end what runs."""
        if self._over:
            return
        self.signal(signal.SIGKILL)
        if self._marks:
            self._kill_rest()
        for task in list(self._tasks.values()):
            for source in task.sources.values():
                source.close()
        self._check_over()


def _terminal() -> tuple[int, int]:
    """Return both ends of a terminal: programs do not hold lines back that go to one."""
    ours, theirs = pty.openpty()
    attributes = termios.tcgetattr(theirs)
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    return ours, theirs
