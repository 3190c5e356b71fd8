"""The lists that sbatch's options take: hosts, array indices, dependencies, features.

Pure. Source: sbatch(1) of Slurm 22.05; src/common/hostlist.c for host lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from enroot_py import UsageError

LARGEST_LIST = 100_000
"""More hosts or array elements than any scheduler takes."""

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?\Z", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z", re.ASCII)
_FEATURE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=:/-]{0,62}\Z", re.ASCII)
_DEPENDENCY = re.compile(
    r"(after|afterany|afterok|afternotok|aftercorr|afterburstbuffer):(.+)\Z", re.ASCII
)
_JOB = re.compile(r"(\d{1,10})(?:_(\d{1,9}|\*))?(?:\+(\d{1,9}))?\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Array:
    """`--array`: its indices in order, and how many may run at once (0: all)."""

    indices: tuple[int, ...]
    limit: int = 0

    @property
    def step(self) -> int:
        """The distance of the first two indices, 1 for a single one."""
        return self.indices[1] - self.indices[0] if len(self.indices) > 1 else 1


@dataclass(frozen=True, slots=True)
class Dependency:
    """One condition of `--dependency`; `jobs` is empty for `singleton`."""

    type: str
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dependencies:
    """`--dependency`: conditions of which all (or any) have to hold."""

    conditions: tuple[Dependency, ...]
    any: bool = False


class ConstraintError(UsageError):
    """A constraint that Slurm has and node labels cannot express; `code` says which kind."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def parse_array(text: str) -> Array:
    """Return the indices of `0-15:2,20%4`.

    Raises:
        UsageError: naming the part that is malformed.
    """
    body, percent, limit = text.partition("%")
    if percent and (not limit.isdecimal() or not limit.isascii() or len(limit) > 9):
        raise UsageError(f"not a limit behind %: {text!r}")
    indices: dict[int, None] = {}
    for part in body.split(","):
        match = _RANGE.match(part)
        if match is None:
            raise UsageError(f"not an array index or range: {part!r}", hint="0-15:2,20%4")
        low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if high < low or step < 1 or (high - low) // step >= LARGEST_LIST:
            raise UsageError(f"not an array range: {part!r}")
        indices.update(dict.fromkeys(range(low, high + 1, step)))
    if len(indices) > LARGEST_LIST:
        raise UsageError(f"more than {LARGEST_LIST} array elements")
    return Array(tuple(sorted(indices)), int(limit) if percent else 0)


def parse_hostlist(text: str) -> tuple[str, ...]:
    """Return the hosts of `a,n[01-03,7]-ib`, in order, each once.

    Raises:
        UsageError: if a bracket or a name is malformed.
    """
    hosts: dict[str, None] = {}
    for item in _split_outside_brackets(text):
        for host in _expand(item):
            if not _HOST.match(host):
                raise UsageError(f"not a host name: {host!r}")
            hosts[host] = None
            if len(hosts) > LARGEST_LIST:
                raise UsageError(f"more than {LARGEST_LIST} hosts")
    return tuple(hosts)


def _split_outside_brackets(text: str) -> list[str]:
    items, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            raise UsageError(f"brackets do not match: {text!r}")
        if character == "," and not depth:
            items.append("")
        else:
            items[-1] += character
    if depth:
        raise UsageError(f"brackets do not match: {text!r}")
    return items


def _expand(item: str) -> Iterable[str]:
    head, bracket, rest = item.partition("[")
    if not bracket:
        return [item]
    inner, _, tail = rest.partition("]")
    numbers: list[str] = []
    for part in inner.split(","):
        match = _RANGE.match(part)
        if match is None or match[3] is not None:
            raise UsageError(f"not a range of hosts: {part!r}")
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low) or int(high) - int(low) >= LARGEST_LIST:
            raise UsageError(f"not a range of hosts: {part!r}")
        numbers += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    ends = list(_expand(tail))
    if len(numbers) * len(ends) > LARGEST_LIST:
        raise UsageError(f"more than {LARGEST_LIST} hosts")
    return [head + number + end for number in numbers for end in ends]


def format_counts(values: Iterable[int]) -> str:
    """Return counts for each node as Slurm writes them: `3(x2),2`."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return ",".join(f"{value}(x{times})" if times > 1 else str(value) for value, times in runs)


def parse_dependency(text: str) -> Dependencies:
    """Return the conditions of `afterok:1:2,afterany:3`, `?` instead of `,` for any of them.

    Raises:
        UsageError: naming the condition that is malformed.
    """
    if "," in text and "?" in text:
        raise UsageError(f"both , and ? in one dependency: {text!r}")
    conditions = []
    for item in re.split("[,?]", text):
        if item == "singleton":
            conditions.append(Dependency("singleton", ()))
            continue
        match = _DEPENDENCY.match(item)
        jobs = tuple(match[2].split(":")) if match else ()
        if match is None or not all(_JOB.match(job) for job in jobs):
            raise UsageError(f"not a dependency: {item!r}", hint="for example afterok:1234")
        conditions.append(Dependency(match[1], jobs))
    return Dependencies(tuple(conditions), "?" in text)


def parse_constraint(text: str) -> tuple[tuple[str, ...], ...]:
    """Return alternatives, each a group of features that a node must all have.

    Raises:
        ConstraintError: for `[a|b]`, `a*2` and parentheses.
        UsageError: if a feature's name is malformed.
    """
    if "[" in text:
        raise ConstraintError(
            f"all nodes alike, whichever it is: {text!r}", "constraint-matching-or"
        )
    if "*" in text:
        raise ConstraintError(f"a number of nodes for each feature: {text!r}", "constraint-count")
    if "(" in text:
        raise ConstraintError(f"parentheses: {text!r}", "constraint-nested")
    alternatives = []
    for alternative in text.split("|"):
        features = tuple(re.split("[&,]", alternative))
        for feature in features:
            if not _FEATURE.match(feature):
                raise UsageError(f"not a feature: {feature!r}")
        alternatives.append(tuple(dict.fromkeys(features)))
    return tuple(dict.fromkeys(alternatives))
