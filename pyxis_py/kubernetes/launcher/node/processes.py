"""Processes: starting one in a session of its own, and ending everything that came of it."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn

from pyxis_py.kubernetes.launcher.job.limits import set_limits
from pyxis_py.kubernetes.launcher.wire.loop import Loop

FALLBACK_FOLDER = "/tmp"
"""Where a task starts whose working directory is not there, as under Slurm."""
MOST_PASSES = 20
"""How often what a step has left is looked for: a program that forks without end outruns us."""
EXEC_LIMIT = 0.5
"""Seconds that a search waits for processes that execute a program just then."""

_VSIZE, _START_CODE, _ENV_START, _ENV_END = (number - 3 for number in (23, 26, 50, 51))
"""Places in what follows the name in /proc/PID/stat. Source: proc_pid_stat(5)."""


class Program(NamedTuple):
    """What to start.

    Attributes:
        stdio: descriptors for standard input, output and error, which the caller closes.
        limits: soft resource limits.
        passed: further descriptors that the program gets, under their numbers.
        cpus: the CPUs to run on, none for all.
    """

    argv: Sequence[str]
    environ: Mapping[str, str]
    directory: str
    umask: int
    stdio: tuple[int, int, int]
    limits: Mapping[str, int]
    cpus: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()


class Processes:
    """The children of this process: whoever started one hears of its end."""

    def __init__(self, loop: Loop) -> None:
        self._waiting: dict[int, Callable[[int], None]] = {}
        loop.on_signal(signal.SIGCHLD, self._reap)

    def start(self, program: Program, on_exit: Callable[[int], None]) -> int:
        """Start a program; return its process id, which is its group's and its session's too.

        Args:
            on_exit: called with the status as wait(2) gives it.

        Raises:
            OSError: if there can be no more processes.
        """
        # A signal for the child before it has its own handlers would be taken for the parent's.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
            if pid == 0:
                _become(program)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._waiting[pid] = on_exit
        return pid

    def _reap(self) -> None:
        """Take every child that has ended: PID 1 of a pod gets those of others as well."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            on_exit = self._waiting.pop(pid, None)
            if on_exit is not None:
                on_exit(status)


def _become(program: Program) -> NoReturn:
    """The child: never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _place_stdio(program.stdio)
        for fd in program.passed:
            os.set_inheritable(fd, True)
        set_limits(program.limits)
        os.umask(program.umask)
        if program.cpus:
            os.sched_setaffinity(0, program.cpus)
        _enter(program.directory)
        environ = {**program.environ, "SLURM_TASK_PID": str(os.getpid())}
        os.execvpe(program.argv[0], list(program.argv), environ)
    except OSError as error:
        # As Slurm, which exits with the error's number: 2 for a program that is not there.
        code = error.errno or 1
        _complain(f"cannot execute {program.argv[0]}: {_why(error, program.argv[0])}")
    finally:
        os._exit(code)


def _place_stdio(stdio: tuple[int, int, int]) -> None:
    # First out of the way: one of them may have the number of another's place.
    copies = [os.dup(fd) for fd in stdio]
    for place, fd in enumerate(copies):
        os.dup2(fd, place, inheritable=True)
    for fd in copies:
        if fd > 2:
            os.close(fd)


def _enter(directory: str) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        _complain(f"cannot change to {directory}: {error.strerror}: going to {FALLBACK_FOLDER}")
        os.chdir(FALLBACK_FOLDER)


def _why(error: OSError, path: str) -> str:
    if error.errno == errno.ENOENT and "/" in path and os.path.exists(path):
        return "the interpreter of its first line is not in the image"
    return error.strerror or str(error)


def _complain(text: str) -> None:
    sys.stderr.flush()
    os.write(2, f"pyxis: error: {text}\n".encode("utf-8", "replace"))


def signal_group(pid: int, number: int) -> bool:
    """Signal a process and its group; whether there is one."""
    for send in (os.killpg, os.kill):
        try:
            send(pid, number)
        except ProcessLookupError:
            # A process that has just been forked has no group of its own yet.
            continue
        except PermissionError:
            return False
        return True
    return False


def find_processes(marks: Mapping[str, str], sessions: Sequence[int]) -> list[int]:
    """Return processes of these sessions, and those that carry all these variables.

    What a task leaves behind may have left its session, and may have a session that is not ours.
    """
    return list(_search(marks, sessions))


def _search(marks: Mapping[str, str], sessions: Sequence[int]) -> Iterator[int]:
    """What `find_processes` returns, one by one as they are seen."""
    wanted = {f"{name}={value}".encode("utf-8", "surrogateescape") for name, value in marks.items()}
    own = os.getpid()
    deadline = time.monotonic() + EXEC_LIMIT
    for pid in _process_ids():
        fields = _stat_fields(pid)
        if pid == own or not fields or fields[0] == b"Z":
            continue
        is_marked = wanted and fields[_VSIZE] != b"0" and wanted <= _environment(pid, deadline)
        if is_marked or int(fields[3]) in sessions:
            yield pid


def _process_ids() -> Iterator[int]:
    """All processes, the newest first, and then those that are started while we look.

    Whoever flees by forking is gone when its turn comes, but its child has a later turn.
    """
    last = _last_pid()
    listed = set(map(int, filter(str.isdecimal, os.listdir("/proc"))))
    yield from sorted(listed, reverse=True)
    for _ in range(MOST_PASSES):
        newest = _last_pid()
        if newest <= last:
            return
        yield from sorted(set(range(last + 1, newest + 1)) - listed)
        last = newest


def _last_pid() -> int:
    """The id that was given to a process or thread last; 0 if this kernel does not tell."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return int(file.read().split()[4])
    except (OSError, ValueError, IndexError):
        return 0


def kill_processes(marks: Mapping[str, str], sessions: Sequence[int]) -> None:
    """Kill what is left of a step, and what that has started while we looked."""
    killed: set[int] = set()
    missed = 0
    for _ in range(MOST_PASSES):
        found = False
        for pid in _search(marks, sessions):
            if pid in killed:
                continue
            # At once, not after the search: a moment later it may have fled.
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
            killed.add(pid)
            found = True
        # Once is not enough: one that had just been forked is not in the list, and its parent gone.
        missed = 0 if found else missed + 1
        if missed == 2:
            return


def _environment(pid: int, deadline: float) -> set[bytes]:
    """The variables of a process; none if it is gone, somebody else's, or the kernel's.

    In the middle of an execve(2) a process has new memory that nothing is in yet, and seems to have
    neither arguments nor variables: what it has is known a moment later. The same is in
    enroot_py/linux/processes.py, which is not part of the launcher.

    Args:
        deadline: when to look away, by the monotonic clock.
    """
    while True:
        try:
            with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
                data = file.read()
                if not data and _is_between_programs(pid) and time.monotonic() < deadline:
                    # open(2) waits until execve lets go of a lock, which it does just before it
                    # copies the variables; the open file is that memory's (fs/exec.c).
                    time.sleep(0.0002)
                    data = file.read()
                    if not data:
                        continue
                return set(data.split(b"\0"))
        except OSError:
            return set()


def _is_between_programs(pid: int) -> bool:
    """Whether a process without variables executes a program just now, or did a moment ago."""
    fields = _stat_fields(pid)
    if not fields or fields[_VSIZE] == b"0":
        return False  # gone, or the kernel's
    return fields[_START_CODE] == b"0" or fields[_ENV_START] != fields[_ENV_END]


def _stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the third one on, none if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []
