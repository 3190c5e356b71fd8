"""A task's process that outlives its command, because something is left to do when all have ended.

Only where a container is to be saved or removed: all other tasks become their command.
"""

from __future__ import annotations

import os
import signal
import sys

from pyxis_py.launchers.termination import forget
from pyxis_py.protocol.keeper_process import ask, encode_request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType
    from typing import NoReturn

    from pyxis_py.job import JobFacts
    from pyxis_py.launchers.rendezvous import Rendezvous
    from pyxis_py.protocol.records import Answer

_FORWARDED = (
    signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
    signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH,
)  # fmt: skip
_FROM_TERMINALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)
"""A terminal sends them to the command as well; Slurm sends every signal to this process alone."""


def supervise(
    become: Callable[[], NoReturn],
    *,
    job: JobFacts,
    words: Iterable[str],
    options: Iterable[tuple[int, str]],
    answer: Answer,
    meeting: Rendezvous,
) -> NoReturn:
    """Run the command in a child, wait for it, clean up if it is the last, and end as it did.

    Args:
        become: becomes the command.
        job, words, options: the request to finish is made of them.
        answer: what the start left to do.
        meeting: tells which task is the last.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    pid = os.fork()
    if pid == 0:
        from pyxis_py.launchers.task import SLURMS_STATUSES, run_and_explain

        forget()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        os._exit(run_and_explain(become, statuses=SLURMS_STATUSES))
    _forward_signals(pid)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_IGN)  # what is left to do is to be done
    if meeting.end():
        _finish(job, words, options, answer, meeting)
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status if status >= 0 else 128 - status)


def _forward_signals(pid: int) -> None:
    def forward(number: int, frame: FrameType | None) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass  # it has just ended

    for number in _FORWARDED:
        at_terminal = number in _FROM_TERMINALS and os.isatty(0)
        signal.signal(number, signal.SIG_IGN if at_terminal else forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)


def _tell(line: str) -> None:
    sys.stderr.write(f"pyxis: {line}\n")
    sys.stderr.flush()


def _finish(
    job: JobFacts,
    words: Iterable[str],
    options: Iterable[tuple[int, str]],
    answer: Answer,
    meeting: Rendezvous,
) -> None:
    joined = meeting.counts().joined
    extra = (("state", answer.state), ("started", str(joined)))
    done = ask("finish", encode_request(job, words=words, options=options, extra=extra), tell=_tell)
    for text in (*done.logs, *(f"error: {line}" for line in done.errors)):
        _tell(text)
    meeting.remove()
