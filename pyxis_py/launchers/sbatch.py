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
from pyxis_py.launchers.srun import become, report, resolve_digest, task_words
from pyxis_py.launchers.task import PAYLOAD_MARK

_ASK_ONLY = ("help", "usage", "version")


@dataclass(frozen=True, slots=True)
class Submission:
    """What was to be submitted.

    Attributes:
        slurm: options of sbatch on the command line, without `--wrap`.
        container: the container flags; those of the command line win.
        text: the user's script.
        name: what the job is called by default.
        arguments: the script's arguments.
    """

    slurm: tuple[GivenOption, ...]
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
    given, command = split_command_line(words, options, command="sbatch")
    slurm, container = separate_flags(given)
    if any(option.name in _ASK_ONLY for option in slurm):
        return None
    wrapped = [option.value for option in slurm if option.name == "wrap"]
    if wrapped:
        text, name = f"#!/bin/sh\n# Made from --wrap.\n\n{wrapped[-1]}\n", "wrap"
        slurm = [option for option in slurm if option.name != "wrap"]
    elif command:
        text, name = _read_script(command[0]), os.path.basename(command[0])
    else:
        text, name = sys.stdin.read(), "sbatch"
    if not text.startswith("#!"):
        raise UsageError(
            "This is no batch script: its first line has to begin with #! and name a shell",
            hint="for example #!/bin/sh",
        )
    script = parse_script(text, options, origin=name)
    _, in_script = separate_flags(script.options)
    here = {value.option.field for value in container}
    container = [value for value in in_script if value.option.field not in here] + container
    return Submission(tuple(slurm), tuple(container), text, name, tuple(command[1:]))


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
    directives = strip_directives(submission.text, options, origin=submission.name)
    flags = [format_flag(value) for value in submission.container]
    words = " ".join(shlex.quote(word) for word in task_words([*flags, "--batch"]))
    return f'#!/bin/sh\n{directives}exec {words} "$0" "$@"\n{PAYLOAD_MARK}{submission.text}'


def main(words: Sequence[str] | None = None) -> int:
    """Become sbatch; returns only if the command line or the script is wrong."""
    words = sys.argv[1:] if words is None else list(words)
    try:
        return _run(words)
    except EnrootError as error:
        return report(error, "pyxis-sbatch")


def _run(words: list[str]) -> int:
    options = read_options("sbatch")
    submission = read_submission(words, options)
    if submission is None:
        return become("sbatch", words)
    environ = dict(os.environ)
    rest = [word for option in submission.slurm for word in option.words]
    if not any(option.name == "job-name" for option in submission.slurm):
        named = any(o.name == "job-name" for o in parse_options(submission, options))
        if not named and not environ.get("SBATCH_JOB_NAME"):
            rest.append(f"--job-name={submission.name}")
    if parse_arguments(submission.container, environ).enabled:
        os.environ.update(resolve_digest(submission.container, environ, context="sbatch"))
        text = make_script(submission, options)
    else:
        text = submission.text
    fd = os.memfd_create("batch-script", 0)  # sbatch, which this process becomes, inherits it
    data = text.encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(fd, data) :]
    return become("sbatch", [*rest, f"/proc/self/fd/{fd}", *submission.arguments])


def parse_options(
    submission: Submission, options: Sequence[SlurmOption]
) -> tuple[GivenOption, ...]:
    """Return the options in the script of a submission."""
    return parse_script(submission.text, options, origin=submission.name).options
