"""`pyxis-sbatch`: sbatch with the container flags, also in `#SBATCH` lines, without the plugin.

sbatch refuses flags that it does not know, so the script that is submitted is another one: it has
the remaining `#SBATCH` lines and starts task.py, which finds the user's own script behind them,
puts it where the node has the spooled one, and runs it inside the container.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from enroot_py import EnrootError, NotFoundError, UsageError
from pyxis_py.args import RawValue, parse_arguments
from pyxis_py.command_lines.components import format_flag, separate_flags
from pyxis_py.command_lines.sbatch_script import directive_words, parse_script
from pyxis_py.command_lines.slurm_options import GivenOption, SlurmOption, split_command_line
from pyxis_py.command_lines.slurm_table import read_options
from pyxis_py.launchers.beside_plugin import hide_flags
from pyxis_py.launchers.interpreter import forget_interpreter
from pyxis_py.launchers.srun import (
    ASK_ONLY,
    answer,
    become,
    report,
    resolve_digest,
    task_words,
    tell,
)
from pyxis_py.launchers.task import PAYLOAD_MARK
from pyxis_py.protocol.request import ignored_lines

_INPUT = "standard input"


@dataclass(frozen=True, slots=True)
class Submission:
    """What was to be submitted.

    Attributes:
        slurm: options of sbatch on the command line, without `--wrap`, of each component of a
            heterogeneous job; one for any other job.
        container: the container flags; those of the command line win.
        text: the user's script.
        name: what the job is called by default; "" for a script from standard input, which sbatch
            then calls "sbatch" without telling the job.
        arguments: the script's arguments.
    """

    slurm: tuple[tuple[GivenOption, ...], ...]
    container: tuple[RawValue, ...]
    text: str
    name: str
    arguments: tuple[str, ...]


def read_submission(words: Sequence[str], options: Sequence[SlurmOption]) -> Submission | None:
    """Read a command line and its script; None if sbatch itself has to see what is wrong with it.

    Raises:
        UsageError: naming option, or file and line.
        NotFoundError: if there is no such script.
    """
    components, command = _split_components(words, options)
    given = [option for component in components for option in component]
    if any(option.name in ASK_ONLY for option in given):
        return None
    wrapped = [option.value for option in given if option.name == "wrap"]
    if wrapped and command:
        raise UsageError("A script's arguments cannot be given together with --wrap")
    if wrapped:
        text, name = f"#!/bin/sh\n# Made from --wrap.\n\n{wrapped[-1]}\n", "wrap"
    elif command:
        text, name = _read_script(command[0]), os.path.basename(command[0])
    elif sys.stdin is None:
        raise UsageError("There is no script: standard input is closed", hint="name a file")
    else:
        text, name = sys.stdin.read(), ""
    if not text.startswith("#!"):
        raise UsageError(
            "This is no batch script: its first line has to begin with #! and name a shell",
            hint="for example #!/bin/sh",
        )
    container = _flags(components)
    here = {value.option.field for value in container}
    in_script = _flags(parse_script(text, options, origin=name or _INPUT).components)
    container = [value for value in in_script if value.option.field not in here] + container
    slurm = tuple(tuple(_without_wrap(component)) for component in components)
    return Submission(slurm, tuple(container), text, name, tuple(command[1:]))


def _split_components(
    words: Sequence[str], options: Sequence[SlurmOption]
) -> tuple[list[list[GivenOption]], list[str]]:
    """Return the options of each component, and what stands behind the last one's."""
    components = []
    rest = [":", *words]
    while rest[:1] == [":"]:
        given, rest = split_command_line(rest[1:], options, command="sbatch")
        components.append(given)
    return components, rest


def _flags(components: Sequence[Sequence[GivenOption]]) -> list[RawValue]:
    """Return the container flags of a job: those of its first component, where the script runs.

    Raises:
        UsageError: if another component has flags of its own.
    """
    first, *others = (separate_flags(component)[1] for component in components)
    for number, flags in enumerate(others, start=1):
        for value in flags:
            if value not in first:
                raise UsageError(
                    f"{format_flag(value)}: given to component {number} of the job, but the script"
                    " runs in component 0",
                    hint="give it to component 0, or to the pyxis-srun that starts the step",
                )
    return first


def _without_wrap(component: Sequence[GivenOption]) -> list[GivenOption]:
    return [option for option in separate_flags(component)[0] if option.name != "wrap"]


def _read_script(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError as error:
        raise NotFoundError(f"Cannot read the batch script {path}: {error.strerror}") from error


def strip_directives(text: str, options: Sequence[SlurmOption], *, origin: str) -> str:
    """Return the `#SBATCH` lines of a script without the container flags."""
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = directive_words(line, origin=f"{origin}:{number}")
        if words is None:
            if line.strip() and not line.lstrip().startswith("#"):
                break
            continue
        if words in (["hetjob"], ["packjob"]):
            lines.append(line)
            continue
        given, _ = split_command_line(words, options, command="sbatch")
        slurm, container = separate_flags(given)
        if not container:
            lines.append(line)
        elif slurm:
            kept = [word for option in slurm for word in option.words]
            lines.append("#SBATCH " + " ".join(shlex.quote(word) for word in kept))
    return "".join(f"{line}\n" for line in lines)


def make_script(submission: Submission, options: Sequence[SlurmOption]) -> str:
    """Return the script that is submitted in place of the user's."""
    directives = strip_directives(submission.text, options, origin=submission.name or _INPUT)
    flags = [format_flag(value) for value in submission.container]
    words = " ".join(shlex.quote(word) for word in task_words([*flags, "--batch"]))
    return f'#!/bin/sh\n{directives}exec {words} "$0" "$@"\n{PAYLOAD_MARK}{submission.text}'


def main(words: Sequence[str] | None = None) -> int:
    """Become sbatch; returns only if the command line or the script is wrong."""
    forget_interpreter()
    words = sys.argv[1:] if words is None else list(words)
    try:
        return _run(words)
    except EnrootError as error:
        return report(error, "pyxis-sbatch")


def _run(words: list[str]) -> int:
    options = read_options("sbatch")
    submission = read_submission(words, options)
    if submission is None:
        components, _ = _split_components(words, options)
        given = [option for component in components for option in separate_flags(component)[0]]
        return answer("sbatch", given)
    environ = dict(os.environ)
    arguments = parse_arguments(submission.container, environ)
    if arguments.enabled:
        os.environ.update(resolve_digest(submission.container, environ, context="sbatch"))
        hide_flags(os.environ)
        text = make_script(submission, options)
    else:
        text = submission.text
        for line in ignored_lines(arguments):
            tell(line)
    fd = os.memfd_create("batch-script", 0)  # sbatch, which this process becomes, inherits it
    data = text.encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(fd, data) :]
    rest = command_line(submission, options, named=bool(environ.get("SBATCH_JOB_NAME")))
    if not submission.name:
        os.lseek(fd, 0, os.SEEK_SET)
        os.dup2(fd, 0)
        return become("sbatch", rest)
    return become("sbatch", [*rest, f"/proc/self/fd/{fd}", *submission.arguments])


def command_line(
    submission: Submission, options: Sequence[SlurmOption], *, named: bool
) -> list[str]:
    """Return sbatch's words: the options of each component, which are called as the script is.

    Args:
        submission: what was to be submitted.
        options: sbatch's table.
        named: the environment names the job.
    """
    script = parse_script(submission.text, options, origin=submission.name or _INPUT)
    named = named or not submission.name
    words: list[str] = []
    for number, component in enumerate(submission.slurm):
        words += [":"] if number else []
        words += [word for option in component for word in option.words]
        if not named and not _names_job(component) and (number or not _names_job(script.options)):
            words.append(f"--job-name={submission.name}")
    return words


def _names_job(component: Sequence[GivenOption]) -> bool:
    return any(option.name == "job-name" for option in component)
