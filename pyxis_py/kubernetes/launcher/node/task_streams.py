"""The ends of a task's streams: pipes to srun, files, terminals."""

from __future__ import annotations

import os
import pty
import termios
from collections.abc import Callable
from functools import partial

from pyxis_py.kubernetes.launcher.job.launch_order import LaunchOrder
from pyxis_py.kubernetes.launcher.job.output_names import expand_name
from pyxis_py.kubernetes.launcher.node.task_plan import TaskPlan
from pyxis_py.kubernetes.launcher.wire import messages
from pyxis_py.kubernetes.launcher.wire.loop import Loop
from pyxis_py.kubernetes.launcher.wire.streams import LineSource, Sink


class TaskStreams:
    """Our ends of one task's streams.

    Attributes:
        stdin: None if the task reads something else, or has been told the end.
        sources: standard output and error by their numbers, those that srun gets.
    """

    def __init__(self) -> None:
        self.stdin: Sink | None = None
        self.sources: dict[int, LineSource] = {}

    def end_input(self) -> None:
        """Let the task read the end of its standard input."""
        if self.stdin is not None:
            self.stdin.close()
            self.stdin = None


class StreamOpener:
    """Opens the streams of the tasks of one order.

    Args:
        on_output: called with task, stream and bytes; b"" at the end of a stream.
    """

    def __init__(
        self, loop: Loop, order: LaunchOrder, on_output: Callable[[int, int, bytes], None]
    ) -> None:
        self._loop = loop
        self._order = order
        self._on_output = on_output
        self._files: set[str] = set()

    def open(self, task: TaskPlan, streams: TaskStreams, opened: list[int]) -> tuple[int, int, int]:
        """Return the task's ends; those to close after the start are added to `opened`.

        Raises:
            OSError: if a file cannot be opened.
        """
        ends: list[int] = []
        for stream, mode in enumerate(self._order.streams):
            if mode == "output":
                ends.append(ends[1])
                continue
            ends.append(self._open(task, streams, stream, mode))
            opened.append(ends[-1])
        return ends[0], ends[1], ends[2]

    def _open(self, task: TaskPlan, streams: TaskStreams, stream: int, mode: str) -> int:
        if mode.startswith("file:"):
            path = os.path.join(task.directory, expand_name(mode[5:], task.place))
            return self._create(path) if stream else os.open(path, os.O_RDONLY)
        fed = self._order.stdin_task in (messages.ALL_TASKS, task.number)
        if mode == "srun" and stream == 0 and fed:
            theirs, ours = os.pipe()
            os.set_blocking(ours, False)
            streams.stdin = Sink(self._loop, ours, owned=True)
            return theirs
        if mode == "srun" and stream > 0:
            # As under Slurm, only what programs print holds lines back for a pipe.
            terminal = self._order.unbuffered and stream == 1
            ours, theirs = _terminal() if terminal else os.pipe()
            output = partial(self._on_output, task.number, stream)
            unbuffered = self._order.unbuffered
            streams.sources[stream] = LineSource(self._loop, ours, output, unbuffered=unbuffered)
            return theirs
        return os.open(os.devnull, os.O_WRONLY if stream else os.O_RDONLY)

    def _create(self, path: str) -> int:
        """Open an output file; tasks that share it write one behind the other."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        if not self._order.append and path not in self._files:
            flags |= os.O_TRUNC
        self._files.add(path)
        return os.open(path, flags, 0o666 & ~self._order.umask)


def _terminal() -> tuple[int, int]:
    """Return both ends of a terminal: programs do not hold lines back that go to one."""
    ours, theirs = pty.openpty()
    attributes = termios.tcgetattr(theirs)
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    return ours, theirs
