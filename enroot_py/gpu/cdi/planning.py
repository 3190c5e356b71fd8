"""The story of CDI planning: names → specifications → edits → `Injection`."""

from __future__ import annotations

import os

from enroot_py.errors import DeviceError
from enroot_py.gpu.cdi.edits import EditsPlanner, host_hooks, merge_edits
from enroot_py.gpu.cdi.nvidia_hooks import HookMeaning, understand
from enroot_py.gpu.cdi.records import ContainerEdits, HookEdit
from enroot_py.gpu.cdi.registry import load_registry
from enroot_py.gpu.injection import Injection, combine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from enroot_py.gpu.driver_root import DriverRoot
    from enroot_py.gpu.nvidia.selection import DeviceList
    from enroot_py.gpu.request import GpuOptions
    from enroot_py.gpu.situation import Situation

NVIDIA_GPU = "nvidia.com/gpu"
_ON_HOST = ("prestart", "createRuntime", "createContainer")


def plan_cdi(names: tuple[str, ...], options: GpuOptions, situation: Situation) -> Injection:
    """Plan the injection of CDI devices.

    Args:
        names: qualified names, in order.

    Raises:
        NotFoundError: if a name does not resolve.
        DeviceError, UnsupportedError: if its edits cannot be made.
    """
    resolved = load_registry(options.cdi_folders).resolve(names)
    by_kind: dict[str, list[ContainerEdits]] = {}
    for kind, edits in resolved:
        by_kind.setdefault(kind, []).append(edits)
    parts = []
    for kind, some in by_kind.items():
        edits = merge_edits(some)
        meaning = understand(edits.hooks)
        nvidia = kind.startswith("nvidia.com/")
        planner = EditsPlanner(
            kind,
            rehome=nvidia,
            keep_paths=nvidia and not options.rehome,
            ignore_privileged=options.ignore_privileged,
        )
        part = planner.plan(edits, meaning)
        part = _add_hooks(part, meaning.unknown, kind, options)
        if nvidia:
            part = _as_native(part, meaning, options, situation)
        if kind == NVIDIA_GPU:
            part = _hide_others(part, situation.root)
            _check_job(part, names, situation.launcher)
        parts.append(part)
    return combine(parts)


def native_list_as_cdi(devices: DeviceList, options: GpuOptions) -> tuple[str, ...]:
    """Return a native device list as CDI names; none if an installed file does not have them."""
    known = set(load_registry(options.cdi_folders).names(NVIDIA_GPU))
    items = ("all",) if devices.everything else devices.items
    names = tuple(f"{NVIDIA_GPU}={item}" for item in items)
    return names if names and all(name in known for name in names) else ()


def _add_hooks(
    part: Injection, hooks: tuple[HookEdit, ...], kind: str, options: GpuOptions
) -> Injection:
    if not hooks:
        return part
    listed = ", ".join(dict.fromkeys(hook.path for hook in hooks))
    if options.unknown_hooks == "error":
        raise DeviceError(
            f"cdi: {kind} has hooks that are not known here: {listed}",
            hint="ENROOT_CDI_UNKNOWN_HOOKS=run executes them, warn leaves them out",
        )
    if options.unknown_hooks == "warn":
        text = f"cdi: {kind}: hooks are left out: {listed} (ENROOT_CDI_UNKNOWN_HOOKS=run)"
        return part._replace(warnings=(*part.warnings, text))
    early = tuple(hook for hook in hooks if hook.hook_name in _ON_HOST)
    late = [hook.hook_name for hook in hooks if hook.hook_name not in _ON_HOST]
    notes = part.notes
    if late:
        notes += (f"cdi: {kind}: hooks of {', '.join(late)} have no place here; left out",)
    return part._replace(hooks=host_hooks(early), notes=notes)


def _as_native(
    part: Injection,
    meaning: HookMeaning,
    options: GpuOptions,
    situation: Situation,
) -> Injection:
    """Do what NVIDIA's hooks say about the driver as a whole."""
    if meaning.no_modification and options.proc in ("params", "full"):
        part = part._replace(proc=options.proc)
    if meaning.profile:
        from enroot_py.gpu.nvidia.plan import application_profile

        minors = [int(d.target[11:]) for d in part.devices if _is_gpu_node(d.target)]
        part = part._replace(texts=(*part.texts, application_profile(minors)))
    if meaning.compat and situation.rootfs and options.compat != "off":
        from enroot_py.gpu.nvidia.compat import decide_compat, find_compat
        from enroot_py.gpu.nvidia.compat_plan import compat_injection

        compat = find_compat(situation.rootfs, meaning.compat_folder or options.compat_folder)
        if not compat.folder:
            return part
        decision = decide_compat(
            compat,
            mode=options.compat,
            driver=meaning.compat_driver,
            driver_cuda=meaning.compat_cuda,
            models=(),
        )
        search_path = situation.container.get("LD_LIBRARY_PATH", "")
        part = compat_injection(part, compat, decision, search_path, meaning.compat_driver)
    return part


def _is_gpu_node(path: str) -> bool:
    return path.startswith("/dev/nvidia") and path[11:].isdigit()


def _hide_others(part: Injection, root: DriverRoot) -> Injection:
    """Hide the GPUs that were not asked for, as for a native request."""
    from enroot_py.gpu.nvidia.discovery import find_devices
    from enroot_py.gpu.nvidia.plan import hidden_nodes
    from enroot_py.gpu.nvidia.selection import Selection

    devices = find_devices(root)
    targets = {device.target for device in part.devices}
    gpus = tuple(gpu for gpu in devices.gpus if gpu.node and gpu.node.path in targets)
    mig = tuple(
        (gpu, mig)
        for gpu in gpus
        for mig in gpu.mig_devices
        if mig.nodes and all(node.path in targets for node in mig.nodes)
    )
    everything = len(gpus) == len(devices.gpus) and (
        not mig or len(mig) == sum(len(gpu.mig_devices) for gpu in gpus)
    )
    selection = Selection(gpus, mig, everything)
    positions = tuple(i for i, gpu in enumerate(devices.usable_gpus) if gpu in gpus)
    return part._replace(
        hidden=hidden_nodes(devices, selection),
        proc_gpus=tuple(gpu.pci for gpu in gpus if gpu.pci),
        visible_gpus=None if everything else positions,
    )


def _check_job(part: Injection, names: tuple[str, ...], launcher: Mapping[str, str]) -> None:
    """In a job, a number in a specification of the host is not the job's number.

    Raises:
        DeviceError: if a GPU asked for by number is one that the job was not given.
    """
    numbered = [name for name in names if name.partition("=")[2].isdigit()]
    if "SLURM_JOB_ID" not in launcher or not numbered:
        return
    denied = [
        device.target
        for device in part.devices
        if _is_gpu_node(device.target)
        and not os.access(device.source, os.R_OK | os.W_OK, effective_ids=True)
    ]
    if denied:
        raise DeviceError(
            f"cdi: {', '.join(numbered)} stands for {', '.join(denied)}, which this job may not "
            "use: the specification numbers the GPUs of the host, not those of the job",
            hint=f"use --gpus all, or {NVIDIA_GPU}=GPU-UUID",
        )
