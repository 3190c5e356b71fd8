"""What discovery finds of an NVIDIA driver, as immutable records. Pure."""

from __future__ import annotations

from enroot_py.gpu.driver_root import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple


class Mig(NamedTuple):
    """A MIG device: one compute instance of one GPU instance.

    Attributes:
        gpu_instance, compute_instance: their numbers.
        nodes: the two capability nodes that grant access to them.
        uuid: "" unless NVML was asked.
    """

    gpu_instance: int
    compute_instance: int
    nodes: tuple[Node, ...] = ()
    uuid: str = ""


class Gpu(NamedTuple):
    """One GPU.

    Attributes:
        number: position among the GPUs that this process may use, in PCI order; -1 if it may not.
        minor: number of its device node.
        pci: PCI address, `0000:1b:00.0`; "" if unknown.
        uuid: `GPU-…`; "" if unknown. One with question marks belongs to a GPU that was never used
            since boot.
        model: as the driver names it.
        node: its device node, None if there is none.
        drm: its DRM nodes.
        drm_links: paths of its links beneath /dev/dri/by-path, and what they say.
        mig_devices: its MIG devices in ascending order.
    """

    number: int
    minor: int
    pci: str = ""
    uuid: str = ""
    model: str = ""
    node: Node | None = None
    drm: tuple[Node, ...] = ()
    drm_links: tuple[tuple[str, str], ...] = ()
    mig_devices: tuple[Mig, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether this process may open its node."""
        return self.node is not None and self.node.usable


class Devices(NamedTuple):
    """The device side of a driver root.

    Attributes:
        version: the kernel driver's version, "" if unknown.
        found_in: where the version, or the driver, was found, for messages; "" is no driver.
        gpus: every GPU that has a node, in PCI order.
        control: nodes that belong to no GPU, by path.
        mig_config, mig_monitor: nodes of the MIG administration capabilities.
        imex_channels: nodes of the IMEX channels, by number.
        other_platform: "wsl" or "tegra" where the driver is one of another kind.
    """

    version: str = ""
    found_in: str = ""
    gpus: tuple[Gpu, ...] = ()
    control: tuple[Node, ...] = ()
    mig_config: Node | None = None
    mig_monitor: Node | None = None
    imex_channels: tuple[tuple[int, Node], ...] = ()
    other_platform: str = ""

    @property
    def usable_gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that this process may use, by number."""
        return tuple(gpu for gpu in self.gpus if gpu.number >= 0)

    def control_node(self, path: str) -> Node | None:
        """Return the control node at `path`, None if it is absent."""
        for node in self.control:
            if node.path == path:
                return node
        return None


class DriverLibrary(NamedTuple):
    """A shared object of the driver.

    Attributes:
        name: base name up to `.so`, e.g. `libcuda`.
        source: absolute host path, links resolved.
        file: name of the file.
        soname: the SONAME, or the file's name where it has none.
        bits: 32 or 64.
        folder: folder below the library folder it belongs in (`vdpau`), usually "".
    """

    name: str
    source: str
    file: str
    soname: str
    bits: int = 64
    folder: str = ""


class DriverFile(NamedTuple):
    """Another file of the driver: its absolute host path and its path in the container."""

    source: str
    path: str
    kind: str = "file"


class DriverFiles(NamedTuple):
    """The file side of a driver root, as far as the capabilities asked for need it.

    Attributes:
        version: version that the libraries carry.
        other_versions: versions of libraries that were passed over, and the folders they are in.
        noexec: a library whose file system is mounted noexec, with the reason; "" if none.
        note: why the loader's cache was not used; "" if it was.
        libraries, programs, configs, firmware, sockets, mps: what was found.
        gds: files that GPUDirect Storage needs beside its nodes.
    """

    version: str = ""
    other_versions: tuple[tuple[str, str], ...] = ()
    noexec: str = ""
    note: str = ""
    libraries: tuple[DriverLibrary, ...] = ()
    programs: tuple[DriverFile, ...] = ()
    configs: tuple[DriverFile, ...] = ()
    firmware: tuple[DriverFile, ...] = ()
    sockets: tuple[DriverFile, ...] = ()
    mps: str = ""
    gds: tuple[DriverFile, ...] = ()
