"""Settings, host facts and plans that do not depend on this machine."""

from __future__ import annotations

from collections.abc import Mapping

from enroot_py.host import HostFacts
from enroot_py.plan.spec import StartSpec
from enroot_py.plan.start import RootfsSource, StartPlan, plan_start
from enroot_py.settings import Settings, load_settings

HOST = HostFacts(
    pid=42, uid=1000, gid=1001, euid=1000, egid=1001, architecture="x86_64", release=(6, 1),
    hostname="node", cwd="/work", terminal=False,
)  # fmt: skip
FOLDER = RootfsSource("/data/enroot/box")
IMAGE = RootfsSource("/images/box.sqsh", is_image=True)


def settings_of(environ: Mapping[str, str] | None = None) -> Settings:
    """Return settings of a user with these variables, below folders that do not exist."""
    folders = {
        "HOME": "/home/me",
        "XDG_DATA_HOME": "/data",
        "XDG_RUNTIME_DIR": "/run/me",
        "ENROOT_SYSCONF_PATH": "/nonexistent",
        "ENROOT_MAX_PROCESSORS": "2",
        "TERM": "xterm",
    }
    return load_settings({**folders, **(environ or {})})


def plan_of(
    rootfs: RootfsSource = FOLDER,
    host: HostFacts = HOST,
    variables: Mapping[str, str] | None = None,
    **spec: object,
) -> StartPlan:
    """Return the plan for a spec of these fields; `variables` are the host's."""
    asked = StartSpec("box")._replace(**spec)
    return plan_start(asked, settings_of(variables), host, rootfs)
