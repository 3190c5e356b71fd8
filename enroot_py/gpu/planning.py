"""The story of GPU planning: request → devices → files → checks → `Injection`.

Reads the driver root; changes nothing. What is found is handed to pure functions, which decide.
"""

from __future__ import annotations

from enroot_py.errors import NotFoundError
from enroot_py.gpu.injection import Injection, combine
from enroot_py.gpu.nvidia.compat import decide_compat, find_compat
from enroot_py.gpu.nvidia.discovery import find_devices
from enroot_py.gpu.nvidia.files import find_files
from enroot_py.gpu.nvidia.plan import check_driver, plan_nvidia
from enroot_py.gpu.nvidia.records import Devices, DriverFiles
from enroot_py.gpu.nvidia.requirement import (
    GpuFacts,
    brand_of_model,
    check_requirement,
    cuda_of_driver,
    parse_requirement,
    unsatisfied_error,
)
from enroot_py.gpu.nvidia.selection import Selection, select_devices
from enroot_py.gpu.request import GpuOptions, GpuRequest
from enroot_py.gpu.situation import Situation
from enroot_py.gpu.slurm import task_binding_warning


def plan_request(request: GpuRequest, options: GpuOptions, situation: Situation) -> Injection:
    """Plan everything that a request asks for.

    Raises:
        DeviceError, NotFoundError, UsageError: if it cannot be had.
    """
    parts = [Injection(warnings=request.warnings)]
    cdi = request.cdi
    native = not request.devices.nothing
    if native and options.prefer_cdi and (names := _as_cdi_names(request, options)):
        cdi, native = names + cdi, False
    if native:
        parts.append(_plan_native(request, options, situation))
    if native and "mofed" in request.gates:
        parts.append(_plan_fabric(situation))
    if cdi:
        from enroot_py.gpu.cdi.planning import plan_cdi

        parts.append(plan_cdi(cdi, options, situation))
    return combine(parts)


def _as_cdi_names(request: GpuRequest, options: GpuOptions) -> tuple[str, ...]:
    from enroot_py.gpu.cdi.planning import native_list_as_cdi

    return native_list_as_cdi(request.devices, options)


def _plan_native(request: GpuRequest, options: GpuOptions, situation: Situation) -> Injection:
    devices = find_devices(situation.root)
    files = find_files(
        situation.root,
        version=devices.version,
        capabilities=request.capabilities,
        arch=situation.arch,
        environ=situation.launcher,
        gates=request.gates,
    )
    try:
        check_driver(devices, files, request)
    except NotFoundError as error:
        if request.explicit:
            raise
        # Images ask for all GPUs by default; on a node without any that must not stop them.
        return Injection(warnings=(f"{error}; starting without GPUs",))
    devices = devices._replace(version=devices.version or files.version)
    selection = _select(request, devices, files)
    warnings = check_requirements(request, devices, files, selection)
    by_number = any(item.isdigit() for item in request.devices.items)
    warnings += task_binding_warning(situation.launcher, by_index=by_number)
    injection = plan_nvidia(request, devices, files, selection, situation.privileges)
    injection = injection._replace(
        warnings=injection.warnings + warnings + _denied(devices, request),
        proc=options.proc if options.proc in ("params", "full") else _proc(options, situation),
    )
    return apply_compat(injection, situation, options, devices, selection)


def _plan_fabric(situation: Situation) -> Injection:
    """NVIDIA_MOFED brings the Mellanox devices along, all of them."""
    from enroot_py.gpu.privileges import memory_lock_limit
    from enroot_py.gpu.rdma import find_rdma_devices, plan_rdma

    return plan_rdma(
        "all",
        "MELLANOX_VISIBLE_DEVICES",
        find_rdma_devices(situation.root),
        situation.root,
        real_root=situation.privileges.real_root,
        memlock=memory_lock_limit(),
    )


def _proc(options: GpuOptions, situation: Situation) -> str:
    """In a user namespace nobody can make nodes, so there is nothing to protect, and a mount below
    /proc would forbid nested containers a procfs of their own (ADR 43)."""
    return "params" if not options.proc and situation.privileges.real_root else ""


def _select(request: GpuRequest, devices: Devices, files: DriverFiles) -> Selection:
    def ask_nvml(uuid: str) -> tuple[str, int, int]:
        from enroot_py.gpu.nvidia.nvml import mig_by_uuid

        return mig_by_uuid(_library_path(files, "libnvidia-ml"), uuid)

    return select_devices(request.devices, devices, origin=request.origin, mig_by_uuid=ask_nvml)


def _library_path(files: DriverFiles, name: str) -> str:
    for library in files.libraries:
        if library.name == name and library.bits == 64:
            return library.source
    return ""


def check_requirements(
    request: GpuRequest, devices: Devices, files: DriverFiles, selection: Selection
) -> tuple[str, ...]:
    """Check the NVIDIA_REQUIRE_* expressions; returns warnings.

    Raises:
        UsageError: if one is malformed.
        DeviceError: if one does not hold.
    """
    warnings: tuple[str, ...] = ()
    for variable, text in request.requirements:
        groups = parse_requirement(text, variable)
        properties = {term.property for group in groups for term in group}
        driver = GpuFacts(cuda=_cuda_version(devices, files, properties), driver=devices.version)
        gpus = tuple(
            driver._replace(**_gpu_facts(gpu.uuid, gpu.model, files, properties))
            for gpu in selection.gpus
        )
        verdict = check_requirement(groups, gpus, driver)
        if verdict.unsatisfied:
            raise unsatisfied_error(verdict.unsatisfied, variable, driver)
        warnings += verdict.warnings
    return tuple(dict.fromkeys(warnings))


def _cuda_version(devices: Devices, files: DriverFiles, properties: set[str]) -> str:
    known = cuda_of_driver(devices.version)
    if known or "cuda" not in properties:
        return known
    from enroot_py.gpu.nvidia.nvml import cuda_version

    return cuda_version(_library_path(files, "libcuda"))


def _gpu_facts(uuid: str, model: str, files: DriverFiles, properties: set[str]) -> dict[str, str]:
    brand = brand_of_model(model)
    if not properties & {"arch", "brand"} or not uuid:
        return {"brand": brand}
    from enroot_py.gpu.nvidia.nvml import arch_and_brand

    arch, known_brand = arch_and_brand(_library_path(files, "libnvidia-ml"), uuid)
    return {"arch": arch, "brand": known_brand or brand}


def _denied(devices: Devices, request: GpuRequest) -> tuple[str, ...]:
    """Report nodes that file permissions deny; the device cgroup's denials are meant to be."""
    if not request.devices.everything:
        return ()
    warnings = []
    for gpu in devices.gpus:
        if gpu.node is not None and not gpu.usable and gpu.node.mode & 0o006 != 0o006:
            warnings.append(f"gpu: {gpu.node.path}: permission denied (owner {gpu.node.owner})")
    return tuple(warnings)


def apply_compat(
    injection: Injection,
    situation: Situation,
    options: GpuOptions,
    devices: Devices,
    selection: Selection,
) -> Injection:
    """Put the image's newer libcuda first where it may serve; warn of one that will do harm."""
    from enroot_py.gpu.nvidia.compat_plan import compat_injection

    if not situation.rootfs or options.compat == "off":
        return injection
    if not any(library.soname == "libcuda.so.1" for library in injection.libraries):
        return injection
    candidate = find_compat(situation.rootfs, options.compat_folder)
    if not candidate.folder:
        return injection
    decision = decide_compat(
        candidate,
        mode=options.compat,
        driver=devices.version,
        driver_cuda=cuda_of_driver(devices.version),
        models=tuple(gpu.model for gpu in selection.gpus if gpu.model),
    )
    search_path = situation.container.get("LD_LIBRARY_PATH", "")
    return compat_injection(injection, candidate, decision, search_path, devices.version)
