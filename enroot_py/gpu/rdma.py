"""InfiniBand, RoCE and EFA: find the verbs devices, select some, plan their injection.

Everything is grouped by PCI function: sysfs class folders list interfaces, verbs and management
devices in orders of their own, which do not match on DPUs, with SR-IOV, or with a port down.
The user-space libraries come from the image.

Source: enroot 4.1.2 conf/hooks/99-mellanox.sh for the variable; Linux ABI sysfs-class-infiniband.
"""

from __future__ import annotations

from enroot_py.errors import NotFoundError
from enroot_py.gpu.driver_root import DriverRoot, Node
from enroot_py.gpu.injection import NO_INJECTION, Device, Injection
from enroot_py.gpu.nvidia.discovery import parse_pci_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

LOW_MEMLOCK = 256 << 20
"""Bytes; with less that may be locked, registering usual buffers fails."""

_MELLANOX = ("mlx4_core", "mlx5_core")
_VERBS = "/sys/class/infiniband_verbs"
_CLASSES = ("infiniband", "infiniband_verbs", "infiniband_cm", "infiniband_mad")


class RdmaDevice(NamedTuple):
    """One verbs device.

    Attributes:
        verbs: `uverbs0`.
        name: of its interface, `mlx5_0`; "" if the function has none.
        node: its device node; None if there is none.
        pci: PCI address of its function; "" for a device on no PCI bus.
        driver: the kernel driver bound to the function.
        management: nodes for subnet management (umad, issm).
        entries: (class, name, path in sysfs) of everything in /sys/class that belongs to it.
    """

    verbs: str
    name: str
    node: Node | None
    pci: str
    driver: str
    management: tuple[Node, ...] = ()
    entries: tuple[tuple[str, str, str], ...] = ()

    @property
    def fault(self) -> str:
        """Why it cannot be used; "" if it can."""
        if not self.name:
            return "its PCI function has no interface"
        return "" if self.node is not None else f"/dev/infiniband/{self.verbs} is missing"


def find_rdma_devices(root: DriverRoot) -> tuple[RdmaDevice, ...]:
    """Return every verbs device, in PCI order."""
    found = []
    for verbs in root.names(_VERBS):
        if not verbs.startswith("uverbs"):
            continue
        function = root.resolve(f"{_VERBS}/{verbs}/device")
        if function is None:
            continue
        place = function[len(root.root_of("/sys/").rstrip("/")) :]
        driver = (root.resolve(f"{place}/driver") or "").rpartition("/")[2]
        interfaces = root.names(f"{place}/infiniband")
        own = (root.read(f"{_VERBS}/{verbs}/ibdev") or "").strip()
        name = own if own in interfaces else (interfaces[0] if len(interfaces) == 1 else "")
        mads = root.names(f"{place}/infiniband_mad")
        entries = [("infiniband_verbs", verbs, f"{place}/infiniband_verbs/{verbs}")]
        entries += [("infiniband", name, f"{place}/infiniband/{name}")] if name else []
        entries += [("infiniband_mad", mad, f"{place}/infiniband_mad/{mad}") for mad in mads]
        nodes = [root.node(f"/dev/infiniband/{mad}") for mad in mads]
        found.append(
            RdmaDevice(
                verbs=verbs,
                name=name,
                node=root.node(f"/dev/infiniband/{verbs}"),
                pci=parse_pci_address(place.rpartition("/")[2]),
                driver=driver,
                management=tuple(node for node in nodes if node is not None),
                entries=tuple(entries),
            )
        )
    return tuple(sorted(found, key=lambda device: (device.pci or "~", _number(device.verbs))))


def visible_list(launcher: Mapping[str, str], container: Mapping[str, str]) -> tuple[str, str]:
    """Return the device list and the variable that it is in; the launcher's environment wins."""
    for name in ("RDMA_VISIBLE_DEVICES", "MELLANOX_VISIBLE_DEVICES"):
        text = launcher[name] if name in launcher else container.get(name, "")
        if text:
            return text, name
    return "", ""


def plan_rdma(
    text: str,
    variable: str,
    devices: tuple[RdmaDevice, ...],
    root: DriverRoot,
    *,
    real_root: bool,
    memlock: int,
) -> Injection:
    """Plan the injection of the devices that a list names.

    Args:
        text: `all`, or indices, interface names, `uverbsN` and PCI addresses between commas.
        variable: the list's variable; MELLANOX_VISIBLE_DEVICES counts Mellanox devices only.
        memlock: bytes that this user may lock; -1 for no limit.

    Raises:
        NotFoundError: if an item names no device, or one that cannot be used.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or words[0].lower() in ("void", "none"):
        return NO_INJECTION
    if variable.startswith("MELLANOX"):
        devices = tuple(device for device in devices if device.driver in _MELLANOX)
    usable = tuple(device for device in devices if not device.fault)
    if "all" in words:
        chosen = usable
    else:
        chosen = tuple(dict.fromkeys(_find(word, variable, devices) for word in words))
    subset = len(chosen) < len(usable)
    return Injection(
        devices=tuple(_nodes(chosen, variable, root, real_root=real_root)),
        hidden=_hidden(devices, chosen) if subset else (),
        sysfs_classes=_classes(chosen, root) if subset else (),
        warnings=_memlock_warning(memlock) if chosen else (),
    )


def _nodes(
    chosen: tuple[RdmaDevice, ...], variable: str, root: DriverRoot, *, real_root: bool
) -> list[Device]:
    nodes = [
        Device(device.node.source, device.node.path, f"{device.name} ({variable})")
        for device in chosen
        if device.node is not None
    ]
    connection = root.node("/dev/infiniband/rdma_cm")
    if connection is not None and chosen:
        nodes.append(Device(connection.source, connection.path, "connection manager", False))
    if real_root:
        nodes += [Device(n.source, n.path, d.name, False) for d in chosen for n in d.management]
    return nodes


def _find(word: str, variable: str, devices: tuple[RdmaDevice, ...]) -> RdmaDevice:
    device: RdmaDevice | None = None
    if word.isascii() and word.isdigit():
        if int(word) < len(devices):
            device = devices[int(word)]
    else:
        address = parse_pci_address(word)
        for candidate in devices:
            if word in (candidate.name, candidate.verbs) or (address and address == candidate.pci):
                device = candidate
    listed = ", ".join(
        f"{index} {d.name or d.verbs} {d.pci}".rstrip() for index, d in enumerate(devices)
    )
    if device is None:
        raise NotFoundError(
            f'rdma: unknown device "{word}" in {variable}; there are: {listed or "none"}'
        )
    if device.fault:
        raise NotFoundError(
            f'rdma: device "{word}" in {variable} ({device.verbs}, {device.pci}) cannot be used: '
            f"{device.fault}",
            hint="all takes those that can be used",
        )
    return device


def _hidden(devices: tuple[RdmaDevice, ...], chosen: tuple[RdmaDevice, ...]) -> tuple[str, ...]:
    others = [device for device in devices if device not in chosen]
    nodes = [node for device in others for node in (device.node, *device.management)]
    return tuple(node.path for node in nodes if node is not None)


def _classes(
    chosen: tuple[RdmaDevice, ...], root: DriverRoot
) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Return, for each class folder that exists, the links that stay in it."""
    return tuple(
        (
            f"/sys/class/{name}",
            tuple((entry, path) for d in chosen for kind, entry, path in d.entries if kind == name),
        )
        for name in _CLASSES
        if root.exists(f"/sys/class/{name}")
    )


def _memlock_warning(memlock: int) -> tuple[str, ...]:
    if memlock < 0 or memlock >= LOW_MEMLOCK:
        return ()
    size = f"{memlock >> 20} MiB" if memlock >= 1 << 20 else f"{memlock >> 10} KiB"
    return (f"rdma: RLIMIT_MEMLOCK is {size}; registering memory will fail",)


def _number(name: str) -> int:
    digits = name[len("uverbs") :] if name.startswith("uverbs") else name
    return int(digits) if digits.isdigit() else 0
