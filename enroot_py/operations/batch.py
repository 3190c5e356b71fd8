"""Start the container that a configuration script names in its `#ENROOT_ROOTFS` line.

Source: enroot 4.1.2 enroot.in, enroot::batch().
"""

from __future__ import annotations

import os

from enroot_py.config_file import parse_directives
from enroot_py.errors import NotFoundError, SettingsError
from enroot_py.plan.spec import StartSpec
from enroot_py.settings import Settings, load_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn


def batch(conf: str, command: Sequence[str] = ()) -> NoReturn:
    """Become the container that a configuration script describes; see `start`.

    Args:
        conf: host path of the script.
        command: the words after it.

    Raises:
        NotFoundError: if there is no such file.
        SettingsError: if neither the script nor the environment has ENROOT_ROOTFS.
        EnrootError: whatever `start` raises.
    """
    from enroot_py.operations.start import start

    spec, settings = plan_batch(conf, command)
    start(spec, settings=settings)


def plan_batch(conf: str, command: Sequence[str] = ()) -> tuple[StartSpec, Settings]:
    """Return what `batch` starts, and with which settings."""
    settings = load_settings(directives=read_directives(conf))
    rootfs = settings.environment.get("ENROOT_ROOTFS", "")
    if not rootfs:
        raise SettingsError(
            f"Missing directive ENROOT_ROOTFS in {conf}",
            hint="add a line: #ENROOT_ROOTFS NAME|IMAGE",
        )
    return StartSpec(target=rootfs, command=tuple(command), conf=conf), settings


def read_directives(conf: str) -> list[tuple[str, str]]:
    """Return the `#ENROOT_…` lines of a configuration script as `(key, raw value)` pairs.

    Raises:
        NotFoundError: if there is no such file.
    """
    # Only an ordinary file: a pipe could not be read a second time, by the shell that runs it.
    if not os.path.isfile(conf):
        raise NotFoundError(f"No such configuration script: {conf}")
    with open(conf, encoding="utf-8", errors="surrogateescape") as file:
        return parse_directives(file.read())
