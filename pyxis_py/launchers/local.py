"""`pyxis run`: the tasks of a step on this machine, without any Slurm.

Each task gets the variables that it would have from srun, so that programs that look for them work.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from enroot_py import EnrootError
from pyxis_py.args import RawValue
from pyxis_py.job import JobFacts
from pyxis_py.launchers.step_hooks import StepHooks
from pyxis_py.runtime_folder import working_folder

_CANCELLING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)
_Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None


def task_variables(job: int, *, tasks: int, rank: int, cwd: str) -> dict[str, str]:
    """Return Slurm's variables for one task of a step on one node."""
    node = os.uname().nodename
    return {
        "SLURM_JOB_ID": str(job), "SLURM_JOBID": str(job), "SLURM_STEP_ID": "0",
        "SLURM_STEPID": "0", "SLURM_NTASKS": str(tasks), "SLURM_NPROCS": str(tasks),
        "SLURM_STEP_NUM_TASKS": str(tasks), "SLURM_STEP_NUM_NODES": "1", "SLURM_NNODES": "1",
        "SLURM_JOB_NUM_NODES": "1", "SLURM_STEP_TASKS_PER_NODE": str(tasks),
        "SLURM_TASKS_PER_NODE": str(tasks), "SLURM_NODELIST": node, "SLURM_JOB_NODELIST": node,
        "SLURM_STEP_NODELIST": node, "SLURMD_NODENAME": node, "SLURM_NODEID": "0",
        "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank),
        "SLURM_SUBMIT_DIR": cwd, "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
    }  # fmt: skip


def run_local(
    command: Sequence[str],
    given: Sequence[RawValue],
    *,
    tasks: int = 1,
    words: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    label: bool = False,
) -> int:
    """Run the tasks of a step; return 0, or the exit status of the task that failed first.

    128 + N stands for a death by signal N, or for one that came before any task. When a task
    fails, the others are ended too, as with `srun --kill-on-bad-exit`.

    Args:
        command: what each task runs.
        given: the container flags.
        tasks: how many.
        words: settings, as behind the plugin in plugstack.conf.
        environ: the job's environment; this process's if None.
        label: put the task's rank in front of every line that it prints.

    Raises:
        EnrootError: if the container cannot be started.
    """
    job = os.getpid()
    cwd = working_folder()
    base = dict(os.environ if environ is None else environ)

    def variables(rank: int) -> dict[str, str]:
        return {**base, **task_variables(job, tasks=tasks, rank=rank, cwd=cwd)}

    facts = JobFacts(os.getuid(), os.getgid(), job, 0, tasks=tasks, local_tasks=tasks, cwd=cwd)
    hooks = StepHooks(words, news=lambda line: _show([line]))
    with _Signals(hooks) as signals, hooks:
        hooks.post_opt(given, variables(0))
        try:
            _show(hooks.user_init(facts))
        except EnrootError:
            if not signals.cancelled_by:
                raise
        if signals.cancelled_by:
            return 128 + signals.cancelled_by
        signals.starting = False
        processes = []
        for rank in range(tasks):
            argv, fds = hooks.task_init(command)
            process = _start(argv, fds, variables(rank), rank=rank, first=rank == 0, label=label)
            processes.append(process)
        signals.forward_to(processes)
        status = _wait(processes)
        signals.ignore()
        for _ in processes:
            _show(hooks.task_exit())
    return status


def _show(lines: Sequence[str]) -> None:
    for line in lines:
        sys.stderr.write(f"pyxis: {line}\n")
    sys.stderr.flush()


def _start(
    argv: Sequence[str],
    fds: tuple[int, ...],
    environ: dict[str, str],
    *,
    rank: int,
    first: bool,
    label: bool,
) -> subprocess.Popen[bytes]:
    # Standard input is the first task's alone, as it is with srun --input=0.
    stdin = None if first else subprocess.DEVNULL
    output = None
    if label:
        prefixer = subprocess.Popen(["sed", "-u", f"s/^/{rank}: /"], stdin=subprocess.PIPE)
        output = prefixer.stdin
    return subprocess.Popen(argv, env=environ, pass_fds=fds, stdin=stdin, stdout=output)


class _Signals:
    """What comes of signals: they cancel the start of a container, and then are the tasks'.

    Those that come while tasks are started are passed on once all are there; one that is ignored
    (nohup) stays so. A program's other threads have no say in signals.

    Attributes:
        cancelled_by: the signal that has cancelled the start, or 0.
        starting: the container is being started.
    """

    def __init__(self, hooks: StepHooks) -> None:
        self.cancelled_by = 0
        self.starting = True
        self._hooks = hooks
        self._processes: Sequence[subprocess.Popen[bytes]] | None = None
        self._kept: list[int] = []
        self._is_main = threading.current_thread() is threading.main_thread()
        self._before: dict[int, _Handler] = {}

    def __enter__(self) -> _Signals:
        for number in (*_CANCELLING, *_FORWARDED):
            self._set(number, self._hear)
        return self

    def __exit__(self, *failure: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _set(self, number: int, handler: _Handler) -> None:
        if not self._is_main:
            return
        if number not in self._before and signal.getsignal(number) is signal.SIG_IGN:
            return
        before = signal.signal(number, handler)
        self._before.setdefault(number, before)

    def forward_to(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        """All tasks have been started."""
        # A terminal sends this to the tasks as well; they decide. A child would inherit it.
        self._set(signal.SIGINT, signal.SIG_IGN)
        self._processes = processes
        for number in self._kept:
            self._forward(number)

    def ignore(self) -> None:
        """All tasks have ended; what is left to do is to be done."""
        for number in (*_CANCELLING, *_FORWARDED):
            self._set(number, signal.SIG_IGN)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._processes is not None:
            self._forward(number)
            return
        self._kept.append(number)
        if number in _CANCELLING and self.starting:
            self.cancelled_by = number
            self._hooks.cancel()

    def _forward(self, number: int) -> None:
        for process in self._processes or ():
            process.send_signal(number)


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    ended: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
    for process in processes:
        threading.Thread(target=_announce, args=(process, ended), daemon=True).start()
    failed = 0
    for _ in processes:
        code = ended.get().returncode
        status = code if code >= 0 else 128 - code
        if status and not failed:
            failed = status
            for other in processes:
                other.terminate()
    return failed


def _announce(
    process: subprocess.Popen[bytes], ended: queue.SimpleQueue[subprocess.Popen[bytes]]
) -> None:
    process.wait()
    ended.put(process)
