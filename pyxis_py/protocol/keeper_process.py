"""Start the keeper and read what it answers: the side of the protocol that the launchers are on.

For the plugin the same is done in C (spank_shim). See spank_shim/README.md.
"""

from __future__ import annotations

import os
import sys

from enroot_py import EnrootError
from pyxis_py.protocol.records import VERSION, Answer, decode_answer, encode_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyxis_py.job import JobFacts

_FIRST_FREE_FD = 10
_CLOEXEC = 1
_SIGKILL = 9
_PATIENCE = 5.0  # seconds for killed processes to end
KEEPER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "keeper.py")


def encode_request(
    job: JobFacts,
    *,
    words: Iterable[str] = (),
    options: Iterable[tuple[int, str]] = (),
    extra: Iterable[tuple[str, str]] = (),
) -> bytes:
    """Return a request as bytes.

    Args:
        job: the step.
        words: settings of the plugin, as in plugstack.conf.
        options: flags as given: number in the table of flags, and argument.
        extra: further records.
    """
    pairs = [("version", VERSION)]
    pairs += [("word", word) for word in words]
    pairs += [("option", f"{number}={argument}") for number, argument in options]
    for key, value in (
        ("uid", job.uid), ("gid", job.gid), ("job", job.job), ("step", job.step),
        ("tasks", job.tasks), ("local_tasks", job.local_tasks), ("cwd", job.cwd),
        ("script", job.script), ("script_target", job.script_target),
    ):  # fmt: skip
        if value != "":
            pairs.append((key, str(value)))
    pairs += extra
    pairs += [("env", f"{name}={value}") for name, value in job.environ.items()]
    return encode_records(pairs)


class KeeperProcess:
    """A keeper that was started by this process.

    Attributes:
        pid: its process.
    """

    def __init__(
        self,
        verb: str,
        request: bytes,
        *,
        line_fd: int = -1,
        serve: Callable[[str], int] | None = None,
    ) -> None:
        """Start a keeper.

        Args:
            verb: what it is to do.
            request: what `encode_request` returned.
            line_fd: for `start`: the descriptor that becomes its line; it stays open here.
            serve: does what the verb says, in a fork of this process, which saves a second
                interpreter's start; for a process without threads or handlers of signals.
        """
        self._answer_fd = _memory("answer")
        self._log_fd = _memory("log")
        request_fd = _memory("request")
        os.pwrite(request_fd, request, 0)
        null_fd = _high(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        line_fd = _high(os.dup(line_fd)) if line_fd >= 0 else -1
        plan = [(null_fd, 0), (self._log_fd, 1), (self._log_fd, 2), (request_fd, 3)]
        plan += [(self._answer_fd, 4)] + ([(line_fd, 5)] if line_fd >= 0 else [])
        environ = {"PATH": os.environ.get("PATH", os.defpath)}
        try:
            if serve is None:
                self.pid = _spawn(verb, plan, environ)
            else:
                self.pid = _fork(serve, verb, plan, environ)
        finally:
            for fd in (request_fd, null_fd, line_fd):
                if fd >= 0:
                    os.close(fd)

    def wait(self) -> None:
        """Wait for the process's end."""
        os.waitpid(self.pid, 0)

    def kill(self) -> None:
        """Kill a keeper that has a program of its own, and all that it has started; wait for it."""
        import time

        os.killpg(self.pid, _SIGKILL)
        self.wait()
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            try:
                os.killpg(self.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.01)

    def read(self) -> bytes:
        """Return the answer as it stands: whole once the keeper has said so or has ended.

        Raises:
            EnrootError: with what the keeper printed, if it ended without one.
        """
        data = os.pread(self._answer_fd, os.fstat(self._answer_fd).st_size, 0)
        try:
            decode_answer(data)
        except ValueError as error:
            size = os.fstat(self._log_fd).st_size
            printed = os.pread(self._log_fd, 4096, max(0, size - 4096)).decode("utf-8", "replace")
            raise EnrootError(
                f"The container's keeper ended without an answer: {error}", hint=printed.strip()
            ) from error
        return data


def await_answer(line_fd: int, tell: Callable[[str], None]) -> None:
    """Wait until a keeper has written its answer, or has ended, and pass its news on.

    Args:
        line_fd: the other end of its line.
        tell: takes a line for the user.
    """
    text = b""
    while (byte := os.read(line_fd, 1)) not in (b"", b"\0"):
        if byte == b"\n":
            tell(text.decode("utf-8", "replace"))
            text = b""
        else:
            text += byte


def _spawn(verb: str, plan: list[tuple[int, int]], environ: dict[str, str]) -> int:
    actions = [(os.POSIX_SPAWN_DUP2, fd, target) for fd, target in plan]
    command = [sys.executable, "-I", "-S", KEEPER, verb]
    # A group of its own: what a terminal sends to the launcher's is not for the keeper.
    return os.posix_spawn(sys.executable, command, environ, file_actions=actions, setpgroup=0)


def _fork(
    serve: Callable[[str], int], verb: str, plan: list[tuple[int, int]], environ: dict[str, str]
) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        for fd, target in plan:
            os.dup2(fd, target)
        os.closerange(len(plan), 1 << 20)
        os.environ.clear()
        os.environ.update(environ)
        status = serve(verb)
    finally:
        if status:
            # As a program would end; what is printed goes to the keeper's log.
            sys.excepthook(*sys.exc_info())
        os._exit(status)


def ask(verb: str, request: bytes, *, tell: Callable[[str], None]) -> Answer:
    """Have a keeper do something that ends by itself; return its answer.

    Args:
        verb, request: as for KeeperProcess.
        tell: takes lines for the user while it works.

    Raises:
        EnrootError: if it ends without one.
    """
    line_fd, keepers_fd = os.pipe()
    keeper = KeeperProcess(verb, request, line_fd=keepers_fd)
    os.close(keepers_fd)
    await_answer(line_fd, tell)
    os.close(line_fd)
    keeper.wait()
    return decode_answer(keeper.read())


def _memory(name: str) -> int:
    return _high(os.memfd_create(name, _CLOEXEC))


def _high(fd: int) -> int:
    """Move a descriptor out of the way of the numbers that the keeper gets."""
    import fcntl

    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD)
    finally:
        os.close(fd)
