"""From srun's command line and variables to what is asked of a step.

Pure. Source: srun(1), OPTIONS and INPUT ENVIRONMENT VARIABLES; src/srun/libsrun/opt.c for how
numbers of nodes and tasks follow from one another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyxis_py.kubernetes.launcher.job.command_line import (
    CommandLineError,
    cut,
    parse_count,
    parse_time,
)
from pyxis_py.kubernetes.launcher.job.hostlist import HostListError, expand_hosts
from pyxis_py.kubernetes.launcher.job.signals import signal_number
from pyxis_py.kubernetes.launcher.srun.option_table import ALIASES, OPTIONS

_FALSE = ("0", "no", "false")
_GPU = re.compile(r"(?:[A-Za-z][\w.-]*:)?(\d{1,6})\Z", re.ASCII)
_MULTIPLE = {"": 1, "k": 1024, "m": 1024**2}
_SIGNAL = re.compile(r"(?:R|B|RB|BR)?:?([A-Z0-9+]+?)(?:@(\d{1,5}))?\Z", re.ASCII | re.IGNORECASE)
MPI_TYPES = ("none", "pmi2", "pmix")


class Srun(NamedTuple):
    """What one srun asks for. 0, "" and None mean: not asked, unless said otherwise.

    Attributes:
        values: options by name, the strongest source's value, for those without a field.
        chosen: names of options that stand on the command line itself.
        nodes: smallest and largest number of nodes (largest 0: the smallest).
        gpus: GPUs of the step, of a node and of a task; -1 where none was asked for.
        ignored: options that have no effect, with the reason.
        command: the program and its arguments.
    """

    values: dict[str, str]
    chosen: frozenset[str]
    nodes: tuple[int, int]
    ntasks: int
    ntasks_per_node: int
    ntasks_per_gpu: int
    cpus_per_task: int
    nodelist: tuple[str, ...]
    exclude: tuple[str, ...]
    relative: int | None
    gpus: int
    gpus_per_node: int
    gpus_per_task: int
    wait: int
    time: int | None
    kill_on_bad_exit: bool
    ignored: tuple[tuple[str, str], ...]
    command: tuple[str, ...]

    def has(self, name: str) -> bool:
        """Whether an option is given, by a variable or on the command line."""
        return name in self.values

    def text(self, name: str) -> str:
        """An option's value, "" without it."""
        return self.values.get(name, "")


def parse_srun(argv: Sequence[str], environ: Mapping[str, str]) -> Srun:
    """Read srun's words (without its own name).

    Raises:
        CommandLineError: if they cannot be understood or ask for what a pod cannot do.
    """
    given, command = cut(argv, OPTIONS, ALIASES)
    rows = {option.name: option for option in OPTIONS}
    values = _from_environ(environ)
    ignored = []
    for name, value in given:
        row = rows[name]
        if row.use == "refused":
            raise CommandLineError(f"--{name}: {row.why}")
        if row.use == "ignored":
            ignored.append((name, row.why))
        values[name] = value
    chosen = frozenset(name for name, _ in given)
    # An option on the command line takes the place of the other form of the same thing.
    for group in (("gpus", "gpus-per-node", "gpus-per-task", "gres"), ("output",), ("error",)):
        if chosen & set(group):
            for name in set(group) - chosen:
                values.pop(name, None)
    try:
        return _build(values, chosen, tuple(ignored), tuple(command))
    except HostListError as error:
        raise CommandLineError(str(error)) from error


def _from_environ(environ: Mapping[str, str]) -> dict[str, str]:
    values = {}
    for row in OPTIONS:
        for variable in row.variables:
            value = environ.get(variable)
            if value is None or row.name in values:
                continue
            if row.argument == "none" and value.lower() in _FALSE:
                continue
            values[row.name] = "" if row.argument == "none" else value
    return values


def _build(
    values: dict[str, str],
    chosen: frozenset[str],
    ignored: tuple[tuple[str, str], ...],
    command: tuple[str, ...],
) -> Srun:
    def count(name: str) -> int:
        return parse_count(values[name], f"--{name}") if values.get(name) else 0

    gres = _gres_gpus(values["gres"]) if "gres" in values else -1
    per_node = _gpus(values, "gpus-per-node")
    nodes = _nodes(values["nodes"]) if values.get("nodes") else (0, 0)
    ntasks, per_task = count("ntasks"), count("ntasks-per-node")
    if "ntasks" not in chosen and chosen & {"ntasks-per-gpu"}:
        ntasks = 0
    exclude = _hosts(values, "exclude")
    wait = values.get("wait", "")
    return Srun(
        values=values,
        chosen=chosen,
        nodes=nodes,
        ntasks=ntasks,
        ntasks_per_node=per_task,
        ntasks_per_gpu=count("ntasks-per-gpu"),
        cpus_per_task=count("cpus-per-task"),
        nodelist=_hosts(values, "nodelist"),
        exclude=exclude,
        relative=parse_count(values["relative"], "--relative", least=0)
        if "relative" in values
        else None,
        gpus=_gpus(values, "gpus"),
        gpus_per_node=per_node if per_node >= 0 else gres,
        gpus_per_task=_gpus(values, "gpus-per-task"),
        wait=parse_count(wait, "--wait", least=0) if wait else 0,
        time=parse_time(values["time"], "--time") or None if "time" in values else None,
        kill_on_bad_exit="kill-on-bad-exit" in values and values["kill-on-bad-exit"] not in _FALSE,
        ignored=ignored,
        command=command,
    )


def _nodes(text: str) -> tuple[int, int]:
    least, dash, most = text.partition("-")
    low = _number(least)
    return low, _number(most) if dash else 0


def _number(text: str) -> int:
    match = re.match(r"(\d{1,9})([km]?)\Z", text, re.IGNORECASE | re.ASCII)
    if match is None:
        raise CommandLineError(f"--nodes: not a number of nodes: {text!r}")
    return int(match.group(1)) * _MULTIPLE[match.group(2).lower()]


def _hosts(values: Mapping[str, str], name: str) -> tuple[str, ...]:
    text = values.get(name, "")
    if "/" in text:
        raise CommandLineError(f"--{name}: name the hosts; files are not read: {text!r}")
    return tuple(dict.fromkeys(expand_hosts(text)))


def _gpus(values: Mapping[str, str], name: str) -> int:
    """The number in `8` or `h100:8` or a list of them; -1 without the option."""
    if not values.get(name):
        return -1
    total = 0
    for part in values[name].split(","):
        match = _GPU.match(part)
        if match is None:
            raise CommandLineError(f"--{name}: not a number of GPUs: {part!r}")
        total += int(match.group(1))
    return total


def _gres_gpus(text: str) -> int:
    """The GPUs in a list of generic resources; -1 if it does not speak of them."""
    if text.lower() == "none":
        return 0
    total = -1
    for part in text.split(","):
        words = part.partition("(")[0].split(":")
        if words[0] in ("gpu", "gres/gpu"):
            amount = words[-1] if len(words) > 1 and words[-1].isdecimal() else "1"
            total = max(total, 0) + int(amount)
    return total


def parse_signal(text: str) -> tuple[int, int]:
    """Return the number of a signal and the seconds ahead of `USR1@60`; 60 if none are said.

    Raises:
        CommandLineError: if there is no such signal.
    """
    match = _SIGNAL.match(text)
    if match is None:
        raise CommandLineError(f"--signal: not a signal: {text!r}")
    return signal_number(match.group(1)), int(match.group(2) or 60)
