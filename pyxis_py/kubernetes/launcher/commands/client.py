"""What the commands share: the job they belong to, and a connection to its batch host."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyxis_py.kubernetes.launcher.job.environment import CONTROLLER_VARIABLE
from pyxis_py.kubernetes.launcher.job.job_file import Job, JobFileError, read_job, read_token
from pyxis_py.kubernetes.launcher.job.places import find_places
from pyxis_py.kubernetes.launcher.wire import messages
from pyxis_py.kubernetes.launcher.wire.channel import Channel, open_channel
from pyxis_py.kubernetes.launcher.wire.loop import Loop


class CommandError(Exception):
    """What a command says before it fails."""


class Client(NamedTuple):
    """A command's view of the job."""

    job: Job
    token: bytes
    controller: tuple[str, int]


def find_client(environ: Mapping[str, str]) -> Client:
    """Return the job that a command is called in.

    Raises:
        CommandError: outside of a job.
    """
    places = find_places(environ)
    address, _, port = environ.get(CONTROLLER_VARIABLE, "").rpartition(" ")
    if not address or not port.isdecimal():
        raise CommandError("this works inside a job only: PYXIS_CONTROLLER is not set")
    try:
        # The node's number may be a step's by now; which node this is does not matter here.
        variables = {**environ, "SLURM_NODEID": "0"}
        job = read_job(places.job_file, variables)
        return Client(job, read_token(places.token), (address, int(port)))
    except JobFileError as error:
        raise CommandError(str(error)) from error


def call_controller(client: Client, loop: Loop) -> Channel:
    """Return a channel that is connecting to the batch host."""
    return open_channel(loop, client.controller, (client.token, client.job.subject(0)))


def ask(client: Client, kind: int, content: dict[str, Any]) -> dict[str, Any]:
    """Send one message to the batch host and return its answer.

    Raises:
        CommandError: if it refuses, or cannot be reached.
    """
    loop = Loop()
    answers: list[tuple[int, dict[str, Any]]] = []
    reasons: list[str] = []
    channel = call_controller(client, loop)

    def closed(reason: str) -> None:
        reasons.append(reason)
        loop.stop()

    def heard(number: int, payload: bytes) -> None:
        answers.append((number, messages.decode(payload)))
        loop.stop()

    channel.on_ready = lambda: channel.send(kind, messages.encode(content))
    channel.on_frame = heard
    channel.on_close = closed
    loop.run()
    if not answers:
        raise CommandError(f"the batch host cannot be reached: {reasons[0] or 'it has left'}")
    number, answer = answers[0]
    if number == messages.REFUSED:
        raise CommandError(str(answer["text"]))
    return answer


def complain(command: str, text: str) -> None:
    """Print an error as Slurm's commands do."""
    print(f"{command}: error: {text}", file=sys.stderr, flush=True)


def error_code() -> int:
    """What srun exits with for its own errors: 1, or SLURM_EXIT_ERROR."""
    text = os.environ.get("SLURM_EXIT_ERROR", "")
    return int(text) % 256 if text.isdecimal() and text.isascii() else 1


def stdin_is_open() -> bool:
    """Whether this process has a standard input."""
    try:
        os.fstat(0)
    except OSError:
        return False
    return True
