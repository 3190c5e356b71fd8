"""The command `scancel`: this job, one of its steps, or a signal for them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyxis_py.kubernetes.launcher.commands.client import Client, CommandError, ask, find_client
from pyxis_py.kubernetes.launcher.job.command_line import Option, cut
from pyxis_py.kubernetes.launcher.job.signals import signal_number
from pyxis_py.kubernetes.launcher.wire import messages

_OPTIONS = (
    Option("signal", "s"), Option("batch", "b", "none"), Option("full", "f", "none"),
    Option("name", "n"), Option("jobname"), Option("user", "u"), Option("state", "t"),
    Option("me", "", "none"), Option("quiet", "Q", "none"), Option("verbose", "v", "none"),
    Option("hurry", "H", "none"), Option("account", "A"), Option("partition", "p"),
    Option("nodelist", "w"), Option("ctld", "", "none"),
)  # fmt: skip
_FILTERS = ("name", "jobname", "user", "me", "state", "account", "partition")


def scancel(argv: list[str]) -> int:
    """End or signal the job or steps of it; return the exit status.

    Raises:
        CommandError: for other jobs, of which nothing is known here.
    """
    given, words = cut(argv, _OPTIONS, mixed=True)
    values = dict(given)
    client = find_client(os.environ)
    number = signal_number(values["signal"]) if "signal" in values else None
    if not words and not any(name in values for name in _FILTERS):
        raise CommandError("name the job: scancel $SLURM_JOB_ID")
    if not _matches(client, values):
        return 0
    for word in words or [str(client.job.job_id)]:
        content = {
            "step": _step(client, word),
            "signal": number,
            "batch": "batch" in values,
            "full": "full" in values,
        }
        ask(client, messages.CANCEL, content)
    return 0


def _step(client: Client, word: str) -> int | None:
    """Return the number of the step that a word names; None for the whole job."""
    job, dot, step = word.partition(".")
    array = f"{os.environ.get('SLURM_ARRAY_JOB_ID')}_{client.job.element}"
    if job not in (str(client.job.job_id), array):
        raise CommandError(f"{word}: this is job {client.job.job_id}, and knows of no other")
    if not dot or step == "batch":
        return None
    if not step.isdecimal() or not step.isascii():
        raise CommandError(f"not a step: {word!r}")
    return int(step)


def _matches(client: Client, values: Mapping[str, str]) -> bool:
    """Whether the job is among those that the filters leave."""
    facts = {
        "name": {client.job.name},
        "jobname": {client.job.name},
        "user": {os.environ.get("USER", ""), str(os.getuid())},
        "state": {"RUNNING", "R", "running"},
        "account": {os.environ.get("SLURM_JOB_ACCOUNT", "")},
        "partition": {os.environ.get("SLURM_JOB_PARTITION", "")},
    }
    return all(values[name] in found for name, found in facts.items() if name in values)
