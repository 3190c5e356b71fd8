"""Which launcher.pyz a submitted job brings along."""

from __future__ import annotations

from pyxis_py.kubernetes.profile.site import Profile


def job_launcher(profile: Profile) -> bytes | None:
    """Return the launcher for a job's ConfigMap, None where the site has one in its own."""
    if profile.names_launcher:
        return None
    from pyxis_py.kubernetes.launcher.zipapp import build_launcher

    return build_launcher()
