"""CPUs for tasks: `--cpu-bind` within the CPUs that the pod has.

Sockets and cores of the machine are not the pod's to choose: `cores`, `threads` and `rank` give
each task its number of CPUs in a row.

Pure. Source: srun(1), --cpu-bind.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyxis_py.kubernetes.launcher.job.command_line import CommandLineError

_SILENT = ("quiet", "q", "verbose", "v", "one_thread")
_NONE = ("", "none", "no", "n", "off")
_ROWS = ("rank", "threads", "cores", "yes", "y")
_TOPOLOGY = ("sockets", "ldoms", "rank_ldom", "map_ldom", "mask_ldom", "boards")


def bind_cpus(text: str, allowed: Sequence[int], place: int, width: int) -> tuple[int, ...]:
    """Return the CPUs of a node's task; () where it is not bound.

    Args:
        text: the value of --cpu-bind.
        allowed: the CPUs that the pod may use, in order.
        place: the task's number among those of the node.
        width: CPUs of one task.

    Raises:
        CommandLineError: if the value is none of Slurm's, or needs the machine's topology.
    """
    word = text.strip()
    while word.partition(",")[0].lower() in _SILENT:
        word = word.partition(",")[2]
    kind, colon, values = word.partition(":")
    kind = kind.lower()
    if kind in _NONE:
        return ()
    if kind in _ROWS:
        start = place * width
        return tuple(allowed[number % len(allowed)] for number in range(start, start + width))
    if kind in _TOPOLOGY:
        raise CommandLineError(f"--cpu-bind={kind}: the machine's sockets are not the pod's")
    if kind in ("map_cpu", "mask_cpu") and colon and values:
        return _mapped(kind, values.split(","), allowed, place)
    raise CommandLineError(f"--cpu-bind: not a binding: {text!r}")


def _mapped(
    kind: str, values: Sequence[str], allowed: Sequence[int], place: int
) -> tuple[int, ...]:
    entries: list[str] = []
    for value in values:
        entry, star, times = value.partition("*")
        entries += [entry] * (int(times) if star and times.isdecimal() else 1)
    try:
        entry = entries[place % len(entries)]
        if kind == "map_cpu":
            found = [int(entry, 0)]
        else:
            mask = int(entry, 16)
            found = [cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1]
    except ValueError as error:
        raise CommandLineError(f"--cpu-bind: not a CPU or mask: {entry!r}") from error
    usable = tuple(cpu for cpu in found if cpu in allowed)
    if not usable:
        raise CommandLineError(f"--cpu-bind: the pod has none of the CPUs of {entry!r}")
    return usable
