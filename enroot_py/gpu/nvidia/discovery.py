"""Find an NVIDIA driver's devices in procfs, sysfs and /dev: no NVML, no program, no node opened.

The number of a GPU is its position in PCI order among the GPUs that this process may use, as NVML
counts them inside a device cgroup; that is why a job that was given GPUs 4 and 5 calls them 0 and
1.
"""

from __future__ import annotations

from enroot_py.gpu.driver_root import DriverRoot, Node
from enroot_py.gpu.nvidia.mig import find_capability_nodes, find_mig_devices
from enroot_py.gpu.nvidia.records import Devices, Gpu

CONTROL_NODES = (
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
    "/dev/gdrdrv",
    "/dev/nvidia-nvswitchctl",
)
"""Nodes that belong to no GPU; numbered ones (NVSwitch, GDS) are found by their prefix."""

_NUMBERED = ("nvidia-nvswitch", "nvidia-fs")
_PROC = "/proc/driver/nvidia"
_DEFAULT_MAJOR = 195


def find_devices(root: DriverRoot) -> Devices:
    """Find the driver, its GPUs and its nodes. Reads only what lies beneath `root`."""
    version, found_in = _driver_version(root)
    names = root.names("/dev/")
    majors = _majors(root)
    gpus = _gpus_of_procfs(root, majors)
    if gpus is None:
        gpus = _gpus_of_dev(root, names, majors)
    paths = [path for path in CONTROL_NODES if path[5:] in names]
    paths += [
        f"/dev/{name}"
        for name in names
        if name.startswith(_NUMBERED) and f"/dev/{name}" not in CONTROL_NODES
    ]
    found = [root.node(path) for path in paths]
    control = [node for node in found if node is not None and node.is_device]
    config, monitor = find_capability_nodes(root)
    if not found_in and (gpus or any(node.path == "/dev/nvidiactl" for node in control)):
        found_in = "/dev"
    return Devices(
        version=version,
        found_in=found_in,
        gpus=_numbered(gpus),
        control=tuple(control),
        mig_config=config,
        mig_monitor=monitor,
        imex_channels=_imex_channels(root),
        other_platform=_other_platform(root, names),
    )


def parse_driver_version(text: str) -> str:
    """Return the version that `/proc/driver/nvidia/version` states, "" if it states none.

    Both wordings are known: `Kernel Module  580.95.05` and `Open Kernel Module for x86_64
    580.95.05`.
    """
    _, found, rest = text.partition("Kernel Module")
    if not found:
        return ""
    for word in rest.split():
        if is_version(word):
            return word
    return ""


def is_version(text: str) -> bool:
    """Tell whether `text` is a dotted number of at least two parts."""
    parts = text.split(".")
    return len(parts) > 1 and all(part.isascii() and part.isdigit() for part in parts)


def parse_pci_address(text: str) -> str:
    """Return `[domain:]bus:device.function` in one form, `0000:1b:00.0`; "" if it is none."""
    place, dot, function = text.partition(".")
    parts = place.split(":")
    if not dot or not 2 <= len(parts) <= 3:
        return ""
    try:
        numbers = [int(part, 16) for part in (*parts, function) if part.isalnum()]
    except ValueError:
        return ""
    if len(numbers) != len(parts) + 1:
        return ""
    if len(parts) == 2:
        numbers.insert(0, 0)
    domain, bus, device, last = numbers
    if domain > 0xFFFFFFFF or bus > 0xFF or device > 0x1F or last > 7:
        return ""
    return f"{domain:04x}:{bus:02x}:{device:02x}.{last:x}"


def _driver_version(root: DriverRoot) -> tuple[str, str]:
    text = root.read(f"{_PROC}/version")
    if text is not None:
        return parse_driver_version(text), f"{_PROC}/version"
    text = root.read("/sys/module/nvidia/version")
    if text is not None and is_version(text.strip()):
        return text.strip(), "/sys/module/nvidia/version"
    return "", ""


def _majors(root: DriverRoot) -> dict[str, int]:
    """Return the character majors of /proc/devices by name; they differ between boots."""
    majors: dict[str, int] = {}
    for line in (root.read("/proc/devices") or "").splitlines():
        if line.startswith("Block"):
            break
        number, _, name = line.strip().partition(" ")
        if number.isdigit() and name:
            majors[name.strip()] = int(number)
    return majors


def _gpus_of_procfs(root: DriverRoot, majors: dict[str, int]) -> list[Gpu] | None:
    folder = f"{_PROC}/gpus"
    if not root.exists(folder):
        return None
    gpus = []
    for name in root.names(folder):
        text = root.read(f"{folder}/{name}/information")
        if text is None:
            continue
        facts = _parse_information(text)
        minor = facts.get("Device Minor", "")
        if facts.get("GPU Excluded", "").lower() == "yes" or not minor.isdigit():
            continue
        pci = parse_pci_address(facts.get("Bus Location", "")) or parse_pci_address(name)
        uuid, model = facts.get("GPU UUID", ""), facts.get("Model", "")
        gpu = Gpu(-1, int(minor), pci=pci, uuid=uuid, model=model)
        if (node := _gpu_node(root, gpu.minor, majors)) is not None:
            drm, links = find_drm_nodes(root, pci)
            mig = find_mig_devices(root, gpu.minor)
            gpus.append(gpu._replace(node=node, drm=drm, drm_links=links, mig_devices=mig))
    return sorted(gpus, key=lambda gpu: _pci_key(gpu.pci))


def _gpus_of_dev(root: DriverRoot, names: list[str], majors: dict[str, int]) -> list[Gpu]:
    """Without procfs (gVisor, some sandboxes) the nodes are all there is to go by."""
    minors = sorted(int(name[6:]) for name in names if name[:6] == "nvidia" and name[6:].isdigit())
    gpus = []
    for minor in minors:
        node = _gpu_node(root, minor, majors)
        if node is not None:
            gpus.append(Gpu(-1, minor, node=node, mig_devices=find_mig_devices(root, minor)))
    return gpus


def _gpu_node(root: DriverRoot, minor: int, majors: dict[str, int]) -> Node | None:
    """Return the GPU's node; None if it is absent or is some other device under that name."""
    node = root.node(f"/dev/nvidia{minor}")
    known = (majors.get("nvidia"), majors.get("nvidia-frontend"), _DEFAULT_MAJOR)
    if node is None or node.major not in known or node.minor != minor:
        return None
    return node


def find_drm_nodes(
    root: DriverRoot, pci: str
) -> tuple[tuple[Node, ...], tuple[tuple[str, str], ...]]:
    """Return the DRM nodes of a PCI function, and (path, text) of its links in by-path."""
    nodes = []
    for name in root.names(f"/sys/bus/pci/devices/{pci}/drm") if pci else []:
        if name.startswith(("card", "renderD")):
            node = root.node(f"/dev/dri/{name}")
            if node is not None:
                nodes.append(node)
    links = []
    for node in nodes:
        kind = "card" if node.path.startswith("/dev/dri/card") else "render"
        link = f"/dev/dri/by-path/pci-{pci}-{kind}"
        if root.exists(link):
            links.append((link, "../" + node.path.rpartition("/")[2]))
    return tuple(nodes), tuple(links)


def _parse_information(text: str) -> dict[str, str]:
    facts = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            facts[key.strip()] = value.strip()
    return facts


def _pci_key(pci: str) -> tuple[int, ...]:
    if not pci:
        return (1 << 33,)
    return tuple(int(part, 16) for part in pci.replace(".", ":").split(":"))


def _numbered(gpus: list[Gpu]) -> tuple[Gpu, ...]:
    numbered = []
    index = 0
    for gpu in gpus:
        if gpu.usable:
            numbered.append(gpu._replace(number=index))
            index += 1
        else:
            numbered.append(gpu)
    return tuple(numbered)


def _imex_channels(root: DriverRoot) -> tuple[tuple[int, Node], ...]:
    folder = "/dev/nvidia-caps-imex-channels"
    channels = []
    for name in root.names(folder):
        number = name[len("channel") :]
        if name.startswith("channel") and number.isdigit():
            node = root.node(f"{folder}/{name}")
            if node is not None and node.is_device:
                channels.append((int(number), node))
    return tuple(sorted(channels))


def _other_platform(root: DriverRoot, names: list[str]) -> str:
    if "dxg" in names:
        return "wsl"
    if root.exists("/etc/nv_tegra_release") or root.exists("/sys/devices/platform/tegra-soc"):
        return "tegra"
    folder = "/etc/nvidia-container-runtime/host-files-for-container.d"
    if any(name.endswith(".csv") for name in root.names(folder)):
        return "tegra"
    return ""
