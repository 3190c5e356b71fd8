"""Which launcher.pyz a submitted job brings along."""

from __future__ import annotations

import importlib

from enroot_py import UnsupportedError
from pyxis_py.kubernetes.profile.site import Profile

_BUILDER = "pyxis_py.kubernetes.launcher.zipapp"


def job_launcher(profile: Profile) -> bytes | None:
    """Return the launcher for a job's ConfigMap, None where the site has one in its own."""
    if profile.names_launcher:
        return None
    try:
        module = importlib.import_module(_BUILDER)
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            "This installation has no launcher for pods", hint="give one with --launcher FILE"
        ) from error
    return bytes(module.build_launcher())
