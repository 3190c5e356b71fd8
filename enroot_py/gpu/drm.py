"""AMD, Intel and Gaudi accelerators: enumerate by kernel driver, select, plan. Their libraries come
from the image; what these devices need from the host are nodes alone.

Source: Linux drm and kfd sysfs trees; AMD's container toolkit for the list's grammar.
"""

from __future__ import annotations

from enroot_py.errors import NotFoundError, UsageError
from enroot_py.gpu.driver_root import DriverRoot, Node
from enroot_py.gpu.injection import NO_INJECTION, Device, Injection, Link, combine
from enroot_py.gpu.nvidia.discovery import find_drm_nodes, parse_pci_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

_MAX_INDEX = 4096


class Vendor(NamedTuple):
    """A kind of accelerator.

    Attributes:
        name: for messages.
        variable: its device list.
        fallback: variable of the vendor's runtime whose indices count if there is no list; its
            runtime does the rest, so nothing is hidden on its account.
        class_: folder of /sys/class to enumerate.
        drivers: kernel drivers that it is bound to.
        shared: nodes that every device needs.
    """

    name: str
    variable: str
    fallback: str
    class_: str
    drivers: tuple[str, ...]
    shared: tuple[str, ...] = ()


VENDORS = (
    Vendor("amd", "AMD_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "drm", ("amdgpu",), ("/dev/kfd",)),
    Vendor("intel", "INTEL_VISIBLE_DEVICES", "", "drm", ("i915", "xe")),
    Vendor("habana", "HABANA_VISIBLE_DEVICES", "", "accel", ("habanalabs",)),
)


class Accelerator(NamedTuple):
    """One device.

    Attributes:
        address: PCI address, or the name of its platform device (partitions of one GPU).
        unique_id: `0x…` in lower case, "" if it has none.
    """

    address: str
    nodes: tuple[Node, ...]
    links: tuple[tuple[str, str], ...] = ()
    unique_id: str = ""


def find_accelerators(root: DriverRoot, vendor: Vendor) -> tuple[Accelerator, ...]:
    """Return a vendor's devices: in the order of the KFD topology if there is one, else of PCI."""
    by_device: dict[str, list[str]] = {}
    for name in root.names(f"/sys/class/{vendor.class_}"):
        device = root.resolve(f"/sys/class/{vendor.class_}/{name}/device")
        if device is None or "-" in name:
            continue  # a connector, such as card0-DP-1
        driver = (root.resolve(f"{_inside(root, device)}/driver") or "").rpartition("/")[2]
        partition = device.rpartition("/")[2].startswith("amdgpu_xcp") and vendor.name == "amd"
        if driver in vendor.drivers or partition:
            by_device.setdefault(device, []).append(name)
    topology = _topology(root) if vendor.name == "amd" else {}
    found = []
    for device, names in by_device.items():
        nodes = [node for name in names for node in _nodes(root, vendor, name)]
        address = device.rpartition("/")[2]
        pci = parse_pci_address(address)
        render = [node.minor for node in nodes if "/renderD" in node.path]
        place, unique = topology.get(render[0], (1 << 20, "")) if render else (1 << 20, "")
        links = find_drm_nodes(root, pci)[1] if pci and vendor.class_ == "drm" else ()
        found.append(
            (place, pci or f"~{address}", Accelerator(address, tuple(nodes), links, unique))
        )
    return tuple(accelerator for _, _, accelerator in sorted(found, key=lambda item: item[:2]))


def _inside(root: DriverRoot, host_path: str) -> str:
    return host_path[len(root.root_of("/sys/").rstrip("/")) :]


def _nodes(root: DriverRoot, vendor: Vendor, name: str) -> list[Node]:
    if vendor.class_ == "drm":
        paths = [f"/dev/dri/{name}"]
    else:
        paths = [f"/dev/accel/{name}", f"/dev/accel/{name.replace('accel', 'accel_controlD', 1)}"]
    return [node for path in paths if (node := root.node(path)) is not None]


def _topology(root: DriverRoot) -> dict[int, tuple[int, str]]:
    """Return, by DRM render minor, the position in KFD's topology and the unique id."""
    folder = "/sys/class/kfd/kfd/topology/nodes"
    numbers = sorted(int(name) for name in root.names(folder) if name.isdigit())
    found = {}
    for number in numbers:
        facts = {}
        for line in (root.read(f"{folder}/{number}/properties") or "").splitlines():
            key, _, value = line.partition(" ")
            facts[key] = value.strip()
        minor = facts.get("drm_render_minor", "0")
        if minor.isdigit() and int(minor) > 0:
            unique = facts.get("unique_id", "0")
            text = f"0x{int(unique):x}" if unique.isdigit() and int(unique) else ""
            found[int(minor)] = (number, text)
    return found


def parse_index_list(text: str, variable: str) -> tuple[str, ...] | None:
    """Parse `all`, `none`, or indices, ranges (`0-3`) and unique ids (`0x…`) between commas.

    Returns:
        The items, ranges expanded; None for all.

    Raises:
        UsageError: if an item is malformed.
    """
    items: dict[str, None] = {}
    for word in (part.strip().lower() for part in text.split(",")):
        if word in ("", "none", "void"):
            continue
        if word == "all":
            return None
        first, dash, last = word.partition("-")
        if word.startswith("0x") or (word.isascii() and word.isdigit()):
            items[word] = None
        elif dash and first.isdigit() and last.isdigit() and int(first) <= int(last) < _MAX_INDEX:
            items.update((str(index), None) for index in range(int(first), int(last) + 1))
        else:
            raise UsageError(
                f'gpu: cannot parse "{word}" in {variable}',
                hint="expected all, none, indices, ranges such as 0-3, or unique ids 0x…",
            )
    return tuple(items)


def plan_accelerators(
    launcher: Mapping[str, str], container: Mapping[str, str], root: DriverRoot
) -> Injection:
    """Plan the devices of every vendor whose variable is set; the launcher's environment wins.

    Raises:
        NotFoundError: if an item names no device.
        UsageError: if a list is malformed.
    """
    parts = []
    for vendor in VENDORS:
        own = vendor.variable in launcher
        text = launcher[vendor.variable] if own else container.get(vendor.variable, "")
        if text:
            parts.append(plan_vendor(vendor, text, root, explicit=own))
        elif vendor.fallback and launcher.get(vendor.fallback):
            found = plan_vendor(vendor, "all", root, explicit=False)
            parts.append(found._replace(warnings=()))
    return combine(parts) if parts else NO_INJECTION


def plan_vendor(vendor: Vendor, text: str, root: DriverRoot, *, explicit: bool) -> Injection:
    """Plan the devices of one vendor that a list names."""
    wanted = parse_index_list(text, vendor.variable)
    devices = find_accelerators(root, vendor)
    if not devices:
        message = f"gpu: no {vendor.name} device on this host"
        if explicit and wanted != ():
            raise NotFoundError(message, hint=f"unset {vendor.variable} to run without")
        return Injection(warnings=(message,) if wanted != () else ())
    chosen = devices
    if wanted is not None:
        chosen = tuple(_find(item, devices, vendor) for item in wanted)
    nodes = [
        Device(node.source, node.path, f"{vendor.name} {devices.index(device)}")
        for device in chosen
        for node in device.nodes
    ]
    shared = [node for path in vendor.shared if (node := root.node(path)) is not None]
    nodes += [Device(node.source, node.path, vendor.name) for node in shared if chosen]
    links = [Link(path, target, vendor.name) for device in chosen for path, target in device.links]
    others = [device for device in devices if device not in chosen]
    hidden = [node.path for device in others for node in device.nodes]
    hidden += [path for device in others for path, _ in device.links]
    denied = [n for d in chosen for n in d.nodes if not n.usable] + [
        node for node in shared if chosen and not node.usable
    ]
    return Injection(
        devices=tuple(nodes),
        links=tuple(links),
        hidden=tuple(hidden),
        warnings=tuple(_denied(node) for node in denied),
    )


def _find(item: str, devices: tuple[Accelerator, ...], vendor: Vendor) -> Accelerator:
    if item.startswith("0x"):
        for device in devices:
            if device.unique_id == item:
                return device
    elif int(item) < len(devices):
        return devices[int(item)]
    listed = ", ".join(
        f"{index} {device.address} {device.unique_id}".rstrip()
        for index, device in enumerate(devices)
    )
    raise NotFoundError(f'gpu: unknown device "{item}" in {vendor.variable}; there are: {listed}')


def _denied(node: Node) -> str:
    return (
        f"gpu: {node.path}: permission denied (owner {node.owner}); "
        "membership in the groups video and render usually grants it"
    )
