"""Give a task to a process that is no child of the one with the hooks, such as a rank of mpirun.

What `StepHooks.task_init` returns holds numbers of descriptors, which only children inherit. Here
both go over a Unix socket, and the process at its other end becomes the task:

    ended = pass_task(connection, *hooks.task_init([]))    # in the process that has the hooks
    become_task(connection, command)                       # in the task's
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import NoReturn

from enroot_py import CommandError, EnrootError
from pyxis_py.launchers.interpreter import forget_locale, restore_pipes

_MARK = b"T"
_MOST_DESCRIPTORS = 8
_OUT_OF_THE_WAY = 100


def pass_task(connection: socket.socket, words: Sequence[str], descriptors: Sequence[int]) -> int:
    """Send what `StepHooks.task_init` returned to the process at the other end.

    Args:
        connection: a Unix socket that the task's process has connected to.
        words: what to execute before the task's own command (or with it).
        descriptors: what it has to inherit.

    Returns:
        A descriptor of the caller's that is readable once that process has ended.

    Raises:
        EnrootError: if it is another user's process, or has ended.
    """
    pid = _same_users(connection)
    text = json.dumps({"words": list(words), "descriptors": list(descriptors)})
    fd = os.memfd_create("task", os.MFD_CLOEXEC)
    try:
        with open(fd, "w", encoding="ascii", closefd=False) as file:
            file.write(text)
        ended_fd = os.pidfd_open(pid)
        socket.send_fds(connection, [_MARK], [fd, *descriptors])
    except OSError as error:
        raise EnrootError(f"A task ended before it joined: {error.strerror}") from error
    finally:
        os.close(fd)
    return ended_fd


def become_task(connection: socket.socket, command: Sequence[str]) -> NoReturn:
    """Become the task that the process at the other end passes; never returns.

    Args:
        connection: a Unix socket that is connected to the process with the hooks.
        command: the task's own command; the words that come are put before it.

    Raises:
        EnrootError: if no task comes, or it would come from another user's process.
        CommandError: if it cannot be executed.
    """
    _same_users(connection)
    try:
        data, received, _, _ = socket.recv_fds(connection, len(_MARK), _MOST_DESCRIPTORS)
    except ConnectionError:
        data = b""
    if data != _MARK:
        raise EnrootError(
            "No task came: the container was not started",
            hint="the process that was to start it has said why",
        )
    # What came may have the numbers that others of it are to get.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY) for fd in received]
    for fd in received:
        os.close(fd)
    task = json.loads(os.pread(high[0], os.fstat(high[0]).st_size, 0))
    for fd, number in zip(high[1:], task["descriptors"], strict=True):
        os.dup2(fd, number)
    words = [*task["words"], *command]
    forget_locale()
    restore_pipes()
    try:
        os.execvp(words[0], words)
    except OSError as error:
        raise CommandError(f"Cannot execute {words[0]}: {error.strerror}") from error


def _same_users(connection: socket.socket) -> int:
    """Return the process at the other end, which has to be this user's. Source: unix(7)."""
    form = struct.Struct("3i")
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, form.size)
    pid, uid, _ = form.unpack(data)
    if uid != os.geteuid():
        raise EnrootError(f"A process of another user (uid {uid}) is at the other end")
    return int(pid)
