"""`srun --multi-prog`: a file that names the program of each task.

Pure. Source: srun(1), MULTIPLE PROGRAM CONFIGURATION.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from pyxis_py.kubernetes.launcher.job.command_line import CommandLineError

_RANKS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z", re.ASCII)


def parse_programs(text: str, ntasks: int, arguments: Sequence[str]) -> dict[int, list[str]]:
    """Return program and arguments of each task.

    Args:
        arguments: words behind the file's name, which every program gets.

    Raises:
        CommandLineError: naming the line that is malformed, or a task without a program.
    """
    found: dict[int, list[str]] = {}
    rest: list[str] | None = None
    for number, line in _logical_lines(text):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise CommandLineError(f"--multi-prog: line {number}: {error}") from error
        if not words:
            continue
        if len(words) < 2:
            raise CommandLineError(f"--multi-prog: line {number}: no program")
        program = [*words[1:], *arguments]
        if words[0] == "*":
            rest = rest or program
            continue
        tasks = _tasks(words[0], number, ntasks)
        for offset, task in enumerate(tasks):
            found[task] = [_expand(word, task, offset) for word in program]
    missing = [task for task in range(ntasks) if task not in found]
    if missing and rest is None:
        raise CommandLineError(f"--multi-prog: task {missing[0]} has no program")
    for offset, task in enumerate(missing):
        found[task] = [_expand(word, task, offset) for word in rest or ()]
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    continued = False
    for number, line in enumerate(text.splitlines(), start=1):
        part = line[:-1] if line.endswith("\\") else line
        if continued:
            lines[-1] = (lines[-1][0], lines[-1][1] + " " + part)
        else:
            lines.append((number, part))
        continued = line.endswith("\\")
    return lines


def _tasks(text: str, line: int, ntasks: int) -> list[int]:
    tasks: list[int] = []
    for part in text.split(","):
        match = _RANKS.match(part)
        if match is None:
            raise CommandLineError(f"--multi-prog: line {line}: not tasks: {part!r}")
        low, high = int(match.group(1)), int(match.group(2) or match.group(1))
        # Slurm lets a file name more tasks than there are.
        tasks += range(low, min(high, ntasks - 1) + 1)
    return tasks


def _expand(word: str, task: int, offset: int) -> str:
    """%t is the task, %o its place among those of the line."""
    return re.sub("%([to])", lambda match: str(task if match.group(1) == "t" else offset), word)
