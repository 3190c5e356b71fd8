"""The hooks of a step on one node as an object, for launchers of any kind.

What Slurm's plugin does in slurmstepd, in the same order and under the same names:

    hooks = StepHooks(words)                 # init: the site's settings
    hooks.post_opt(options, environ)         # the flags as given, the job's environment
    hooks.user_init(job)                     # the container runs
    argv, fds = hooks.task_init(command)     # what to execute for each task, descriptors to pass on
    hooks.task_exit()                        # a task has ended; the last one cleans up
    hooks.exit()                             # whatever happened before, nothing is left

`pyxis run` is such a launcher; examples/ has more, for mpirun and submitit.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType

from enroot_py import EnrootError, UsageError
from pyxis_py.args import RawValue
from pyxis_py.job import JobFacts
from pyxis_py.options import OPTIONS, find_option
from pyxis_py.plugin_config import parse_plugin_config
from pyxis_py.protocol.keeper_process import KeeperProcess, ask, await_answer, encode_request
from pyxis_py.protocol.records import Answer, decode_answer

JOIN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "join.py")


def read_flags(words: Iterable[str]) -> list[RawValue]:
    """Return flags given as `--NAME[=VALUE]` words.

    Raises:
        UsageError: for one that is unknown, or lacks its value.
    """
    given = []
    for word in words:
        name, equals, argument = word.removeprefix("--").partition("=")
        option = find_option(name)
        if option is None:
            raise UsageError(f"Unknown flag: {word}")
        if option.takes_argument != bool(equals):
            need = "needs a value" if option.takes_argument else "takes no value"
            raise UsageError(f"--{name} {need}")
        given.append(RawValue(option, argument))
    return given


class StepHooks:
    """The container of one step on this node. A context manager: `exit` at its end."""

    def __init__(
        self, words: Iterable[str] = (), *, news: Callable[[str], None] | None = None
    ) -> None:
        """Read the site's settings.

        Args:
            words: as behind the plugin in plugstack.conf.
            news: takes lines for the user while `user_init` waits for the container.

        Raises:
            SettingsError: for one that is unknown or wrong.
        """
        self._words = tuple(words)
        self._news = news or (lambda line: None)
        parse_plugin_config(self._words)
        self._options: tuple[tuple[int, str], ...] = ()
        self._environ: Mapping[str, str] = {}
        self._job: JobFacts | None = None
        self._keeper: KeeperProcess | None = None
        self._line: socket.socket | None = None
        self._answer: Answer | None = None
        self._answer_fd = -1
        self._started = self._ended = 0
        self._cancelled = False

    def __enter__(self) -> StepHooks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.exit()

    def post_opt(self, given: Sequence[RawValue], environ: Mapping[str, str]) -> None:
        """Take the flags and the job's environment."""
        rows = list(OPTIONS)
        self._options = tuple((rows.index(value.option), value.argument) for value in given)
        self._environ = dict(environ)

    def user_init(self, job: JobFacts) -> tuple[str, ...]:
        """Start the container, once for all tasks; return lines for the user.

        Raises:
            EnrootError: if it cannot be started; the hint holds the log.
        """
        self._job = job._replace(environ=self._environ)
        request = self._request(("joins", str(job.local_tasks)))
        self._line, keepers = socket.socketpair()
        if not self._cancelled:
            self._keeper = KeeperProcess("start", request, line_fd=keepers.fileno())
        keepers.close()
        await_answer(self._line.fileno(), self._news)
        if self._cancelled or self._keeper is None:
            raise EnrootError("The step was cancelled while its container was started")
        data = self._keeper.read()
        self._answer = decode_answer(data)
        if self._answer.status == "error":
            message, *rest = self._answer.errors
            raise EnrootError(message, hint="\n".join(rest))
        self._answer_fd = os.memfd_create("answer", 0)
        os.write(self._answer_fd, data)
        return self._answer.logs + self._answer.infos

    def cancel(self) -> None:
        """Have `user_init` give up, as a handler of a signal may want; afterwards it does nothing.

        `exit` then removes what there is of the container.
        """
        self._cancelled = True
        if self._line is not None and self._answer is None:
            self._line.shutdown(socket.SHUT_RDWR)

    def task_init(self, command: Sequence[str]) -> tuple[list[str], tuple[int, ...]]:
        """Return what to execute for one task, and the descriptors that it has to inherit.

        For an empty command that is what goes before any. pass_task() of handover.py gives it to a
        process that is no child of this one.

        The process may have any environment and standard streams; it becomes the command inside
        the container under the same process id.
        """
        if self._answer is None or self._line is None:
            raise UsageError("task_init comes after user_init")
        self._started += 1
        if self._answer.status == "none":
            return list(command), ()
        fds = (self._answer_fd, self._line.fileno())
        words = [sys.executable, "-I", "-S", JOIN, str(fds[0]), str(fds[1]), "--", *command]
        return words, fds

    def task_exit(self) -> tuple[str, ...]:
        """Say that a task has ended; after the last one the container is saved and removed.

        Returns:
            Lines for the user.
        """
        self._ended += 1
        if self._job is None or self._ended < self._job.local_tasks:
            return ()
        return self._finish()

    def exit(self) -> None:
        """Let go of everything; cleans up if tasks never came or never ended."""
        if self._keeper is not None and self._answer is None:
            # Whatever it is doing would end sooner or later, but nobody waits for it any more.
            keeper, self._keeper = self._keeper, None
            keeper.kill()
            ask("abandon", self._request(), tell=self._news)
        if self._job is not None and self._ended < self._job.local_tasks:
            self._ended = self._job.local_tasks
            self._finish()
        self._end_keeper()
        if self._answer_fd >= 0:
            os.close(self._answer_fd)
            self._answer_fd = -1

    def _end_keeper(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._keeper is not None:
            self._keeper.wait()
            self._keeper = None

    def _finish(self) -> tuple[str, ...]:
        # It holds the container for tasks that have not joined, because they were killed before.
        self._end_keeper()
        if self._answer is None or not self._answer.state or self._job is None:
            return ()
        request = self._request(("state", self._answer.state), ("started", str(self._started)))
        done = ask("finish", request, tell=self._news)
        return done.logs + tuple(f"error: {line}" for line in done.errors)

    def _request(self, *extra: tuple[str, str]) -> bytes:
        assert self._job is not None
        extra = (("settings", "own"), *extra)
        return encode_request(self._job, words=self._words, options=self._options, extra=extra)
