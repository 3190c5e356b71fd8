"""Keep a wrapper's flags from the plugin, where srun has one: ours, or NVIDIA's.

The plugin would read the same variables, and the flags that salloc hands on, and put into its
container what the wrapper runs there: an interpreter that no image has.
"""

from __future__ import annotations

from pyxis_py.options import OPTIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

_HELD = "SLURM_HELD_"
"""A name that begins with SLURM gets to the tasks whatever --export says."""
_OF_SALLOC = ("_SLURM_SPANK_OPTION_pyxis_", "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_")
"""Source: Slurm 22.05 src/common/spank.c, _opt_env_name(); spank_set_job_env(), as which Slurm
itself keeps it."""


def hide_flags(environ: MutableMapping[str, str]) -> None:
    """Have no plugin see the variables of flags, nor what salloc hands on."""
    for option in OPTIONS:
        for prefix in _OF_SALLOC:
            environ.pop(prefix + option.name.replace("-", "_"), None)
        if option.env in environ:
            environ[_HELD + option.env] = environ.pop(option.env)


def restore_flags(environ: MutableMapping[str, str]) -> None:
    """Put back the variables that `hide_flags` has hidden."""
    for option in OPTIONS:
        if _HELD + option.env in environ:
            environ[option.env] = environ.pop(_HELD + option.env)
