"""srun's side of the streams of tasks: its own, or files, with labels and patience."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping

from pyxis_py.kubernetes.launcher.commands.client import stdin_is_open
from pyxis_py.kubernetes.launcher.job.job_file import Job
from pyxis_py.kubernetes.launcher.job.output_names import Place, expand_name, is_per_task
from pyxis_py.kubernetes.launcher.srun.options import Srun
from pyxis_py.kubernetes.launcher.wire import messages
from pyxis_py.kubernetes.launcher.wire.channel import HIGH_WATER, Channel
from pyxis_py.kubernetes.launcher.wire.loop import Loop
from pyxis_py.kubernetes.launcher.wire.streams import Labels, Sink

STDIN_WINDOW = 1 << 20
"""Bytes of standard input on their way to the slowest node."""
_CHUNK = 64 * 1024


class StepStreams:
    """Where the streams of a step's tasks come from and go to.

    Attributes:
        modes: for stdin, stdout and stderr, what agents do with them: "null", "srun", "output"
            (stderr goes where stdout goes) or "file:PATTERN".
        stdin_task: the task that gets srun's standard input, or all.
    """

    def __init__(
        self, loop: Loop, srun: Srun, job: Job, number: int, tasks: Mapping[int, int]
    ) -> None:
        self._loop = loop
        self._srun = srun
        self._place = Place(
            job.job_id, job.name, os.environ.get("USER", ""), job.hosts[0],
            int(os.environ.get("SLURM_ARRAY_JOB_ID") or job.job_id), job.element, str(number),
        )  # fmt: skip
        self._nodes = dict(tasks)
        self._channels: dict[int, Channel] = {}
        self._waiting = set(tasks.values())
        self._sent: dict[int, int] = {}
        self._sinks: dict[int, Sink] = {}
        self._only: dict[int, int] = {}
        self._stdin = -1
        self.stdin_task = messages.ALL_TASKS
        self.modes = [self._plan_stdin(), *self._plan_outputs()]
        self._labels: dict[tuple[int, int], Labels] = {}
        if srun.has("label"):
            self._labels = {
                (task, stream): Labels(task, len(tasks)) for task in tasks for stream in (1, 2)
            }
        self._open = {
            (task, stream) for task in tasks for stream in (1, 2) if self.modes[stream] == "srun"
        }

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return not self._open

    def _plan_stdin(self) -> str:
        text = self._srun.text("input")
        if text.lower() == "none" or (text.lower() in ("", "all") and not stdin_is_open()):
            return "null"
        if text.lower() in ("", "all"):
            self._stdin = 0
        elif text.isdecimal():
            self._stdin, self.stdin_task = 0, int(text)
        elif is_per_task(text):
            return f"file:{text}"
        else:
            self._stdin = os.open(expand_name(text, self._place), os.O_RDONLY)
        return "srun"

    def _plan_outputs(self) -> list[str]:
        modes: list[str] = []
        for stream, option in ((1, "output"), (2, "error")):
            text = self._srun.text(option)
            if stream == 2 and not text and self._srun.text("output") not in ("", "all"):
                # With --output alone, errors go there too.
                if modes[0] == "srun":
                    self._sinks[2] = self._sinks[1]
                    if 1 in self._only:
                        self._only[2] = self._only[1]
                    modes.append("srun")
                else:
                    modes.append("output" if modes[0].startswith("file:") else modes[0])
            elif text.lower() == "none":
                modes.append("null")
            elif is_per_task(text):
                modes.append(f"file:{text}")
            else:
                self._sinks[stream] = self._make_sink(stream, text)
                modes.append("srun")
        return modes

    def _make_sink(self, stream: int, text: str) -> Sink:
        if text.lower() in ("", "all") or text.isdecimal():
            if text.isdecimal():
                self._only[stream] = int(text)
            sink = Sink(self._loop, stream)
        else:
            how = os.O_APPEND if self._srun.text("open-mode").startswith("a") else os.O_TRUNC
            path = expand_name(text, self._place)
            sink = Sink(
                self._loop, os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o666), owned=True
            )
        sink.on_drained = self._drained
        sink.on_broken = lambda reason: self._broken()
        return sink

    def add_channel(self, node: int, channel: Channel) -> None:
        """Take in the connection to a node of the step."""
        self._channels[node] = channel
        self._sent[node] = 0

    def node_started(self, node: int) -> None:
        """Once all tasks run, they get standard input."""
        self._waiting.discard(node)
        if not self._waiting:
            self._read_on()

    def write(self, task: int, stream: int, data: bytes) -> None:
        """Write what a task has written; b"" is its stream's end."""
        label = self._labels.get((task, stream))
        if not data:
            self._open.discard((task, stream))
        if self._only.get(stream, task) != task:
            return
        sink = self._sinks[stream]
        sink.write(label.add(data) if label is not None else data)
        if sink.backlog > HIGH_WATER:
            for channel in self._channels.values():
                channel.pause()

    def _drained(self) -> None:
        for channel in list(self._channels.values()):
            channel.resume()

    def _broken(self) -> None:
        """Nobody reads any more: tasks shall notice it when they write."""
        for channel in self._channels.values():
            if channel.established:
                self.tell_broken(channel)
        self._drained()

    def tell_broken(self, channel: Channel) -> None:
        """Tell an agent which streams nobody reads; one that starts its tasks late as well."""
        for stream, sink in self._sinks.items():
            if sink.broken:
                channel.send(messages.CLOSE_OUTPUT, messages.encode({"stream": stream}))

    def end_node(self, node: int) -> None:
        """Expect nothing more of a node's tasks, and do not wait for them."""
        self._channels.pop(node, None)
        self._sent.pop(node, None)
        self._open = {(task, stream) for task, stream in self._open if self._nodes[task] != node}
        self._waiting.discard(node)

    def taken(self, node: int, count: int) -> None:
        """A node's tasks have taken some of standard input: there is room for more."""
        if node in self._sent:
            self._sent[node] -= count
            self._read_on()

    def _read_on(self) -> None:
        if self._stdin < 0:
            return
        room = max(self._sent.values(), default=0) < STDIN_WINDOW
        if not stat.S_ISREG(os.fstat(self._stdin).st_mode):
            self._watch(self._read_stdin if room else None)
        elif room:
            self._read_stdin()

    def _watch(self, callback: Callable[[], None] | None) -> None:
        try:
            self._loop.on_readable(self._stdin, callback)
        except PermissionError:
            # /dev/null and its like: always ready, and not for epoll.
            self._read_stdin()

    def _read_stdin(self) -> None:
        try:
            data = os.read(self._stdin, _CHUNK)
        except OSError:
            data = b""
        payload = messages.encode_stream(self.stdin_task, 0, data)
        for node, channel in self._channels.items():
            channel.send(messages.STDIN, payload)
            self._sent[node] += len(data)
        if not data:
            self._stop_reading()
        elif stat.S_ISREG(os.fstat(self._stdin).st_mode):
            self._loop.call_later(0, self._read_on)
        else:
            self._read_on()

    def _stop_reading(self) -> None:
        if self._stdin >= 0:
            try:
                self._loop.on_readable(self._stdin, None)
            except (KeyError, PermissionError):
                pass
            self._stdin = -1

    def finish(self, then: Callable[[], None]) -> None:
        """Write what is left, and go on once it is written."""
        self._stop_reading()
        for (_task, stream), label in self._labels.items():
            rest = label.add(b"")
            if rest and stream in self._sinks:
                self._sinks[stream].write(rest)
        self._labels.clear()
        if any(sink.backlog and not sink.broken for sink in self._sinks.values()):
            for sink in self._sinks.values():
                sink.on_drained = lambda: self.finish(then)
            return
        for sink in self._sinks.values():
            sink.close()
        then()
