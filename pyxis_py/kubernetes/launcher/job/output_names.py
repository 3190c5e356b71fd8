"""Names of output files: `%j`, `%4t` and their like.

Pure. Source: sbatch(1), filename pattern; src/srun/libsrun/fname.c.
"""

from __future__ import annotations

import re
from typing import NamedTuple

NO_ELEMENT = 0xFFFFFFFE
"""What Slurm writes for %a in a job that is no array."""

_PATTERN = re.compile(r"%(\d{0,2})([%AaJjNnstuxb])", re.ASCII)
_PER_TASK = re.compile(r"%\d{0,2}[tnN]", re.ASCII)


class Place(NamedTuple):
    """What a name is made of; the body has step "batch" and node and task 0."""

    job_id: int
    job_name: str
    user: str
    host: str
    array_job_id: int
    element: str = ""
    step: str = "batch"
    node: int = 0
    task: int = 0


def expand_name(pattern: str, place: Place) -> str:
    """Return a file's name; a pattern with a backslash is taken as it is, without it."""
    if "\\" in pattern:
        return pattern.replace("\\", "")
    element = place.element or str(NO_ELEMENT)
    step = "" if place.step == "batch" else f".{place.step}"
    values = {
        "%": "%",
        "A": str(place.array_job_id),
        "a": element,
        "b": str(int(element) % 10),
        "J": f"{place.job_id}{step}",
        "j": str(place.job_id),
        "N": place.host.partition(".")[0],
        "n": str(place.node),
        "s": place.step,
        "t": str(place.task),
        "u": place.user,
        "x": place.job_name,
    }

    def replace(match: re.Match[str]) -> str:
        width, letter = match.groups()
        value = values[letter]
        numeric = letter not in "%NuxJ"
        return value.zfill(min(int(width), 10)) if width and numeric else value

    return _PATTERN.sub(replace, pattern)


def is_per_task(pattern: str) -> bool:
    """Whether every task (or node) has a file of its own, which its own node writes."""
    return "\\" not in pattern and bool(_PER_TASK.search(pattern.replace("%%", "")))
