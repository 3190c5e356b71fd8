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
from pyxis_py.job import JobFacts
from pyxis_py.keeper_process import encode_request
from pyxis_py.launchers.slurm_options import (
    GivenOption,
    SlurmOption,
    built_in_options,
    decode_options,
    encode_options,
    options_from_help,
    split_command_line,
)
from pyxis_py.options import OPTIONS, find_option
from pyxis_py.runtime_folder import find_folder
from pyxis_py.task import WORDS_VARIABLE, runtime_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NamedTuple
else:
    from enroot_py import NamedTuple

TASK = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "task_program.py")
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slurm_options.py")
_ASK_ONLY = ("help", "usage", "version")
_LARGEST_FILE = 1 << 20


class Component(NamedTuple):
    """One component of a step: all there is, unless the step is heterogeneous.

    Attributes:
        slurm: the options that are srun's, in order.
        container: the container flags, in order.
        command: the command and its arguments.
    """

    slurm: tuple[GivenOption, ...]
    container: tuple[RawValue, ...]
    command: tuple[str, ...]

    def has(self, name: str) -> bool:
        """Tell whether an option of srun's was given."""
        return any(option.name == name for option in self.slurm)

    @property
    def slurm_words(self) -> list[str]:
        """The words of srun's options."""
        return [word for option in self.slurm for word in option.words]

    @property
    def flags(self) -> list[str]:
        """The container flags as task.py takes them."""
        return [format_flag(value) for value in self.container]


def format_flag(value: RawValue) -> str:
    """Return a flag as one word."""
    argument = f"={value.argument}" if value.option.takes_argument else ""
    return f"--{value.option.name}{argument}"


def split_components(words: Sequence[str], options: Sequence[SlurmOption]) -> list[Component]:
    """Cut a command line of srun's into components, options and commands.

    Raises:
        UsageError: if an option is unknown, ambiguous or lacks its value.
    """
    parts: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            parts.append([])
        else:
            parts[-1].append(word)
    return [_read_component(part, options) for part in parts]


def _read_component(words: Sequence[str], options: Sequence[SlurmOption]) -> Component:
    given, command = split_command_line(words, options, command="srun")
    slurm, container = separate_flags(given)
    return Component(tuple(slurm), tuple(container), tuple(command))


def separate_flags(given: Sequence[GivenOption]) -> tuple[list[GivenOption], list[RawValue]]:
    """Part options into those of Slurm and the container flags."""
    slurm, container = [], []
    for option in given:
        row = find_option(option.name)
        if row is None:
            slurm.append(option)
        else:
            container.append(RawValue(row, option.value))
    return slurm, container


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
        elif component.has("multi-prog"):
            words += [_rewrite_programs(component), *component.command[1:]]
        else:
            words += [*task_words(component.flags), *component.command]
    return words


def _rewrite_programs(component: Component) -> str:
    """Return the path of a --multi-prog file in which every program is started through task.py."""
    path = component.command[0]
    try:
        with open(path, encoding="utf-8") as file:
            text = rewrite_programs(file.read(_LARGEST_FILE), component.flags)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--multi-prog: cannot read {path}: {error}") from error
    fd = os.memfd_create("multi-prog", 0)  # srun, which this process becomes, inherits it
    os.write(fd, text.encode())
    return f"/proc/self/fd/{fd}"


def rewrite_programs(text: str, flags: Sequence[str]) -> str:
    """Put task.py in front of every program of a --multi-prog file. Source: srun(1)."""
    import shlex

    before = " ".join(shlex.quote(word) for word in task_words(flags))
    lines = []
    for line in text.splitlines():
        ranks, blank, program = line.strip().partition(" ")
        if line.strip() and not line.lstrip().startswith("#") and blank:
            line = f"{ranks} {before} {program.strip()}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def read_options(command: str) -> tuple[SlurmOption, ...]:
    """Return the options of srun or sbatch here; the built-in table if it cannot be asked.

    The table is remembered as long as the program and this module are the same.
    """
    program = _find_program(command)
    if not program:
        return built_in_options(command)
    path = _table_path(command, program)
    try:
        with open(path, encoding="utf-8") as file:
            return decode_options(file.read(), command)
    except (FileNotFoundError, ValueError):
        pass
    text = _ask_for_help(program)
    if not text:
        return built_in_options(command)
    options = options_from_help(text, command)
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
        file.write(encode_options(options))
    os.rename(file.name, path)
    return options


def _table_path(command: str, program: str) -> str:
    folder = find_folder(runtime_path(os.environ.get(WORDS_VARIABLE, "").split()), os.environ)
    theirs, ours = os.stat(program), os.stat(TABLE)
    mark = f"{theirs.st_mtime_ns:x}-{theirs.st_size:x}-{ours.st_mtime_ns:x}"
    return f"{folder}/{command}-{mark}.options"


def _ask_for_help(program: str) -> str:
    import subprocess

    try:
        done = subprocess.run(
            [program, "--help"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _find_program(name: str) -> str:
    for folder in os.environ.get("PATH", os.defpath).split(":"):
        path = os.path.join(folder or ".", name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return ""


def resolve_digest(
    container: Sequence[RawValue], environ: Mapping[str, str], *, context: str
) -> dict[str, str]:
    """Check the flags, and return the variables that pin the image for all nodes.

    Raises:
        EnrootError: if the image is known not to be there.
    """
    from pyxis_py.keeper_verbs import submit
    from pyxis_py.request import Request

    rows = list(OPTIONS)
    job = JobFacts(
        uid=os.getuid(), gid=os.getgid(), job=0, step=0, cwd=os.getcwd(), environ=environ
    )
    data = encode_request(
        job,
        words=environ.get(WORDS_VARIABLE, "").split(),
        options=[(rows.index(value.option), value.argument) for value in container],
        extra=(("context", context),),
    )
    pairs, _ = submit(Request(data, tell=_tell))
    variables = {}
    for key, value in pairs:
        if key == "log":
            _tell(value)
        elif key == "setenv":
            name, _, text = value.partition("=")
            variables[name] = text
    return variables


def _tell(line: str) -> None:
    sys.stderr.write(f"pyxis: {line}\n")
    sys.stderr.flush()


def main(words: Sequence[str] | None = None) -> int:
    """Become srun; returns only if the command line is wrong."""
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
    if any(component.has(name) for component in components for name in _ASK_ONLY):
        return become("srun", words)
    environ = dict(os.environ)
    arguments: list[Arguments] = []
    for component in components:
        arguments.append(parse_arguments(component.container, environ))
        if arguments[-1].enabled:
            environ.update(resolve_digest(component.container, environ, context="srun"))
    os.environ.update(environ)
    return become("srun", srun_words(components, environ))


def become(program: str, words: Sequence[str]) -> int:
    """Execute srun or sbatch; returns 127 if there is none."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(program, [program, *words])
    except OSError as error:
        sys.stderr.write(f"pyxis: error: cannot execute {program}: {error.strerror}\n")
        return 127
