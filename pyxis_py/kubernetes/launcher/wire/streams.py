"""Bytes between descriptors and the loop: sinks that never block it, sources that keep lines whole.

A pipe or terminal that others share cannot be made non-blocking, so a sink writes as much as poll
guarantees and keeps the rest.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable

from pyxis_py.kubernetes.launcher.wire.loop import Loop, Timer

LONGEST_LINE = 64 * 1024
"""Bytes after which a line is passed on without its end."""
IDLE_FLUSH = 0.2
"""Seconds after which the beginning of a line is passed on: a prompt, a progress bar."""


class Sink:
    """Writes to a descriptor that may be slow, and stops once nobody reads.

    Attributes:
        broken: whether writing failed; what is written then is dropped.
        on_drained: called when everything has been written.
        on_broken: called once, when the reader has gone or the disk is full.
    """

    def __init__(self, loop: Loop, fd: int, *, owned: bool = False) -> None:
        self.broken = False
        self.on_drained: Callable[[], None] = lambda: None
        self.on_broken: Callable[[str], None] = lambda reason: None
        self._loop = loop
        self._fd = fd
        self._owned = owned
        self._closing = False
        self._waiting = bytearray()
        # Regular files take everything at once, and epoll refuses them.
        self._direct = stat.S_ISREG(os.fstat(fd).st_mode) or _is_device(fd)

    @property
    def backlog(self) -> int:
        """Bytes that wait for a slow reader."""
        return len(self._waiting)

    def write(self, data: bytes) -> None:
        """Write now or later."""
        if self.broken or self._closing:
            return
        if self._direct:
            self._write_all(data)
            return
        waited = bool(self._waiting)
        self._waiting += data
        self._pump()
        if waited and not self._waiting and not self.broken:
            # Those who paused have to hear of it, whatever wrote the rest.
            self.on_drained()

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._break(error)

    def _pump(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        try:
            while self._waiting and poll.poll(0):
                # So much fits into a pipe without waiting once poll has said that it is writable.
                written = os.write(self._fd, bytes(self._waiting[: select.PIPE_BUF]))
                del self._waiting[:written]
        except BlockingIOError:
            pass
        except OSError as error:
            self._break(error)
            return
        self._loop.on_writable(self._fd, self._writable if self._waiting else None)

    def _writable(self) -> None:
        self._pump()
        if not self._waiting and not self.broken:
            if self._closing:
                self._release()
            self.on_drained()

    def _break(self, error: OSError) -> None:
        self.broken = True
        self._waiting.clear()
        if not self._direct:
            self._loop.on_writable(self._fd, None)
        self.on_broken(error.strerror or str(error))
        if self._closing:
            self._release()

    def close(self) -> None:
        """Write what waits, then close the descriptor if the sink owns it."""
        if self._closing:
            return
        self._closing = True
        if not self._waiting:
            self._release()

    def _release(self) -> None:
        if self._owned:
            os.close(self._fd)
            self._owned = False


def _is_device(fd: int) -> bool:
    """/dev/null and its like, which epoll refuses as well; terminals it takes."""
    return stat.S_ISCHR(os.fstat(fd).st_mode) and not os.isatty(fd)


class LineSource:
    """Reads a pipe and passes whole lines on, so that those of several tasks do not mix.

    Args:
        unbuffered: pass everything on as it comes.
        on_data: called with bytes, and with b"" at the end.
    """

    def __init__(
        self, loop: Loop, fd: int, on_data: Callable[[bytes], None], *, unbuffered: bool = False
    ) -> None:
        self.closed = False
        self._loop = loop
        self._fd = fd
        self._on_data = on_data
        self._unbuffered = unbuffered
        self._partial = bytearray()
        self._idle: Timer | None = None
        self._paused = False
        os.set_blocking(fd, False)
        loop.on_readable(fd, self._readable)

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, 64 * 1024)
        except BlockingIOError:
            return
        except OSError:  # a terminal whose other side has gone
            data = b""
        if not data:
            self.close()
            return
        self._partial += data
        if self._unbuffered or len(self._partial) > LONGEST_LINE:
            self._pass(len(self._partial))
        else:
            self._pass(self._partial.rfind(b"\n") + 1)
        if self._partial and self._idle is None:
            self._idle = self._loop.call_later(IDLE_FLUSH, self._flush)

    def _pass(self, length: int) -> None:
        if length:
            data = bytes(self._partial[:length])
            del self._partial[:length]
            self._on_data(data)
        if not self._partial and self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _flush(self) -> None:
        self._idle = None
        if not self.closed:
            self._pass(len(self._partial))

    def pause(self) -> None:
        """Stop reading, so that the writer has to wait."""
        if not self._paused and not self.closed:
            self._paused = True
            self._loop.on_readable(self._fd, None)

    def resume(self) -> None:
        """Read again."""
        if self._paused and not self.closed:
            self._paused = False
            self._loop.on_readable(self._fd, self._readable)

    def drain(self) -> None:
        """Take what is there already, and close: somebody else may hold the other end for good."""
        while not self.closed:
            try:
                data = os.read(self._fd, 64 * 1024)
            except OSError:
                break
            if not data:
                break
            self._partial += data
        self.close()

    def close(self) -> None:
        """Pass the rest on and close."""
        if self.closed:
            return
        self.closed = True
        self._loop.on_readable(self._fd, None)
        os.close(self._fd)
        self._pass(len(self._partial))
        self._on_data(b"")


class Labels:
    """Puts `3: ` in front of every line of task 3, as wide as the largest number.

    One for each task and stream.
    """

    def __init__(self, task: int, tasks: int) -> None:
        self._label = f"{task:>{len(str(max(tasks - 1, 0)))}}: ".encode()
        self._partial = b""

    def add(self, data: bytes) -> bytes:
        """Return labelled lines; the beginning of a line is kept until its end. b"": no more."""
        if not data:
            rest, self._partial = self._partial, b""
            return self._label + rest + b"\n" if rest else b""
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()
        return b"".join(self._label + line + b"\n" for line in lines)
