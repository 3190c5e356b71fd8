"""Statuses of wait(2), as codes and in words."""

from __future__ import annotations

import os
import signal


def exit_code(status: int) -> int:
    """Return the code that srun makes of a status of wait(2): a signal counts from 128 on."""
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def describe_status(status: int) -> str:
    """Return a sentence's end for a status that is not 0."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        core = " (core dumped)" if os.WCOREDUMP(status) else ""
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = str(number)
        return f"ended by {name}{core}"
    return f"exited with status {os.WEXITSTATUS(status)}"
