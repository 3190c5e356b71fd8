"""MIG devices of a driver root: which instances exist, and which nodes grant access to them.

Source: NVIDIA Multi-Instance GPU User Guide, "Device nodes and capabilities".
"""

from __future__ import annotations

from enroot_py.gpu.driver_root import DriverRoot, Node
from enroot_py.gpu.nvidia.records import Mig

_CAPABILITIES = "/proc/driver/nvidia/capabilities"
_MINORS = "/proc/driver/nvidia-caps/mig-minors"
_NODES = "/dev/nvidia-caps/nvidia-cap"


def find_mig_devices(root: DriverRoot, gpu_minor: int) -> tuple[Mig, ...]:
    """Return the MIG devices of the GPU with that device minor, in ascending order.

    The folders tell what exists; the table `mig-minors` lists every instance there could ever be,
    so it only serves for numbers of access files that cannot be read.
    """
    folder = f"{_CAPABILITIES}/gpu{gpu_minor}/mig"
    instances = _numbers(root.names(folder), "gi")
    if not instances:
        return ()
    table = parse_mig_minors(root.read(_MINORS) or "")
    devices = []
    for instance in instances:
        own = f"{folder}/gi{instance}"
        for compute in _numbers(root.names(own), "ci"):
            key = f"gpu{gpu_minor}/gi{instance}"
            nodes = (
                _access_node(root, f"{own}/access", table.get(f"{key}/access")),
                _access_node(
                    root, f"{own}/ci{compute}/access", table.get(f"{key}/ci{compute}/access")
                ),
            )
            devices.append(Mig(instance, compute, tuple(node for node in nodes if node)))
    return tuple(devices)


def find_capability_nodes(root: DriverRoot) -> tuple[Node | None, Node | None]:
    """Return the nodes of the MIG administration capabilities: config, monitor."""
    if not root.exists(f"{_CAPABILITIES}/mig"):
        return None, None
    table = parse_mig_minors(root.read(_MINORS) or "")
    config = _access_node(root, f"{_CAPABILITIES}/mig/config", table.get("config"))
    monitor = _access_node(root, f"{_CAPABILITIES}/mig/monitor", table.get("monitor"))
    return config, monitor


def parse_mig_minors(text: str) -> dict[str, int]:
    """Parse `/proc/driver/nvidia-caps/mig-minors`: lines such as `gpu0/gi1/access 12`."""
    table = {}
    for line in text.splitlines():
        name, _, number = line.strip().rpartition(" ")
        if name and number.isdigit():
            table[name.strip()] = int(number)
    return table


def _access_node(root: DriverRoot, access_file: str, minor: int | None) -> Node | None:
    """Return the node an access file names (`DeviceFileMinor: 12`), else the table's."""
    for line in (root.read(access_file) or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "DeviceFileMinor" and value.strip().isdigit():
            minor = int(value)
    node = None if minor is None else root.node(f"{_NODES}{minor}")
    return node if node is not None and node.is_device else None


def _numbers(names: list[str], prefix: str) -> list[int]:
    """Return the numbers of the names `PREFIXnumber`, ascending."""
    tails = [name[len(prefix) :] for name in names if name.startswith(prefix)]
    return sorted(int(tail) for tail in tails if tail.isdigit())
