"""Where an injection is planned: what planners need of host and container. Pure."""

from __future__ import annotations

from enroot_py.gpu.driver_root import DriverRoot
from enroot_py.gpu.nvidia.plan import Privileges

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple


class Situation(NamedTuple):
    """A host and a container.

    Attributes:
        root: the driver root.
        arch: the machine's architecture, as the kernel names it.
        launcher: the launcher's environment.
        container: the container's environment so far.
        privileges: what the launcher may do.
        rootfs: absolute host path of the container's root filesystem, searched for
            forward-compatible libraries; "" if there is none yet.
    """

    root: DriverRoot
    arch: str
    launcher: Mapping[str, str]
    container: Mapping[str, str]
    privileges: Privileges = Privileges()
    rootfs: str = ""
