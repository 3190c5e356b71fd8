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
from collections.abc import Mapping, Sequence
from types import FrameType, TracebackType

from pyxis_py.args import RawValue
from pyxis_py.job import JobFacts
from pyxis_py.launchers.step_hooks import StepHooks

_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def task_variables(job: int, *, tasks: int, rank: int) -> dict[str, str]:
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
        "SLURM_SUBMIT_DIR": os.getcwd(), "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
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

    128 + N stands for a death by signal N. When a task fails, the others are ended too, as with
    `srun --kill-on-bad-exit`.

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
    base = dict(os.environ if environ is None else environ)
    with StepHooks(words, news=lambda line: _show([line])) as hooks:
        hooks.post_opt(given, {**base, **task_variables(job, tasks=tasks, rank=0)})
        facts = JobFacts(
            os.getuid(), os.getgid(), job, 0, tasks=tasks, local_tasks=tasks, cwd=os.getcwd()
        )
        _show(hooks.user_init(facts))
        processes = []
        with _Forwarding() as forwarding:
            for rank in range(tasks):
                argv, fds = hooks.task_init(command)
                variables = {**base, **task_variables(job, tasks=tasks, rank=rank)}
                process = _start(argv, fds, variables, rank=rank, first=rank == 0, label=label)
                processes.append(process)
            forwarding.begin(processes)
            status = _wait(processes)
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


class _Forwarding:
    """Passes signals to the tasks; those that come while tasks are started, once all are there."""

    def __init__(self) -> None:
        self._processes: Sequence[subprocess.Popen[bytes]] | None = None
        self._kept: list[int] = []
        self._before = {number: signal.signal(number, self._hear) for number in _FORWARDED}

    def __enter__(self) -> _Forwarding:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def begin(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        """All tasks have been started."""
        # A terminal sends this to the tasks as well; they decide. A child would inherit it.
        self._before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._processes = processes
        for number in self._kept:
            self._forward(number)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._processes is None:
            self._kept.append(number)
        else:
            self._forward(number)

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
