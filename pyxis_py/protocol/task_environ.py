"""Whose variables win: the container's, the job's or the task's. Pure.

The image's variables win over the job's; those that `--container-env` names are the other way
round; the job's locale does not enter a container unless named; everything else of the job is there
as well. What belongs to one task (its rank, its PMI descriptor) stays the task's own.

Source: pyxis 0.24 pyxis_slurmstepd.c, spank_import_container_env() and pytorch_setup().
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping
    from typing import NamedTuple
else:
    from enroot_py import NamedTuple

_LOCALE = ("LANG", "LANGUAGE", "LC_ALL")
_TORCH = (("SLURM_PROCID", "RANK"), ("SLURM_LOCALID", "LOCAL_RANK"))


class EnvironEdits(NamedTuple):
    """Changes to the environment of a task, to be applied in the order of the fields.

    Attributes:
        unset: names to remove.
        env: variables to set.
        default: variables to set where the task has none of that name.
        copy: (from, to): the task's own value of one name under another, if it has it.
    """

    unset: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    default: tuple[tuple[str, str], ...]
    copy: tuple[tuple[str, str], ...]


def plan_task_environ(
    container: Mapping[str, str],
    job: Mapping[str, str],
    keep: Iterable[str],
    *,
    overrides: Iterable[tuple[str, str]] = (),
) -> EnvironEdits:
    """Decide how a task's environment becomes that of a process in the container.

    Args:
        container: the environment that the container was started with.
        job: the job's.
        keep: names whose value in the job wins.
        overrides: variables of an environment definition file; they win over both, and one with an
            empty value is removed.
    """
    kept = frozenset(keep)
    changed = dict(overrides)
    env = {name: value for name, value in container.items() if name not in kept | changed.keys()}
    default = {name: value for name, value in container.items() if name in kept - changed.keys()}
    env.update({name: value for name, value in changed.items() if value})
    torch = "PYTORCH_VERSION" in container or "PYTORCH_VERSION" in job
    return EnvironEdits(
        unset=tuple(name for name in _LOCALE if name not in kept)
        + tuple(name for name, value in changed.items() if not value),
        env=tuple(env.items()),
        default=tuple(default.items()),
        copy=_TORCH if torch else (),
    )


def apply_edits(edits: EnvironEdits, environ: MutableMapping[str, str]) -> None:
    """Apply edits to a task's environment."""
    for name in edits.unset:
        environ.pop(name, None)
    environ.update(edits.env)
    for name, value in edits.default:
        environ.setdefault(name, value)
    for source, target in edits.copy:
        if source in environ:
            environ[target] = environ[source]
