"""One task of a step without the plugin: meet the others, join the container, become the command.

    python -I -S task_program.py [--FLAG[=VALUE]]… [--batch] [--job-name=NAME] -- COMMAND…

What srun executes in place of the command; the flags are those of options.py. With `--batch` the
command is a batch script that carries another one (launchers/sbatch.py), which is what runs.
"""

from __future__ import annotations

import errno
import os

from enroot_py import CommandError, EnrootError, UsageError
from pyxis_py.job import BATCH_STEP, JobFacts
from pyxis_py.launchers.beside_plugin import restore_flags
from pyxis_py.launchers.interpreter import forget_interpreter, restore_interrupt
from pyxis_py.launchers.rendezvous import Rendezvous, remove_stale
from pyxis_py.launchers.termination import Terminated, die, forget, hold_back, ignore, let_through
from pyxis_py.options import OPTIONS
from pyxis_py.plugin_config import WORDS_VARIABLE
from pyxis_py.protocol.keeper_process import KeeperProcess, await_answer, encode_request
from pyxis_py.protocol.records import Answer, decode_answer
from pyxis_py.protocol.task_environ import apply_edits
from pyxis_py.runtime_folder import find_folder, runtime_path, working_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import NamedTuple, NoReturn
else:
    from enroot_py import NamedTuple

PAYLOAD_MARK = "#PYXIS-BATCH-SCRIPT\n"
"""The line of a batch script of ours behind which the user's own begins."""

_SCRIPT_LIMIT = 64 << 20
_SIGKILL = 9

SLURMS_STATUSES = {127: errno.ENOENT, 126: errno.EACCES}
"""How a task ends whose command is missing or cannot be executed, by what a shell says of it.

Source: Slurm 22.05 src/slurmd/slurmstepd/task.c, exec_task()."""


class TaskLine(NamedTuple):
    """A command line, read.

    Attributes:
        options: (number in the table of flags, argument), in the order given.
        flags: the words that they were given as.
        batch: the command is a batch script of ours.
        command: what to run.
        job_name: what SLURM_JOB_NAME is to be; "" if it is right.
    """

    options: tuple[tuple[int, str], ...]
    flags: tuple[str, ...]
    batch: bool
    command: tuple[str, ...]
    job_name: str = ""


def parse_line(words: Sequence[str]) -> TaskLine:
    """Read a command line.

    Raises:
        UsageError: if it is not one that our launchers write.
    """
    numbers = {option.name: number for number, option in enumerate(OPTIONS)}
    options, batch, job_name, at = [], False, "", 0
    while at < len(words) and words[at] != "--":
        name, _, argument = _read_flag(words[at]).removeprefix("--").partition("=")
        if name == "batch":
            batch = True
        elif name == "job-name":
            job_name = argument
        elif name in numbers:
            options.append((numbers[name], argument))
        else:
            raise UsageError(f"task: unknown flag {words[at]!r}")
        at += 1
    if not words[at + 1 :]:
        raise UsageError("task: no command")
    return TaskLine(tuple(options), tuple(words[:at]), batch, tuple(words[at + 1 :]), job_name)


def _read_flag(word: str) -> str:
    """Return a flag that launchers/srun.py has made plain, as it was given."""
    if not word.startswith("--hex="):
        return word
    try:
        return bytes.fromhex(word.removeprefix("--hex=")).decode("utf-8", "surrogateescape")
    except ValueError:
        raise UsageError(f"task: not a flag: {word!r}") from None


def observe_job(environ: Mapping[str, str], *, batch: bool = False) -> JobFacts:
    """Return what Slurm's variables say of the step that this task belongs to."""

    def number(name: str, default: int) -> int:
        text = environ.get(name, "")
        return int(text) if text.isascii() and text.isdecimal() else default

    node = number("SLURM_NODEID", 0)
    counts = expand_counts(environ.get("SLURM_STEP_TASKS_PER_NODE", "1"))
    return JobFacts(
        uid=os.getuid(),
        gid=os.getgid(),
        job=number("SLURM_JOB_ID", 0),
        step=BATCH_STEP if batch else number("SLURM_STEP_ID", 0),
        tasks=0 if batch else number("SLURM_STEP_NUM_TASKS", 1),
        local_tasks=1 if batch or node >= len(counts) else counts[node],
        cwd=working_folder(),
        environ=environ,
    )


def expand_counts(text: str) -> list[int]:
    """Return the number for each node: "2(x3),1" → [2, 2, 2, 1].

    Raises:
        UsageError: if it is of another form.
    """
    counts: list[int] = []
    for item in text.split(","):
        number, repeated, repeat = item.partition("(x")
        try:
            if repeated and not repeat.endswith(")"):
                raise ValueError(item)
            counts += [int(number)] * int(repeat[:-1] or 1)
        except ValueError:
            raise UsageError(f"Not a list of numbers of tasks: {text!r}") from None
    return counts


def step_folder(job: JobFacts, flags: Sequence[str]) -> str:
    """Return the name of a step's meeting place.

    The components of a heterogeneous step share its id, and may have different flags.
    """
    import zlib

    mark = zlib.crc32("\0".join(flags).encode("utf-8", "surrogateescape"))
    return f"{job.job}.{job.step}.{mark:08x}"


def run_task(line: TaskLine) -> NoReturn:
    """Do everything; never returns.

    Raises:
        EnrootError: if the container cannot be started or joined, or the command not be run.
    """
    restore_flags(os.environ)
    if line.job_name:
        os.environ["SLURM_JOB_NAME"] = line.job_name
    job = observe_job(os.environ, batch=line.batch)
    words = os.environ.get(WORDS_VARIABLE, "").split()
    base = find_folder(runtime_path(words), os.environ)
    hold_back()
    meeting = Rendezvous(base, step_folder(job, line.flags), tasks=job.local_tasks)
    try:
        let_through()
        _take_part(line, job, words, base, meeting)
    except Terminated:
        ignore()
        if meeting.abandon():
            _clean_up(line, job, words)
        die()


def _clean_up(line: TaskLine, job: JobFacts, words: list[str]) -> None:
    """Remove what a start that was ended has left; there is time until SIGKILL."""
    from pyxis_py.protocol.request import Request
    from pyxis_py.step.verbs import abandon_step

    try:
        _, failed = abandon_step(Request(encode_request(job, words=words, options=line.options)))
    except EnrootError as error:
        failed = [str(error)]
    _tell(*(f"error: {text}" for text in failed))


def _take_part(
    line: TaskLine, job: JobFacts, words: list[str], base: str, meeting: Rendezvous
) -> NoReturn:
    if line.batch:
        job = _unpack_script(job, meeting, line.command[0])
    show = meeting.is_first
    if show:
        remove_stale(base, str(job.job))

    def start(line_path: str) -> bytes:
        extra = (("joins", str(job.local_tasks)), ("line", line_path))
        request = encode_request(job, words=words, options=line.options, extra=extra)
        ready_fd, keepers_fd = os.pipe()
        _import_join()  # most of it is the keeper's as well
        keeper = KeeperProcess("start", request, line_fd=keepers_fd, serve=_serve)
        os.close(keepers_fd)
        try:
            await_answer(ready_fd, _tell)
        except Terminated:
            os.kill(keeper.pid, _SIGKILL)
            keeper.wait()
            raise
        os.close(ready_fd)
        return keeper.read()

    try:
        answer = decode_answer(meeting.come(start))
    except EnrootError:
        meeting.give_up()
        raise
    if show:
        _show(answer)
    if answer.status != "ok":
        meeting.report_joined(stay=False)
        if answer.status == "none":
            _run_on_host(line)
        if not show:
            raise EnrootError("the container was not started by the first task of this node")
        os._exit(1)
    _become(line, job, words, answer, meeting)


def _run_on_host(line: TaskLine) -> NoReturn:
    """Run the command as it is: nothing that was given asks for a container."""
    try:
        os.execvp(line.command[0], line.command)
    except OSError as error:
        raise CommandError(f"Cannot execute {line.command[0]}: {error.strerror}") from error


def _unpack_script(job: JobFacts, meeting: Rendezvous, script: str) -> JobFacts:
    """Write the user's own batch script to a file; it is to be seen in the spooled one's place."""
    with open(script, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read(_SCRIPT_LIMIT).partition(PAYLOAD_MARK)[2]
    path = f"{meeting.path}/script"
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    os.chmod(path, 0o700)
    return job._replace(script=path, script_target=script)


def _show(answer: Answer) -> None:
    lines = [*answer.logs, *answer.infos] + [f"error: {text}" for text in answer.errors]
    _tell(*lines)


def _tell(*lines: str) -> None:
    text = "".join(f"pyxis: {text}\n" for text in lines)
    data = text.encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(2, data) :]


def _become(
    line: TaskLine, job: JobFacts, words: list[str], answer: Answer, meeting: Rendezvous
) -> NoReturn:
    """Become the command, or a process that waits for it where something is left to do then."""
    if answer.state:
        from pyxis_py.launchers.supervise import supervise

        supervise(
            lambda: _join(line, answer, meeting, stay=True),
            job=job, words=words, options=line.options, answer=answer, meeting=meeting,
        )  # fmt: skip
    _join(line, answer, meeting, stay=False)


def _serve(verb: str) -> int:
    """Be the keeper."""
    forget()
    restore_interrupt()
    from pyxis_py.step.keeper import main

    return main(verb)


def _import_join() -> Callable[..., NoReturn]:
    from enroot_py import run_joined

    return run_joined


def _join(line: TaskLine, answer: Answer, meeting: Rendezvous, *, stay: bool) -> NoReturn:
    environ = dict(os.environ)
    command = line.command
    if answer.edits is not None:
        apply_edits(answer.edits, environ)
    run_joined = _import_join()

    def report() -> None:
        meeting.report_joined(stay=stay)
        forget()  # what comes next is beyond the container's mounts

    run_joined(
        answer.pid,
        command,
        environ,
        namespaces=answer.join,
        folder=answer.cwd,
        filtered=answer.seccomp,
        opened=report,
    )


def run_and_explain(
    action: Callable[[], NoReturn], *, statuses: Mapping[int, int] | None = None
) -> int:
    """Do something that does not return; if it fails, say why and return the exit status.

    Args:
        action: what to do.
        statuses: exit statuses that are to be others.
    """
    try:
        action()
    except EnrootError as error:
        hint = f"\npyxis: {error.hint}" if error.hint else ""
        os.write(2, f"pyxis: error: {error}{hint}\n".encode("utf-8", "replace"))
        return (statuses or {}).get(error.exit_code, error.exit_code)
    except OSError as error:
        on = f": {error.filename}" if error.filename else ""
        os.write(2, f"pyxis: error: {error.strerror}{on}\n".encode("utf-8", "replace"))
        return 1


def main(words: Sequence[str]) -> int:
    """Run a task; returns only if it cannot."""
    forget_interpreter()
    return run_and_explain(lambda: run_task(parse_line(words)), statuses=SLURMS_STATUSES)
