"""Slurm's lists of hosts: `n[1-3,7]-ib`, both ways, and counts such as `2(x3),1`.

Pure. Source: scontrol(1), `show hostnames` and `show hostlist`; src/common/hostlist.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

LARGEST_LIST = 100_000
"""More hosts than any job has."""

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z", re.ASCII)
_NUMBERED = re.compile(r"(.*?)(\d{1,9})\Z", re.DOTALL | re.ASCII)
"""Only a number at the end of a name becomes a range, as in hostlist.c."""


class HostListError(ValueError):
    """The text is no list of hosts."""


def expand_hosts(text: str) -> list[str]:
    """Return the hosts of a list in their order, repeated ones as often as they stand there.

    Raises:
        HostListError: if brackets or ranges are malformed, or there are far too many hosts.
    """
    hosts: list[str] = []
    for item in _split(text):
        hosts += _expand(item)
        if len(hosts) > LARGEST_LIST:
            raise HostListError(f"more than {LARGEST_LIST} hosts")
    return hosts


def _split(text: str) -> list[str]:
    items, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            raise HostListError(f"brackets do not match: {text!r}")
        if depth == 0 and (character == "," or character.isspace()):
            items.append("")
        else:
            items[-1] += character
    if depth:
        raise HostListError(f"brackets do not match: {text!r}")
    return [item for item in items if item]


def _expand(item: str) -> list[str]:
    head, bracket, rest = item.partition("[")
    if not bracket:
        return [item]
    inner, _, tail = rest.partition("]")
    numbers: list[str] = []
    for part in inner.split(","):
        match = _RANGE.match(part)
        if match is None:
            raise HostListError(f"not a range of hosts: {part!r}")
        low, high = int(match.group(1)), int(match.group(2) or match.group(1))
        if high < low or high - low >= LARGEST_LIST:
            raise HostListError(f"not a range of hosts: {part!r}")
        width = len(match.group(1))
        numbers += [str(number).zfill(width) for number in range(low, high + 1)]
    ends = _expand(tail)
    if len(numbers) * len(ends) > LARGEST_LIST:
        raise HostListError(f"more than {LARGEST_LIST} hosts")
    return [head + number + end for number in numbers for end in ends]


def compress_hosts(hosts: Iterable[str]) -> str:
    """Return a list of hosts in Slurm's short form, in the same order: `n-[0-3],login`."""
    groups: list[tuple[str, list[str]]] = []
    for host in hosts:
        match = _NUMBERED.match(host)
        if match is None:
            groups.append((host, []))
        elif groups and groups[-1][1] and groups[-1][0] == match.group(1):
            groups[-1][1].append(match.group(2))
        else:
            groups.append((match.group(1), [match.group(2)]))
    return ",".join(_format_group(*group) for group in groups)


def _format_group(head: str, numbers: Sequence[str]) -> str:
    if len(numbers) < 2:
        return head + "".join(numbers)
    return "{}[{}]".format(head, ",".join(_ranges(numbers)))


def _ranges(numbers: Sequence[str]) -> Iterable[str]:
    first = last = numbers[0]
    for number in [*numbers[1:], ""]:
        # 09 and 10 are of one range, 9 and 010 are not: widths tell where zeros stand in front.
        follows = number and int(number) == int(last) + 1 and _same_width(first, last, number)
        if not follows:
            yield first if first == last else f"{first}-{last}"
            first = number
        last = number


def _same_width(first: str, last: str, number: str) -> bool:
    if first.startswith("0") and len(first) > 1:
        return len(number) == len(first)
    return not number.startswith("0") and not (last.startswith("0") and len(last) > 1)


def sort_hosts(hosts: Iterable[str]) -> list[str]:
    """Return hosts ordered by name, with the numbers in them as numbers."""
    return sorted(hosts, key=_sort_key)


def _sort_key(host: str) -> list[tuple[int, int, str]]:
    parts = re.split(r"(\d+)", host)
    return [(1, int(part), part) if part.isdecimal() else (0, 0, part) for part in parts]


def format_counts(values: Iterable[int]) -> str:
    """Return counts for each node as Slurm writes them: `3(x2),2`."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return ",".join("{}(x{})".format(*run) if run[1] > 1 else str(run[0]) for run in runs)


def parse_counts(text: str) -> list[int]:
    """Return the counts of `3(x2),2`.

    Raises:
        HostListError: if the text is malformed.
    """
    counts: list[int] = []
    for part in text.split(","):
        match = re.match(r"(\d{1,9})(?:\(x(\d{1,6})\))?\Z", part, re.ASCII)
        if match is None:
            raise HostListError(f"not a count for each node: {part!r}")
        counts += [int(match.group(1))] * int(match.group(2) or 1)
    return counts
