"""What a wrapper hides from the plugin, and puts back."""

from __future__ import annotations

from pyxis_py.launchers.beside_plugin import hide_flags, restore_flags

VARIABLES = {
    "PYXIS_CONTAINER_IMAGE": "a",
    "PYXIS_CONTAINER_READONLY": "y",
    "PYXIS_ENVIRONMENT": "e",
}
OTHERS = {"PATH": "/bin", "PYXIS_PLUGIN_OPTIONS": "container_scope=job", "SLURM_JOB_ID": "1"}
FROM_SALLOC = {
    "_SLURM_SPANK_OPTION_pyxis_container_image": "b",
    "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_no_container_remap_root": "(null)",
}


def test_variables_are_hidden_and_come_back() -> None:
    environ = {**VARIABLES, **OTHERS, **FROM_SALLOC}
    hide_flags(environ)
    hidden = set(environ) - set(OTHERS)
    # Names that reach the tasks whatever --export says.
    assert len(hidden) == len(VARIABLES)
    assert all(name.startswith("SLURM_HELD_") for name in hidden)
    restore_flags(environ)
    assert environ == {**VARIABLES, **OTHERS}
