"""Write a CDI specification of a host's NVIDIA GPUs, for podman, containerd, Kubernetes. Pure.

Two forms. With NVIDIA's hook program on the host, libraries keep their names and hooks make links
and the loader's cache, as `nvidia-ctk cdi generate` has it. Without it no hook is needed: each
library is mounted under its SONAME, in the default folders of both families of distributions; the
links below /dev/dri/by-path are then missing.

Source: Container Device Interface specification 1.1.0.
"""

from __future__ import annotations

from enroot_py.gpu.injection import Bind, Device, Injection, Library
from enroot_py.gpu.nvidia.records import Devices, Gpu

VERSION = "0.6.0"
"""The oldest version that has every feature used: engines of all ages read it."""

KIND = "nvidia.com/gpu"
_BIND = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
_SOCKET = ["nosuid", "nodev", "noexec", "rbind", "rprivate"]
_PLAIN_FOLDERS = {
    64: ("/usr/lib64", "/usr/lib/{triplet}"),
    32: ("/usr/lib/i386-linux-gnu", "/usr/lib"),
}


def generate_spec(
    injection: Injection,
    devices: Devices,
    *,
    arch: str,
    hook: str,
    driver: str,
    library_folder: str,
) -> dict[str, object]:
    """Return the document for a host.

    Args:
        injection: the plan for all GPUs with all capabilities.
        devices: the GPUs.
        arch: the machine's architecture, as the kernel names it.
        hook: absolute path of nvidia-cdi-hook; "" to do without hooks.
        driver: the driver's version.
        library_folder: folder in the container for libraries, where hooks complete the work.
    """
    per_gpu = {path for gpu in devices.gpus for path in _paths_of(gpu)}
    common = [device for device in injection.devices if device.target not in per_gpu]
    edits = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void", f"NVIDIA_CTK_LIBCUDA_DIR={library_folder}"],
        "deviceNodes": [_node(device) for device in common],
        "mounts": _mounts(injection, arch, hook, library_folder),
    }
    if hook:
        edits["hooks"] = _hooks(injection, hook, driver, library_folder)
    return {
        "cdiVersion": VERSION,
        "kind": KIND,
        "devices": _devices(injection, devices, hook),
        "containerEdits": {key: value for key, value in edits.items() if value},
    }


def _paths_of(gpu: Gpu) -> list[str]:
    nodes = [gpu.node] if gpu.node else []
    nodes += [*gpu.drm, *(node for mig in gpu.mig_devices for node in mig.nodes)]
    return [node.path for node in nodes]


def _devices(injection: Injection, devices: Devices, hook: str) -> list[dict[str, object]]:
    """Name every GPU by number and UUID, every MIG device by numbers, and all together."""
    by_path = {device.target: device for device in injection.devices}
    found: list[dict[str, object]] = []
    everything: dict[str, Device] = {}
    all_links: list[tuple[str, str]] = []
    for gpu in devices.usable_gpus:
        own = [gpu.node] if gpu.node else []
        base = [by_path[n.path] for n in (*own, *gpu.drm) if n.path in by_path]
        links = [(target, path) for path, target in gpu.drm_links if gpu.drm]
        mig_nodes = [
            by_path[node.path]
            for mig in gpu.mig_devices
            for node in mig.nodes
            if node.path in by_path
        ]
        whole = base + mig_nodes
        everything.update((device.target, device) for device in whole)
        all_links += links
        names = [str(gpu.number)] + ([gpu.uuid] if gpu.uuid and "?" not in gpu.uuid else [])
        found += [_device(name, whole, links, hook) for name in names]
        for index, mig in enumerate(gpu.mig_devices):
            nodes = [by_path[node.path] for node in mig.nodes if node.path in by_path]
            found.append(_device(f"{gpu.number}:{index}", base + nodes, links, hook))
    if everything:
        found.append(_device("all", list(everything.values()), all_links, hook))
    return found


def _device(
    name: str, nodes: list[Device], links: list[tuple[str, str]], hook: str
) -> dict[str, object]:
    edits: dict[str, object] = {"deviceNodes": [_node(node) for node in nodes]}
    if hook and links:
        edits["hooks"] = [_hook(hook, "create-symlinks", [f"--link={t}::{p}" for t, p in links])]
    return {"name": name, "containerEdits": edits}


def _node(device: Device) -> dict[str, object]:
    node: dict[str, object] = {"path": device.target}
    if device.source != device.target:
        node["hostPath"] = device.source
    return node


def _mounts(
    injection: Injection, arch: str, hook: str, library_folder: str
) -> list[dict[str, object]]:
    mounts: dict[str, dict[str, object]] = {}

    def add(source: str, target: str, options: list[str]) -> None:
        mounts[target] = {"hostPath": source, "containerPath": target, "options": options}

    for library in injection.libraries:
        for target in _library_targets(library, arch, hook, library_folder):
            add(library.source, target, _BIND)
    for link in injection.links:
        if not hook and link.path.startswith("lib:gbm/"):
            add(*_gbm_mount(link.path, injection.libraries, arch), _BIND)
    for program in injection.programs:
        add(program.source, program.target, _BIND)
    for bind in injection.binds:
        add(bind.source, bind.target, _SOCKET if bind.kind == "socket" else _options(bind))
    return list(mounts.values())


def _gbm_mount(path: str, libraries: tuple[Library, ...], arch: str) -> tuple[str, str]:
    """Return what stands for the link by which libgbm finds the driver."""
    source = next(lib.source for lib in libraries if lib.soname == "libnvidia-allocator.so.1")
    return source, f"/usr/lib/{arch}-linux-gnu/{path[4:]}"


def _options(bind: Bind) -> list[str]:
    return [*bind.options, "rbind", "rprivate"]


def _library_targets(library: Library, arch: str, hook: str, folder: str) -> list[str]:
    inner = f"/{library.folder}" if library.folder else ""
    if hook:
        file = next((name for name in library.names if _is_full_name(name)), library.soname)
        base = folder if library.bits == 64 else "/usr/lib/i386-linux-gnu"
        return [f"{base}{inner}/{file}"]
    names = (library.soname, *library.names)
    folders = [f.format(triplet=f"{arch}-linux-gnu") for f in _PLAIN_FOLDERS[library.bits]]
    return [f"{base}{inner}/{name}" for base in folders for name in names]


def _is_full_name(name: str) -> bool:
    return name.partition(".so.")[2].count(".") > 0


def _hooks(
    injection: Injection, hook: str, driver: str, library_folder: str
) -> list[dict[str, object]]:
    links = []
    folders: dict[str, None] = {}
    for library in injection.libraries:
        base = library_folder if library.bits == 64 else "/usr/lib/i386-linux-gnu"
        base += f"/{library.folder}" if library.folder else ""
        folders[base] = None
        for name in library.names:
            if not _is_full_name(name):
                links.append(f"--link={library.soname}::{base}/{name}")
    links += [
        f"--link={link.target}::{library_folder}/{link.path[4:]}"
        for link in injection.links
        if link.path.startswith("lib:")
    ]
    found = [_hook(hook, "create-symlinks", links)] if links else []
    if driver:
        found.append(_hook(hook, "enable-cuda-compat", [f"--host-driver-version={driver}"]))
    found.append(_hook(hook, "update-ldcache", [f"--folder={folder}" for folder in folders]))
    found.append(_hook(hook, "disable-device-node-modification", []))
    return found


def _hook(path: str, command: str, arguments: list[str]) -> dict[str, object]:
    name = path.rpartition("/")[2]
    args = [name, *(["hook"] if name == "nvidia-ctk" else []), command, *arguments]
    return {"hookName": "createContainer", "path": path, "args": args}
