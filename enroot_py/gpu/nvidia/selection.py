"""Which GPUs a device list names. Pure.

Grammar of the list, as NVIDIA_VISIBLE_DEVICES has it: comma-separated; blanks, empty items and
duplicates do not count; keywords in any case.
"""

from __future__ import annotations

from enroot_py.errors import NotFoundError, UsageError
from enroot_py.gpu.nvidia.discovery import parse_pci_address
from enroot_py.gpu.nvidia.records import Devices, Gpu, Mig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

UUID_LENGTH = len("GPU-00000000-0000-0000-0000-000000000000")


class DeviceList(NamedTuple):
    """A parsed device list.

    Attributes:
        nothing: no injection at all: unset, empty, or `void` anywhere.
        everything: `all` was named.
        items: the other items, in order, without duplicates; none for `none`.
        cdi: qualified CDI device names among the items.
    """

    nothing: bool = False
    everything: bool = False
    items: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()


class Selection(NamedTuple):
    """The devices chosen.

    Attributes:
        gpus: GPUs whose node is injected, in PCI order.
        mig: pairs of GPU and MIG device, in the order asked for.
        everything: whether nothing has to be hidden.
        warnings: what the user should know.
    """

    gpus: tuple[Gpu, ...] = ()
    mig: tuple[tuple[Gpu, Mig], ...] = ()
    everything: bool = False
    warnings: tuple[str, ...] = ()


def parse_device_list(text: str) -> DeviceList:
    """Parse a device list; whether its items exist is decided by `select_devices`."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    keywords = {word.lower() for word in words}
    if not words or "void" in keywords:
        return DeviceList(nothing=True)
    items: list[str] = []
    cdi: list[str] = []
    everything = False
    for word in words:
        if "=" in word and "/" in word.partition("=")[0]:
            cdi.append(word)
        elif word.lower() == "all":
            everything = True
            break
        elif word.lower() != "none" and word not in items:
            items.append(word)
    return DeviceList(False, everything, tuple(items), tuple(dict.fromkeys(cdi)))


def select_devices(
    wanted: DeviceList,
    devices: Devices,
    *,
    origin: str,
    mig_by_uuid: Callable[[str], tuple[str, int, int]] | None = None,
) -> Selection:
    """Find the devices that the list names.

    `all` takes every node that exists, also one that this very process may not open: the other
    tasks of a Slurm step share the container, and each may open other ones.

    Args:
        origin: what the list came from, for messages.
        mig_by_uuid: asks NVML for (GPU UUID, GPU instance, compute instance) of a MIG UUID.

    Raises:
        NotFoundError: if an item names no device that this process may use.
        UsageError: if an item is malformed.
    """
    if wanted.everything:
        pairs = tuple((gpu, mig) for gpu in devices.gpus for mig in gpu.mig_devices)
        return Selection(devices.gpus, pairs, everything=True)
    found = [_find(item, devices, origin, mig_by_uuid) for item in wanted.items]
    pairs = tuple(dict.fromkeys((gpu, mig) for gpu, mig in found if mig is not None))
    chosen = tuple(gpu for gpu in devices.gpus if any(gpu == one for one, _ in found))
    partly = {gpu for gpu, _ in pairs}
    warnings = tuple(
        f"gpu: GPU {gpu.number} is in MIG mode and none of its MIG devices was asked for; CUDA "
        "will find no device on it"
        for gpu in chosen
        if gpu.mig_devices and gpu not in partly
    )
    slices = sum(len(gpu.mig_devices) for gpu in devices.gpus)
    complete = len(chosen) == len(devices.gpus) and len(pairs) == slices
    return Selection(chosen, pairs, complete, warnings)


def _find(
    item: str,
    devices: Devices,
    origin: str,
    mig_by_uuid: Callable[[str], tuple[str, int, int]] | None,
) -> tuple[Gpu, Mig | None]:
    upper = item.upper()
    if upper.startswith("MIG-"):
        return _find_mig_by_name(item, devices, origin, mig_by_uuid)
    if upper.startswith("GPU-"):
        return _by_uuid(item, devices, item, origin), None
    if item.startswith("host:") and item[5:].isdigit():
        return _by_host_index(int(item[5:]), devices, item, origin), None
    if item.isascii() and item.isdigit():
        return _by_index(int(item), devices, item, origin), None
    gpu_index, colon, mig_index = item.partition(":")
    if colon and gpu_index.isdigit() and mig_index.isdigit() and item.isascii():
        gpu = _by_index(int(gpu_index), devices, item, origin)
        if int(mig_index) >= len(gpu.mig_devices):
            raise _unknown(item, devices, origin)
        return gpu, gpu.mig_devices[int(mig_index)]
    address = parse_pci_address(item)
    if not address:
        raise UsageError(
            f'gpu: cannot parse "{item}" in {origin}',
            hint="expected all, none, an index, a GPU or MIG UUID, a PCI address or GPU:MIG index",
        )
    for gpu in devices.usable_gpus:
        if gpu.pci == address:
            return gpu, None
    raise _unknown(item, devices, origin)


def _by_index(index: int, devices: Devices, item: str, origin: str) -> Gpu:
    usable = devices.usable_gpus
    if index >= len(usable):
        raise _unknown(item, devices, origin)
    return usable[index]


def _by_host_index(index: int, devices: Devices, item: str, origin: str) -> Gpu:
    """Find a GPU by its position among all of the host's, as Slurm numbers them (`host:N`)."""
    if index >= len(devices.gpus) or devices.gpus[index].number < 0:
        raise _unknown(item, devices, origin)
    return devices.gpus[index]


def _by_uuid(uuid: str, devices: Devices, item: str, origin: str) -> Gpu:
    for gpu in devices.usable_gpus:
        if gpu.uuid.lower() == uuid.lower():
            return gpu
    raise _unknown(item, devices, origin)


def _find_mig_by_name(
    item: str,
    devices: Devices,
    origin: str,
    mig_by_uuid: Callable[[str], tuple[str, int, int]] | None,
) -> tuple[Gpu, Mig]:
    """Find `MIG-GPU-<uuid>/G/C`, `MIG-<uuid of the GPU>/G/C`, or a MIG UUID through NVML."""
    name, *numbers = item[4:].split("/")
    if len(numbers) == 2 and all(number.isascii() and number.isdigit() for number in numbers):
        uuid = name if name.upper().startswith("GPU-") else "GPU-" + name
        instance, compute = int(numbers[0]), int(numbers[1])
    elif not numbers and mig_by_uuid is not None:
        uuid, instance, compute = mig_by_uuid(item)
    else:
        raise UsageError(
            f'gpu: cannot parse "{item}" in {origin}',
            hint="expected MIG-UUID, MIG-GPU-UUID/GI/CI, or GPU:MIG index",
        )
    gpu = _by_uuid(uuid, devices, item, origin)
    for mig in gpu.mig_devices:
        if (mig.gpu_instance, mig.compute_instance) == (instance, compute):
            return gpu, mig
    raise _unknown(item, devices, origin)


def _unknown(item: str, devices: Devices, origin: str) -> NotFoundError:
    usable = devices.usable_gpus
    listed = "; ".join(describe_gpu(gpu) for gpu in usable) or "none"
    denied = [gpu.node.path for gpu in devices.gpus if gpu.number < 0 and gpu.node is not None]
    message = (
        f'gpu: unknown device "{item}" in {origin}; this process may use {len(usable)} '
        f"GPU{'s' if len(usable) != 1 else ''}: {listed}"
    )
    if denied:
        message += f"; present but denied to this process: {', '.join(denied)}"
    return NotFoundError(message, hint="`enroot gpu list` shows every device and why it is denied")


def describe_gpu(gpu: Gpu) -> str:
    """Return `0 GPU-… 0000:1b:00.0` and its number of MIG devices, for messages."""
    parts = [str(gpu.number), gpu.uuid or f"/dev/nvidia{gpu.minor}", gpu.pci]
    if gpu.mig_devices:
        parts.append(f"({len(gpu.mig_devices)} MIG devices)")
    return " ".join(part for part in parts if part)
