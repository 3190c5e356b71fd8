"""Do numbered portions of work in processes forked from this one.

A forked process has everything that this one has read, for nothing, and Python's interpreter lock
to itself. It takes numbers from a pipe until there are none left, so that nobody waits for the
slowest share; messages and the first error come back through another pipe.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from collections.abc import Callable
from struct import Struct

from enroot_py import errors, log
from enroot_py.errors import EnrootError, SquashfsError

_MAX_PROCESSES = 16
_MAX_PORTIONS_PER_NUMBER = 4096
_PIPE_BUF = 4096
_NUMBER = Struct("=I")


def run_portions(do_portion: Callable[[int], None], count: int, *, processors: int) -> None:
    """Call `do_portion` with 0 … count - 1, each once, in any order.

    Args:
        do_portion: what it changes in memory is lost.
        count: portions.
        processors: processes, at most 16. Where this process has other threads the work is done
            here: a forked process would have their locks, but not the threads to release them.

    Raises:
        EnrootError, OSError: the first of these that `do_portion` raised; the rest is given up.
    """
    processes = min(processors, _MAX_PROCESSES, count)
    if processes <= 1 or threading.active_count() > 1:
        for number in range(count):
            do_portion(number)
        return
    numbers_fd, feed_fd = os.pipe()
    # A pipe holds 64 KiB: all the numbers, if several portions go by one number.
    stride = count // _MAX_PORTIONS_PER_NUMBER + 1
    for number in range(0, count, stride):
        os.write(feed_fd, _NUMBER.pack(number))
    os.close(feed_fd)
    report_fd, send_fd = os.pipe()
    children: list[int] = []
    # Otherwise the children's collector would copy all that they share with this process.
    gc.freeze()
    try:
        for _ in range(processes):
            children.append(_fork_worker(do_portion, numbers_fd, send_fd, stride, count))
        os.close(send_fd)
        send_fd = -1
        failure = _listen(report_fd, numbers_fd)
    finally:
        gc.unfreeze()
        # What is left in the pipe is not to be done any more.
        _drain(numbers_fd)
        for fd in (numbers_fd, report_fd, send_fd):
            if fd >= 0:
                os.close(fd)
        statuses = [os.waitpid(pid, 0)[1] for pid in children]
    if failure is not None:
        raise failure
    if any(statuses):
        raise SquashfsError(f"A process that was sharing the work died (status {max(statuses)})")


def _fork_worker(
    do_portion: Callable[[int], None], numbers_fd: int, send_fd: int, stride: int, count: int
) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        gc.disable()
        log.set_sink(lambda level, text: _send(send_fd, {"level": level, "text": text}))
        while number := os.read(numbers_fd, _NUMBER.size):
            (first,) = _NUMBER.unpack(number)
            for portion in range(first, min(first + stride, count)):
                do_portion(portion)
            if os.getppid() != parent:
                break  # it was killed, and nobody wants the result
        status = 0
    except OSError as error:
        _send(send_fd, {"errno": error.errno, "text": error.strerror})
    except EnrootError as error:
        _send(send_fd, {"error": type(error).__name__, "text": str(error), "hint": error.hint})
    finally:
        # A forked child never returns into its parent's code, whatever went wrong.
        if status and sys.exc_info()[0] not in (None, KeyboardInterrupt):
            sys.excepthook(*sys.exc_info())
        os._exit(status)


def _send(fd: int, message: dict[str, object]) -> None:
    """Send one line; short enough to arrive in one piece among those of others."""
    line = json.dumps(message).encode()
    if len(line) >= _PIPE_BUF:
        text = str(message["text"])
        line = json.dumps({**message, "text": text[:300]}).encode()
    os.write(fd, line + b"\n")


def _listen(report_fd: int, numbers_fd: int) -> EnrootError | OSError | None:
    """Pass messages on until every child is gone; returns the first error."""
    failure: EnrootError | OSError | None = None
    with open(report_fd, "rb", closefd=False) as lines:
        for line in lines:
            message = json.loads(line)
            if "level" in message:
                if message["level"] == log.WARN:
                    log.warn_once(message["text"], message["text"])
                continue
            _drain(numbers_fd)
            if failure is None:
                failure = _rebuild(message)
    return failure


def _drain(fd: int) -> None:
    while os.read(fd, 1 << 16):
        pass


def _rebuild(message: dict[str, object]) -> EnrootError | OSError:
    if "errno" in message:
        return OSError(message["errno"], message["text"])
    kind = getattr(errors, str(message["error"]))
    error = kind(str(message["text"]), hint=str(message["hint"]))
    assert isinstance(error, EnrootError)
    return error
