"""Start a container beside this process, and hold on to it.

A process with threads cannot enter a user namespace, and one with a large heap forks slowly, so the
container begins as a fresh interpreter: `python -I -S` that reads what to start from a descriptor,
says on another one what went wrong, and then becomes the container.
"""

from __future__ import annotations

import marshal
import os
import select
import signal
import sys
from errno import EBADF

from enroot_py import errors
from enroot_py.errors import EnrootError, UnsupportedError
from enroot_py.plan.spec import StartSpec, check_words
from enroot_py.settings import Settings, load_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Any

_REQUEST_FD, _FAULT_FD = 3, 4
_FIRST_FREE_FD = 10
_CHILD = """\
import sys
sys.path += sys.argv[1:]
from enroot_py.operations.spawned import main
main()
"""


class Container:
    """A process that was started in a container. A context manager, which kills it at the end.

    Attributes:
        pid: the process's id on this host. In a new pid namespace it is the process that waits for
            the container's first one; `exec` and `enroot exec` understand it too.
    """

    def __init__(self, pid: int) -> None:
        """Take charge of a child of this process."""
        self.pid = pid
        self._status: int | None = None
        try:
            self._pidfd = os.pidfd_open(pid)
        except OSError:  # kernels before 5.3
            self._pidfd = -1

    def __enter__(self) -> Container:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; return the exit status, 128 + N for a death by signal N.

        Args:
            timeout: seconds; None to wait as long as it takes.

        Raises:
            TimeoutError: if it has not ended by then.
        """
        if self._status is None:
            if timeout is not None and not self._ends_within(timeout):
                raise TimeoutError(f"Container process {self.pid} still runs after {timeout:g} s")
            status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            self._status = status if status >= 0 else 128 - status
        return self._status

    def _ends_within(self, timeout: float) -> bool:
        if self._pidfd < 0:
            raise UnsupportedError("Waiting with a time limit needs Linux 5.3")
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(timeout * 1000))

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing happens if the process has ended."""
        if self._status is not None:
            return
        try:
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, number)
            else:
                os.kill(self.pid, number)  # a child that nobody waited for keeps its number
        except ProcessLookupError:
            pass

    def kill(self) -> int:
        """Kill the process and wait for it; return its status. Its children live on.

        In a new pid namespace everything in it dies.
        """
        self.send_signal(signal.SIGKILL)
        return self.wait()

    def exec(
        self,
        command: Iterable[str],
        *,
        environ: Iterable[str] = (),
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> Container:
        """Start another process in this container and return it.

        Args:
            command: the program and its arguments.
            environ: "NAME=value", or "NAME" for the host's value.
            stdin, stdout, stderr: descriptors; None for this process's own.

        Raises:
            UsageError: if a text stands where words are expected.
            CommandError: if the command cannot be run.
            EnrootError: if the container cannot be joined.
        """
        request = ("exec", self.pid, _words("command", command), _words("environ", environ))
        return _launch(request, dict(os.environ), (stdin, stdout, stderr))

    def close(self) -> None:
        """Kill the process if it still runs, and let go of it."""
        self.kill()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def spawn(
    spec: StartSpec,
    *,
    settings: Settings | None = None,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> Container:
    """Start a container and return it once its command runs.

    Works in programs with threads; this process stays as it is.

    Args:
        spec: what to start. `preserve_fds` is not possible here.
        settings: the configuration; read, with the directives of `spec.conf`, if None.
        stdin, stdout, stderr: descriptors for the container; None for this process's own.

    Raises:
        EnrootError: whatever `start` raises.
    """
    spec.check()
    if spec.preserve_fds:
        raise UnsupportedError(
            "Descriptors cannot be passed on to a spawned container",
            hint="use stdin, stdout and stderr, or start()",
        )
    if settings is None:
        from enroot_py.operations.start_files import read_directives

        settings = load_settings(directives=read_directives(spec.conf))
    environment = dict(settings.environment)
    plain = tuple(settings._replace(environment=environment))
    request = ("start", _plain(spec), plain)
    return _launch(request, environment, (stdin, stdout, stderr))


def _words(name: str, words: Iterable[str]) -> tuple[str, ...]:
    # Letters and keys are no words, though one can iterate over both.
    given = words if isinstance(words, (str, dict)) else tuple(words)
    check_words(name, given)
    return tuple(given)


def _plain(spec: StartSpec) -> tuple[Any, ...]:
    """Return a spec as built-in types alone, which is what `marshal` takes."""
    mounts = tuple(mount if isinstance(mount, str) else tuple(mount) for mount in spec.mounts)
    return tuple(spec._replace(mounts=mounts))  # type: ignore[arg-type]


def _launch(
    request: tuple[Any, ...],
    environment: dict[str, str],
    streams: tuple[int | None, int | None, int | None],
) -> Container:
    if not sys.executable:
        raise UnsupportedError(
            "This program does not say which Python it runs on", hint="set sys.executable"
        )
    request_fd = _high(os.memfd_create("request", os.MFD_CLOEXEC))
    fault_fd, child_fault_fd = (_high(fd) for fd in os.pipe())
    try:
        os.pwrite(request_fd, marshal.dumps(request), 0)
        pid = _spawn_interpreter(request_fd, child_fault_fd, environment, streams)
    except BaseException:
        os.close(fault_fd)
        raise
    finally:
        os.close(request_fd)
        os.close(child_fault_fd)
    container = Container(pid)
    # The descriptor closes by itself when the container's command is executed.
    with open(fault_fd, "rb") as file:
        fault = file.read()
    if fault:
        container.close()
        raise _rebuild(marshal.loads(fault))
    return container


def _high(fd: int) -> int:
    """Move a descriptor out of the way of those that the child gets by fixed numbers."""
    import fcntl

    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD)
    finally:
        os.close(fd)


def _spawn_interpreter(
    request_fd: int,
    fault_fd: int,
    environment: dict[str, str],
    streams: tuple[int | None, int | None, int | None],
) -> int:
    actions: list[tuple[int, int, int]] = []
    moved = []
    for target, fd in enumerate(streams):
        if fd is not None:
            moved.append(_duplicate(fd))
            actions.append((os.POSIX_SPAWN_DUP2, moved[-1], target))
    actions.append((os.POSIX_SPAWN_DUP2, request_fd, _REQUEST_FD))
    actions.append((os.POSIX_SPAWN_DUP2, fault_fd, _FAULT_FD))
    package = os.path.dirname(os.path.dirname(os.path.abspath(errors.__file__)))
    # What this interpreter finds its libraries by: only unpacking an image and CDI need any.
    libraries = [path for path in sys.path if path and path != package]
    words = [sys.executable, "-I", "-S", "-c", _CHILD, package, *libraries]
    try:
        return os.posix_spawn(sys.executable, words, environment, file_actions=actions)
    finally:
        for fd in moved:
            os.close(fd)


def _duplicate(fd: int) -> int:
    import fcntl

    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD)
    except OSError as error:
        if error.errno == EBADF:
            raise UnsupportedError(f"Descriptor {fd} is not open") from error
        raise


def _rebuild(fault: tuple[str, str, dict[str, object]]) -> EnrootError:
    """Return the error that ended the child, as the class that it was."""
    name, message, attributes = fault
    kind = getattr(errors, name, EnrootError)
    error: EnrootError = kind.__new__(kind, message)
    error.args = (message,)
    for key, value in attributes.items():
        setattr(error, key, value)
    return error
