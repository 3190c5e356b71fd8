"""A task's process that outlives its command, because something is left to do when all have ended.

Only where a container is to be saved or removed: all other tasks become their command.
"""

from __future__ import annotations

import os
import signal
import sys

from pyxis_py.keeper_process import ask, encode_request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn

    from pyxis_py.job import JobFacts
    from pyxis_py.records import Answer
    from pyxis_py.rendezvous import Rendezvous

_LEFT_TO_THE_COMMAND = (
    signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM, signal.SIGWINCH,
)  # fmt: skip
"""Slurm sends signals to all processes of a task, and a terminal to all of its group."""


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
    pid = os.fork()
    if pid == 0:
        from pyxis_py.task import run_and_explain

        os._exit(run_and_explain(become))
    for number in _LEFT_TO_THE_COMMAND:
        signal.signal(number, signal.SIG_IGN)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if meeting.end():
        _finish(job, words, options, answer, meeting)
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status if status >= 0 else 128 - status)


def _finish(
    job: JobFacts,
    words: Iterable[str],
    options: Iterable[tuple[int, str]],
    answer: Answer,
    meeting: Rendezvous,
) -> None:
    joined = meeting.counts().joined
    extra = (("state", answer.state), ("started", str(joined)))
    done = ask("finish", encode_request(job, words=words, options=options, extra=extra))
    for text in (*done.logs, *(f"error: {line}" for line in done.errors)):
        sys.stderr.write(f"pyxis: {text}\n")
    sys.stderr.flush()
    meeting.remove()
