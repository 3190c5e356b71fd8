"""`pyxis-srun`: srun with the container flags, where no administrator installed the plugin.

The flags are taken out of the command line, wherever they stand; the rest is srun's. Every task
then begins as task.py, which meets the step's other tasks on its node and becomes the command
inside the container.
"""

from __future__ import annotations

import os
import sys

from enroot_py import EnrootError, UsageError
from pyxis_py.args import Arguments, RawValue, parse_arguments
from pyxis_py.command_lines.components import Component, split_components
from pyxis_py.command_lines.slurm_table import read_options
from pyxis_py.job import JobFacts
from pyxis_py.launchers.beside_plugin import hide_flags
from pyxis_py.launchers.interpreter import forget_interpreter, restore_pipes
from pyxis_py.options import OPTIONS
from pyxis_py.plugin_config import WORDS_VARIABLE
from pyxis_py.protocol.keeper_process import encode_request
from pyxis_py.protocol.request import Request, ignored_lines
from pyxis_py.runtime_folder import working_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyxis_py.command_lines.slurm_options import GivenOption

TASK = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "task_program.py")
ASK_ONLY = ("help", "usage", "version")
"""Options that print something and do nothing else."""

_LARGEST_FILE = 1 << 20
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,.:/@")


def task_words(flags: Sequence[str]) -> list[str]:
    """Return the words that go before a task's command."""
    return [sys.executable, "-I", "-S", TASK, *flags, "--"]


def srun_words(components: Sequence[Component], environ: Mapping[str, str]) -> list[str]:
    """Return srun's words for components; those without a container are left as they are.

    Raises:
        UsageError: for flags that contradict each other, and the like.
    """
    words: list[str] = []
    for at, component in enumerate(components):
        words += [":"] if at else []
        words += component.slurm_words
        arguments = parse_arguments(component.container, environ)
        if not arguments.enabled or not component.command:
            words += component.command
            continue
        name, jobs_name = names(component, environ)
        words += [f"--job-name={name}"] if name else []
        flags = component.flags + ([f"--job-name={jobs_name}"] if jobs_name else [])
        if component.has("multi-prog"):
            words += [_rewrite_programs(component.command[0], flags), *component.command[1:]]
        else:
            words += [*task_words(flags), *component.command]
    return words


def names(component: Component, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return what srun has to be told to call a job or step after its command; "" for nothing.

    And the SLURM_JOB_NAME that tasks in an existing job see, which srun then changes too.

    Source: srun(1), -J and SLURM_JOB_NAME, which names no step.
    """
    command = os.path.basename(component.command[0])
    if component.has("job-name") or not command:
        return "", ""
    jobs_name = environ.get("SLURM_JOB_NAME", "")
    if "SLURM_JOB_ID" in environ:
        return command, jobs_name
    return ("" if jobs_name else command), ""


def _rewrite_programs(path: str, flags: Sequence[str]) -> str:
    """Return the path of a --multi-prog file in which every program is started through task.py."""
    try:
        with open(path, encoding="utf-8") as file:
            text = rewrite_programs(file.read(_LARGEST_FILE), flags)
    except OSError as error:
        raise UsageError(f"--multi-prog: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--multi-prog: {path} is no text: {error}") from error
    fd = os.memfd_create("multi-prog", 0)  # srun, which this process becomes, inherits it
    os.write(fd, text.encode())
    return f"/proc/self/fd/{fd}"


def rewrite_programs(text: str, flags: Sequence[str]) -> str:
    """Put task.py in front of every program of a --multi-prog file.

    Source: srun(1); Slurm 22.05 src/srun/libsrun/multi_prog.c: a backslash at a line's end, that
    of a comment too, makes one line of two.
    """
    import shlex

    # Slurm replaces %t and %o in words, and knows only some of a shell's quotes.
    before = " ".join(map(shlex.quote, task_words([plain_flag(flag) for flag in flags])))
    lines = []
    begins = True
    for line in text.splitlines():
        words = line.split(None, 1)
        if begins and len(words) == 2 and not words[0].startswith("#"):
            line = f"{words[0]} {before} {words[1]}"
        begins = not line.endswith("\\")
        lines.append(line)
    return "\n".join(lines) + "\n"


def plain_flag(flag: str) -> str:
    """Return a flag as a word that needs no quotes; `parse_line` of task.py reads it."""
    if set(flag) <= _PLAIN:
        return flag
    return f"--hex={flag.encode('utf-8', 'surrogateescape').hex()}"


def resolve_digest(
    container: Sequence[RawValue], environ: Mapping[str, str], *, context: str
) -> dict[str, str]:
    """Check the flags, and return the variables that pin the image for all nodes.

    Raises:
        EnrootError: if the image is known not to be there.
    """
    from pyxis_py.step.verbs import submit

    rows = list(OPTIONS)
    job = JobFacts(
        uid=os.getuid(), gid=os.getgid(), job=0, step=0, cwd=working_folder(), environ=environ
    )
    data = encode_request(
        job,
        words=environ.get(WORDS_VARIABLE, "").split(),
        options=[(rows.index(value.option), value.argument) for value in container],
        extra=(("context", context),),
    )
    pairs, _ = submit(Request(data, tell=tell))
    variables = {}
    for key, value in pairs:
        if key == "log":
            tell(value)
        elif key == "setenv":
            name, _, text = value.partition("=")
            variables[name] = text
    return variables


def tell(line: str) -> None:
    """Show a line to the user."""
    sys.stderr.write(f"pyxis: {line}\n")
    sys.stderr.flush()


def main(words: Sequence[str] | None = None) -> int:
    """Become srun; returns only if the command line is wrong."""
    forget_interpreter()
    words = sys.argv[1:] if words is None else list(words)
    try:
        return _run(words)
    except EnrootError as error:
        return report(error, "pyxis-srun")


def report(error: EnrootError, program: str) -> int:
    """Print an error; return its exit status."""
    hint = f"\n{program}: {error.hint}" if error.hint else ""
    sys.stderr.write(f"{program}: error: {error}{hint}\n")
    return error.exit_code


def _run(words: list[str]) -> int:
    components = split_components(words, read_options("srun"))
    if any(component.has(name) for component in components for name in ASK_ONLY):
        given = [option for component in components for option in component.slurm]
        return answer("srun", given)
    environ = dict(os.environ)
    arguments: list[Arguments] = []
    for component in components:
        arguments.append(parse_arguments(component.container, environ))
        if arguments[-1].enabled:
            environ.update(resolve_digest(component.container, environ, context="srun"))
        for line in ignored_lines(arguments[-1]):
            tell(line)
    os.environ.update(environ)
    if any(each.enabled for each in arguments):
        hide_flags(os.environ)
    return become("srun", srun_words(components, environ))


def answer(program: str, given: Sequence[GivenOption]) -> int:
    """Have srun or sbatch print what was asked for, with the container flags where that is help."""
    words = [word for option in given for word in option.words]
    if not any(option.name == "help" for option in given):
        return become(program, words)
    import subprocess

    try:
        status = subprocess.run([program, *words], check=False).returncode
    except OSError:
        return become(program, words)
    sys.stdout.write("\nContainers:\n")
    for row in OPTIONS:
        flag = f"--{row.name}={row.arginfo}" if row.takes_argument else f"--{row.name}"
        sys.stdout.write(f"      {flag:<27} {row.usage}\n")
    return status


def become(program: str, words: Sequence[str]) -> int:
    """Execute srun or sbatch; returns 127 if there is none."""
    sys.stdout.flush()
    sys.stderr.flush()
    restore_pipes()
    try:
        os.execvp(program, [program, *words])
    except OSError as error:
        sys.stderr.write(f"pyxis: error: cannot execute {program}: {error.strerror}\n")
        if isinstance(error, FileNotFoundError):
            tell("`pyxis run` needs no Slurm")
        return 127
