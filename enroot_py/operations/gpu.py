"""Accelerators of this host: list them, explain what a container would get, write a CDI file."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from enroot_py.errors import NotFoundError
from enroot_py.gpu.cdi.generate import generate_spec
from enroot_py.gpu.cdi.registry import load_registry
from enroot_py.gpu.driver_root import DriverRoot, Node, driver_root
from enroot_py.gpu.drm import VENDORS, Accelerator, find_accelerators, plan_accelerators
from enroot_py.gpu.injection import Injection, combine
from enroot_py.gpu.nvidia.discovery import find_devices
from enroot_py.gpu.nvidia.records import Devices
from enroot_py.gpu.nvidia.requirement import cuda_of_driver
from enroot_py.gpu.planning import plan_request
from enroot_py.gpu.privileges import memory_lock_limit, observe_privileges
from enroot_py.gpu.rdma import RdmaDevice, find_rdma_devices, plan_rdma, visible_list
from enroot_py.gpu.request import GpuOptions, GpuRequest, read_options, read_request
from enroot_py.gpu.rootfs.facts import observe_rootfs
from enroot_py.gpu.rootfs.placement import Placement, place
from enroot_py.gpu.situation import Situation
from enroot_py.settings import Settings, load_settings

_HOOK_PATHS = ("/usr/bin/nvidia-cdi-hook", "/usr/bin/nvidia-ctk", "/usr/local/bin/nvidia-cdi-hook")


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """The accelerators and fabric devices of this host.

    Attributes:
        nvidia: NVIDIA's driver and its devices.
        cuda: the CUDA version that the driver offers, "" if unknown.
        denied: for each NVIDIA GPU that this process may not use, its node and why.
        others: devices of other vendors, by vendor.
        rdma: verbs devices.
        cdi_names: qualified CDI device names.
        cdi_errors: messages about CDI files that cannot be used.
    """

    nvidia: Devices
    cuda: str
    denied: tuple[tuple[str, str], ...]
    others: tuple[tuple[str, tuple[Accelerator, ...]], ...]
    rdma: tuple[RdmaDevice, ...]
    cdi_names: tuple[str, ...]
    cdi_errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What a container would be given.

    Attributes:
        injection: the plan, independent of any root file system.
        placement: where everything goes in one; None if none was named.
        request: what was asked for.
    """

    injection: Injection
    request: GpuRequest
    placement: Placement | None = field(default=None)


def gpu_list(*, settings: Settings | None = None) -> DeviceReport:
    """Look at the host; opens no device."""
    settings = settings or load_settings()
    root = driver_root(settings.environment)
    devices = find_devices(root)
    registry = load_registry(read_options(settings.environment).cdi_folders)
    others = [(vendor.name, find_accelerators(root, vendor)) for vendor in VENDORS]
    return DeviceReport(
        nvidia=devices,
        cuda=cuda_of_driver(devices.version),
        denied=tuple(
            (gpu.node.path, denial_reason(gpu.node))
            for gpu in devices.gpus
            if gpu.node is not None and not gpu.usable
        ),
        others=tuple((name, found) for name, found in others if found),
        rdma=find_rdma_devices(root),
        cdi_names=registry.names(),
        cdi_errors=registry.errors,
    )


def denial_reason(node: Node) -> str:
    """Say why this process may not open a node: its permissions, or else the device cgroup."""
    import grp

    mode = node.mode
    granted = mode & 0o006 == 0o006
    groups = {*os.getgroups(), os.getegid()}
    granted = granted or (node.gid in groups and mode & 0o060 == 0o060)
    if granted:
        return "denied by the device cgroup"
    try:
        name = f' "{grp.getgrgid(node.gid).gr_name}"'
    except KeyError:
        name = ""
    return f"permission denied (owner {node.owner}; you are not in group {node.gid}{name})"


def gpu_plan(
    *,
    gpus: str = "",
    devices: tuple[str, ...] = (),
    environ: tuple[str, ...] = (),
    target: str = "",
    settings: Settings | None = None,
) -> PlanReport:
    """Plan what a start would inject, and change nothing.

    Args:
        gpus: GPUs, as `start --gpus` takes them; all, if nothing asks for any.
        devices: CDI device names.
        environ: `NAME=value` texts of the container's environment.
        target: a container's name or the path of a root file system, to see where things go.

    Raises:
        EnrootError: as the start would.
    """
    settings = settings or load_settings()
    launcher = settings.environment
    container = dict(text.split("=", 1) for text in environ if "=" in text)
    options = read_options(launcher)
    root = driver_root(launcher)
    rootfs = _find_rootfs(target, settings) if target else ""
    request = read_request(launcher, container, options, gpus=gpus, devices=devices)
    if request.devices.nothing and not request.cdi and not gpus:
        request = read_request(launcher, container, options, gpus="all", devices=devices)
    situation = _situation(root, settings, container, rootfs)
    parts = [
        plan_request(request, options, situation),
        plan_accelerators(launcher, container, root),
    ]
    parts.append(_plan_fabric(root, settings, container))
    injection = combine(parts)
    if not rootfs:
        return PlanReport(injection, request)
    facts = observe_rootfs(rootfs, injection, ephemeral=False, writable=settings.rootfs_writable)
    return PlanReport(injection, request, place(injection, facts, container, situation.arch))


def _situation(
    root: DriverRoot,
    settings: Settings,
    container: dict[str, str],
    rootfs: str,
) -> Situation:
    return Situation(
        root=root,
        arch=os.uname().machine,
        launcher=settings.environment,
        container=container,
        privileges=observe_privileges(settings.unshare_ipc),
        rootfs=rootfs,
    )


def _plan_fabric(root: DriverRoot, settings: Settings, container: dict[str, str]) -> Injection:
    text, variable = visible_list(settings.environment, container)
    if not text:
        return Injection()
    return plan_rdma(
        text,
        variable,
        find_rdma_devices(root),
        root,
        real_root=observe_privileges(settings.unshare_ipc).real_root,
        memlock=memory_lock_limit(),
    )


def _find_rootfs(target: str, settings: Settings) -> str:
    path = target if "/" in target else os.path.join(settings.data_path, target)
    if not os.path.isdir(path):
        raise NotFoundError(f"No such container or folder: {target}")
    return os.path.abspath(path)


def cdi_generate(
    *,
    capabilities: str = "all",
    hook: str = "auto",
    settings: Settings | None = None,
) -> dict[str, object]:
    """Return a CDI specification of this host's NVIDIA GPUs, as a document.

    Args:
        capabilities: driver capabilities, as NVIDIA_DRIVER_CAPABILITIES has them.
        hook: path of nvidia-cdi-hook; "none" to do without hooks, "auto" if it is not installed.

    Raises:
        NotFoundError: if there is no driver, or no GPU that this process may use.
        DeviceError: if the driver cannot be used.
    """
    settings = settings or load_settings()
    root = driver_root(settings.environment)
    launcher = {name: settings.environment.get(name, "") for name in ("PATH", "LD_LIBRARY_PATH")}
    container = {"NVIDIA_DRIVER_CAPABILITIES": capabilities, "NVIDIA_DISABLE_REQUIRE": "1"}
    options = GpuOptions()
    request = read_request({}, container, options, gpus="all")
    situation = Situation(root, os.uname().machine, launcher, container)
    injection = plan_request(request, options, situation)
    devices = find_devices(root)
    if not devices.usable_gpus:
        raise NotFoundError("gpu: there is no GPU that this process may use")
    return generate_spec(
        injection,
        devices,
        arch=situation.arch,
        hook=_find_hook(root, hook),
        driver=devices.version,
        library_folder=_library_folder(injection, root, situation.arch),
    )


def _find_hook(root: DriverRoot, hook: str) -> str:
    if hook not in ("auto", "none"):
        return hook
    found = [path for path in _HOOK_PATHS if hook == "auto" and root.exists(path)]
    return found[0] if found else ""


def _library_folder(injection: Injection, root: DriverRoot, arch: str) -> str:
    """Return the folder of the host's libcuda if images search it too, else the triplet's."""
    usual = ("/usr/lib64", f"/usr/lib/{arch}-linux-gnu")
    for library in injection.libraries:
        if library.soname == "libcuda.so.1":
            folder = os.path.dirname(root.inside(library.source))
            if folder in usual:
                return folder
    return usual[1]


def format_cdi(document: dict[str, object], *, as_json: bool = False) -> str:
    """Return a CDI document as text, with a final newline: YAML, or JSON."""
    if as_json:
        import json

        return json.dumps(document, indent=2) + "\n"
    import yaml

    return str(yaml.safe_dump(document, sort_keys=False, default_flow_style=False, width=1000))


def describe_plan(report: PlanReport) -> dict[str, object]:
    """Return a plan as plain data, for JSON: every item with the reason it is there."""

    def plain(value: object) -> object:
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            return {name: plain(item) for name, item in value._asdict().items()}
        if isinstance(value, (tuple, list, frozenset)):
            items = sorted(value) if isinstance(value, frozenset) else value
            return [plain(item) for item in items]
        if isinstance(value, bytes):
            return f"{len(value)} bytes"
        return value

    found: dict[str, object] = {"injection": plain(report.injection)}
    found["request"] = plain(report.request)
    if report.placement is not None:
        found["placement"] = plain(report.placement)
    return found
