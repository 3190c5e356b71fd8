"""The messages of the launcher's processes: their kinds, and how their payloads are written.

Commands and facts travel as JSON objects, streams of tasks as bytes behind a small header. The
environment may have bytes that are not UTF-8: they survive as JSON's escapes of lone surrogates.

Pure.
"""

from __future__ import annotations

import json
import struct
from typing import Any

# An agent and the batch host
JOIN = 1
"""agent: index, address, port, pod, machine."""
JOB_OVER = 2
"""batch host: status; the agent ends its tasks and leaves."""
SIGNAL_STEPS = 3
"""batch host: signal, and step (null for all)."""
EVICTED = 4
"""agent: its pod got SIGTERM, and has little time left; idle: it has no tasks any more."""

# A command and the batch host
CREATE_STEP = 10
"""srun: request, command, and time (seconds or null). The step lasts as long as the connection."""
STEP_WAITS = 11
STEP_CREATED = 12
"""batch host: number, hosts, shares, addresses."""
REFUSED = 13
"""text, and code, the command's exit status."""
NOTICE = 14
"""batch host: text for srun to show, such as that the job's time is over."""
ASK = 15
TELL = 16
"""batch host: facts about the job, its nodes and steps."""
REQUEUE = 17
CANCEL = 18
"""scancel: step (null for the job), signal (null to end it), batch, full."""
DONE = 19
LOST_NODE = 20
"""batch host: index and text, for the srun whose step had tasks there."""

# srun and an agent
LAUNCH = 30
STARTED = 31
SIGNAL = 32
"""srun: signal."""
STDIN = 33
"""srun: bytes for one task or for all; none: the end."""
STDIN_TAKEN = 34
"""agent: how many bytes its tasks have taken."""
OUTPUT = 35
"""agent: bytes of one task; none: the end."""
EXITED = 36
"""agent: task, status as of wait(2)."""
CLOSE_OUTPUT = 37
"""srun: stream (1 or 2) that nobody reads any more."""

FENCE = 38
"""agent: values that tasks have put, once all of its node have come to the fence of PMI."""
FENCE_END = 39
"""srun: values of all nodes."""
ABORT = 40
"""agent: status with which a task ends the step, by MPI_Abort."""

ALL_TASKS = 0xFFFFFFFF
_STREAM = struct.Struct(">IB")


class MessageError(Exception):
    """A payload that no launcher of this version writes."""


def encode(content: dict[str, Any]) -> bytes:
    """Return a payload."""
    return json.dumps(content, separators=(",", ":")).encode("ascii")


def decode(payload: bytes) -> dict[str, Any]:
    """Return the content of a payload.

    Raises:
        MessageError: if it is no JSON object.
    """
    try:
        content = json.loads(payload.decode("ascii"))
    except ValueError as error:
        raise MessageError(f"not JSON: {error}") from error
    if not isinstance(content, dict):
        raise MessageError("not an object")
    return content


def encode_stream(task: int, stream: int, data: bytes) -> bytes:
    """Return a payload with bytes of a task's stream: 0, 1 or 2."""
    return _STREAM.pack(task, stream) + data


def decode_stream(payload: bytes) -> tuple[int, int, bytes]:
    """Return task, stream and bytes of a payload.

    Raises:
        MessageError: if it is too short.
    """
    if len(payload) < _STREAM.size:
        raise MessageError("a stream without its header")
    task, stream = _STREAM.unpack_from(payload)
    return task, stream, payload[_STREAM.size :]
