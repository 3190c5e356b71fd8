"""The plan of an NVIDIA injection: devices found, files found and request to `Injection`. Pure.

Nothing here looks at the machine or at the container: `enroot gpu plan` prints the very result that
a start carries out.
"""

from __future__ import annotations

from enroot_py.errors import DeviceError, NotFoundError, UsageError
from enroot_py.gpu.driver_root import Node
from enroot_py.gpu.injection import (
    FOLDER_OPTIONS,
    LIBCUDA_VARIABLE,
    OWN_FOLDER,
    SOCKET_OPTIONS,
    Bind,
    Device,
    Injection,
    Library,
    Link,
    Program,
    Text,
)
from enroot_py.gpu.nvidia.catalogue import capability_of, library_capabilities
from enroot_py.gpu.nvidia.records import Devices, DriverFiles, DriverLibrary, Gpu
from enroot_py.gpu.nvidia.selection import Selection
from enroot_py.gpu.request import GpuRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

_UVM = ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_EXTRA_NAMES = {
    "libcuda": ("libcuda.so",),
    "libnvidia-opticalflow": ("libnvidia-opticalflow.so",),
    "libnvidia-vulkan-producer": ("libnvidia-vulkan-producer.so",),
    "libGLX_nvidia": ("libGLX_indirect.so.0",),
}
"""Names that programs look for and that no SONAME has."""

_PROFILE = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf"


class Privileges(NamedTuple):
    """What the launcher may do.

    Attributes:
        real_root: it is the machine's root, in no user namespace.
        shared_ipc: the container keeps the host's IPC namespace.
    """

    real_root: bool = False
    shared_ipc: bool = True


def check_driver(devices: Devices, files: DriverFiles, request: GpuRequest) -> None:
    """Check that there is a driver, and that its halves belong together.

    Raises:
        NotFoundError: there is no driver on this host.
        DeviceError: kernel module and libraries have different versions, or the libraries are on a
            file system that forbids execution.
    """
    if devices.other_platform and not files.libraries:
        raise DeviceError(
            f"gpu: {devices.other_platform.upper()} drivers are not supported natively",
            hint="generate a CDI specification and use --device nvidia.com/gpu=all",
        )
    if not devices.found_in and not files.libraries:
        raise NotFoundError(
            "gpu: no NVIDIA driver on this host (no /proc/driver/nvidia/version, no "
            "/sys/module/nvidia, no libraries)",
            hint="to run without GPUs: NVIDIA_VISIBLE_DEVICES=void, or void as the value of --gpus "
            "or --container-gpus",
        )
    if files.other_versions and not files.libraries:
        listed = ", ".join(f"{version} ({folder})" for version, folder in files.other_versions)
        raise DeviceError(
            f"gpu: driver/library mismatch: kernel module {devices.version}, but the libraries "
            f"found are {listed}",
            hint="reboot or reload the module",
        )
    if files.noexec:
        raise DeviceError(
            f"gpu: cannot use {files.noexec}: its file system is mounted noexec",
            hint="remount it with exec, or set ENROOT_GPU_LIBRARY_PATHS to another folder",
        )
    if request.capabilities and not files.libraries:
        raise NotFoundError(
            f"gpu: none of the NVIDIA driver's libraries was found (driver {devices.version})",
            hint="set ENROOT_GPU_LIBRARY_PATHS to the folders that hold them",
        )


def plan_nvidia(
    request: GpuRequest,
    devices: Devices,
    files: DriverFiles,
    selection: Selection,
    privileges: Privileges,
) -> Injection:
    """Return what to inject for a request whose device list is not empty.

    Raises:
        UsageError: if the request contradicts itself.
        DeviceError: if it asks for what this launcher may not have.
    """
    libraries = tuple(_library(library, request) for library in files.libraries)
    nodes = [*_control_nodes(request, devices), *_gpu_nodes(request, selection)]
    nodes += _mig_admin_nodes(request, devices, selection, privileges)
    links = _device_links(request, selection)
    if "graphics" in library_capabilities(request.capabilities):
        links += _gbm_link(files.libraries)
    cuda = any(library.name == "libcuda" for library in files.libraries)
    texts: tuple[Text, ...] = ()
    if "graphics" in library_capabilities(request.capabilities) and selection.gpus:
        texts = (application_profile([gpu.minor for gpu in selection.gpus]),)
    positions = [i for i, gpu in enumerate(devices.usable_gpus) if gpu in selection.gpus]
    return Injection(
        devices=tuple({node.target: node for node in nodes}.values()),
        libraries=libraries,
        programs=tuple(Program(f.source, f.path, "driver program") for f in files.programs),
        binds=tuple(_binds(request, files, privileges)),
        links=links,
        texts=texts,
        hidden=hidden_nodes(devices, selection),
        environ=((LIBCUDA_VARIABLE, f"{OWN_FOLDER}/lib64"),) if cuda else (),
        proc_gpus=tuple(gpu.pci for gpu in selection.gpus if gpu.pci),
        visible_gpus=None if selection.everything else tuple(positions),
        warnings=selection.warnings + _warnings(request, devices, files, privileges),
        notes=(files.note,) if files.note else (),
    )


def hidden_nodes(devices: Devices, selection: Selection) -> tuple[str, ...]:
    """Return the nodes of the GPUs and MIG devices that were not selected."""
    if selection.everything:
        return ()
    kept = {node.path for gpu in selection.gpus for node in _nodes_of(gpu)}
    kept |= {node.path for _, mig in selection.mig for node in mig.nodes}
    # A GPU asked for as a whole keeps its MIG devices.
    narrowed = {gpu.minor for gpu, _ in selection.mig}
    hidden = []
    for gpu in devices.gpus:
        hidden += [node.path for node in _nodes_of(gpu)]
        for mig in gpu.mig_devices:
            if gpu not in selection.gpus or gpu.minor in narrowed:
                hidden += [node.path for node in mig.nodes]
        if gpu not in selection.gpus:
            hidden += [path for path, _ in gpu.drm_links]
    return tuple(path for path in dict.fromkeys(hidden) if path not in kept)


def _nodes_of(gpu: Gpu) -> tuple[Node, ...]:
    own = (gpu.node,) if gpu.node is not None else ()
    return own + gpu.drm


def _library(library: DriverLibrary, request: GpuRequest) -> Library:
    names = [library.file] if library.file != library.soname else []
    names += _EXTRA_NAMES.get(library.name, ())
    reason = capability_of(library.name, request.capabilities)
    return Library(
        library.source, library.soname, reason, tuple(names), library.bits, library.folder
    )


def _device(node: Node, reason: str, *, required: bool = True) -> Device:
    return Device(node.source, node.path, reason, required)


def _control_nodes(request: GpuRequest, devices: Devices) -> list[Device]:
    """Return the nodes that belong to no GPU; with no GPU selected they may be missing."""
    capabilities = library_capabilities(request.capabilities)
    wanted = {"/dev/nvidiactl": "driver"}
    if "compute" in capabilities:
        wanted.update((path, "compute") for path in _UVM)
    if "compute" in capabilities or "gdrcopy" in request.gates:
        wanted["/dev/gdrdrv"] = "GPUDirect copies"
    if "graphics" in capabilities:
        wanted["/dev/nvidia-modeset"] = "graphics"
    found = []
    for node in devices.control:
        if node.path in wanted:
            found.append(_device(node, wanted[node.path], required=False))
        elif node.path.startswith("/dev/nvidia-fs") and "gds" in request.gates:
            found.append(_device(node, "NVIDIA_GDS"))
        elif node.path.startswith("/dev/nvidia-nvswitch") and "nvswitch" in request.gates:
            found.append(_device(node, "NVIDIA_NVSWITCH"))
    if "compute" in capabilities:
        for number, node in devices.imex_channels:
            if request.imex is None or number in request.imex:
                found.append(_device(node, "IMEX channel", required=request.imex is not None))
    return found


def _gpu_nodes(request: GpuRequest, selection: Selection) -> list[Device]:
    graphics = "graphics" in library_capabilities(request.capabilities)
    found = []
    for gpu in selection.gpus:
        name = f"GPU {gpu.number}" if gpu.number >= 0 else f"GPU {gpu.pci}"
        if gpu.node is not None:
            found.append(_device(gpu.node, name))
        if graphics:
            found += [_device(node, f"{name}, graphics", required=False) for node in gpu.drm]
    for gpu, mig in selection.mig:
        name = f"MIG {gpu.number}:{gpu.mig_devices.index(mig)}"
        found += [_device(node, name) for node in mig.nodes]
    return found


def _mig_admin_nodes(
    request: GpuRequest, devices: Devices, selection: Selection, privileges: Privileges
) -> list[Device]:
    found = []
    for asked, name, node in (
        (request.mig_config, "NVIDIA_MIG_CONFIG_DEVICES", devices.mig_config),
        (request.mig_monitor, "NVIDIA_MIG_MONITOR_DEVICES", devices.mig_monitor),
    ):
        if not asked:
            continue
        if not privileges.real_root and not request.mig_explicit:
            continue  # _warnings() says so
        if not privileges.real_root:
            raise DeviceError(
                f"gpu: {name} needs the real root user", hint="a user namespace is not enough"
            )
        if name.endswith("CONFIG_DEVICES") and selection.mig and not selection.everything:
            raise UsageError(
                f"gpu: {name}=all together with single MIG devices",
                hint="configuring MIG removes the devices that were asked for",
            )
        if node is not None:
            found.append(_device(node, name))
    return found


def _device_links(request: GpuRequest, selection: Selection) -> tuple[Link, ...]:
    if "graphics" not in library_capabilities(request.capabilities):
        return ()
    return tuple(
        Link(path, target, f"GPU {gpu.number}, graphics")
        for gpu in selection.gpus
        for path, target in gpu.drm_links
    )


def _gbm_link(libraries: tuple[DriverLibrary, ...]) -> tuple[Link, ...]:
    """Return the name by which libgbm finds the driver: `lib:` stands for the library folder."""
    if any(library.name == "libnvidia-allocator" and library.bits == 64 for library in libraries):
        return (Link("lib:gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1", "graphics"),)
    return ()


def _binds(request: GpuRequest, files: DriverFiles, privileges: Privileges) -> list[Bind]:
    binds = [Bind(f.source, f.path, "configuration") for f in files.configs]
    binds += [Bind(f.source, f.path, "firmware") for f in files.firmware]
    binds += [
        Bind(f.source, f.path, "daemon socket", "socket", SOCKET_OPTIONS) for f in files.sockets
    ]
    if files.gds:
        binds += [Bind(f.source, f.path, "NVIDIA_GDS", f.kind) for f in files.gds]
    if files.mps and privileges.shared_ipc:
        binds.append(Bind(files.mps, files.mps, "MPS", "folder", FOLDER_OPTIONS))
    return binds


def application_profile(minors: Iterable[int]) -> Text:
    """Return the profile that limits EGL to the GPUs with these minors, by a bit mask."""
    mask = sum(1 << minor for minor in minors if minor < 64)
    content = (
        '{"profiles": [{"name": "_container_", "settings": '
        f'["EGLVisibleDGPUDevices", 0x{mask:x}]}}], '
        '"rules": [{"pattern": [], "profile": "_container_"}]}\n'
    )
    return Text(_PROFILE, content, "graphics")


def _warnings(
    request: GpuRequest, devices: Devices, files: DriverFiles, privileges: Privileges
) -> tuple[str, ...]:
    warnings = []
    capabilities = library_capabilities(request.capabilities)
    if "compute" in capabilities and devices.control_node("/dev/nvidia-uvm") is None:
        warnings.append(
            "gpu: kernel module nvidia_uvm is not loaded; CUDA will not start. "
            "Administrator: nvidia-modprobe -u -c 0"
        )
    if "compute" not in capabilities and request.capabilities:
        warnings.append(
            'gpu: capability "compute" is not enabled '
            f"(NVIDIA_DRIVER_CAPABILITIES={request.capabilities_text}): CUDA programs will not "
            "find libcuda"
        )
    if files.mps and not privileges.shared_ipc:
        warnings.append("gpu: MPS needs the host's IPC namespace; its pipe folder is left out")
    if (request.mig_config or request.mig_monitor) and not privileges.real_root:
        warnings.append("gpu: only the real root user may administer MIG; left out")
    return tuple(warnings)
