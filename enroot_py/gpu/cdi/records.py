"""CDI specifications as immutable records. Pure.

Source: Container Device Interface specification 1.1.0.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple


class NodeEdit(NamedTuple):
    """A device node. `major` and `minor` are -1 where the file does not state them."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int = -1
    minor: int = -1
    file_mode: int = -1
    permissions: str = ""
    uid: int = -1
    gid: int = -1


class MountEdit(NamedTuple):
    """A mount; `type` is "" for a bind mount."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class HookEdit(NamedTuple):
    """An OCI hook; `timeout` in seconds, 0 for none."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int = 0


class ContainerEdits(NamedTuple):
    """Changes to a container.

    Attributes:
        env: `NAME=value` texts.
        net_devices: (host interface, name in the container).
        intel_rdt: whether resource control is asked for.
    """

    env: tuple[str, ...] = ()
    device_nodes: tuple[NodeEdit, ...] = ()
    mounts: tuple[MountEdit, ...] = ()
    hooks: tuple[HookEdit, ...] = ()
    net_devices: tuple[tuple[str, str], ...] = ()
    additional_gids: tuple[int, ...] = ()
    intel_rdt: bool = False


class CdiDevice(NamedTuple):
    """A device of a specification, by its bare name."""

    name: str
    edits: ContainerEdits


class CdiSpec(NamedTuple):
    """One specification file.

    Attributes:
        path: absolute path of the file.
        priority: position of its folder; the higher one wins.
        kind: `vendor/class`.
        edits: what every device of the file needs.
    """

    path: str
    priority: int
    version: str
    kind: str
    devices: tuple[CdiDevice, ...]
    edits: ContainerEdits = ContainerEdits()
