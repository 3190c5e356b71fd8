"""The components of a step on srun's command line: options, container flags and command of each.

Pure. Source: srun(1), heterogeneous steps.
"""

from __future__ import annotations

from pyxis_py.args import RawValue
from pyxis_py.command_lines.slurm_options import GivenOption, SlurmOption, split_command_line
from pyxis_py.options import find_option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NamedTuple
else:
    from enroot_py import NamedTuple


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
