"""Components of a heterogeneous step through the plugin: which one a node runs, with which flags.

Slurm hands the flags of plugins to all components alike. Where they differ the plugin puts each
component's own into the environment (spank_shim/options.c), and srun's side says here which
component each of the job's groups runs. A node knows its group by its job id.

Source: Slurm 22.05 src/srun/libsrun/srun_job.c (a component without --het-group runs in the group
of its own place); Slurm's guide to heterogeneous jobs (the ids of a job's components).
"""

from __future__ import annotations

from enroot_py import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyxis_py.command_lines.components import Component

GROUPS = "SLURM_PYXIS_GROUPS"
"""Variable with the number of the component that each group runs, "-" for none. A name that begins
with SLURM reaches the nodes whatever --export says."""

SEPARATOR = "\036"
_FLAGS = "SLURM_PYXIS_COMPONENT_{}"
_MOST_GROUPS = 128


def find_groups(components: Sequence[Component], environ: Mapping[str, str]) -> str:
    """Return the value of GROUPS for a command line of srun's, "" where nodes could not use it.

    Inside a job that is not heterogeneous itself all components have one job id.

    Raises:
        UsageError: for a --het-group that is none.
    """
    if len(components) < 2 or ("SLURM_JOB_ID" in environ and "SLURM_HET_SIZE" not in environ):
        return ""
    chosen: dict[int, int] = {}
    for number, component in enumerate(components):
        texts = [option.value for option in component.slurm if option.name == "het-group"]
        for group in expand_groups(texts[-1]) if texts else [number]:
            chosen[group] = number
    return " ".join(str(chosen.get(group, "-")) for group in range(max(chosen) + 1))


def expand_groups(text: str) -> Iterable[int]:
    """Return the numbers of a list as --het-group takes it: "0,2-3" → 0, 2, 3.

    Raises:
        UsageError: if it is none.
    """
    numbers: list[int] = []
    for item in text.strip("[]").split(","):
        low, dash, high = item.partition("-")
        ends = (low, high if dash else low)
        if not all(end.isascii() and end.isdecimal() and len(end) < 4 for end in ends):
            raise UsageError(f"--het-group: not a list of numbers: {text!r}")
        numbers += range(int(ends[0]), int(ends[1]) + 1)
        if not numbers or max(numbers) >= _MOST_GROUPS:
            raise UsageError(f"--het-group: not a list of groups: {text!r}")
    return numbers


def component_flags(environ: Mapping[str, str], job: int) -> list[str] | None:
    """Return the flags of the component that a node of a step runs, None where all have the same.

    Args:
        environ: the job's.
        job: the id of the job of the node: each group of a heterogeneous job has its own.

    Returns:
        Items "NUMBER=VALUE".

    Raises:
        UsageError: if it cannot be told which component this is.
    """
    if _FLAGS.format(0) not in environ:
        return None
    components = environ.get(GROUPS, "").split()
    group = _find_group(environ, job)
    number = components[group] if 0 <= group < len(components) else ""
    text = environ.get(_FLAGS.format(number))
    if text is None:
        raise UsageError(
            f"Cannot tell which component of the step job {job} runs",
            hint="pyxis-srun takes flags of their own for components in any kind of job",
        )
    return [item for item in text.split(SEPARATOR) if item]


def _find_group(environ: Mapping[str, str], job: int) -> int:
    for group in range(_MOST_GROUPS):
        # sbatch and salloc set them; Slurm numbers a job's groups in a row.
        if environ.get(f"SLURM_JOB_ID_HET_GROUP_{group}") == str(job):
            return group
    leader = environ.get("SLURM_JOB_ID", "")
    return job - int(leader) if leader.isdecimal() else -1
