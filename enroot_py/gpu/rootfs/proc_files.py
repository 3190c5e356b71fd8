"""/proc/driver/nvidia inside the container: left alone, or told not to touch device files.

`params` holds `ModifyDeviceFiles: 1` on most hosts, on which the driver's user space tries to make
or repair nodes. In a user namespace it cannot, so the default there is to do nothing: any mount
below /proc would forbid nested containers a procfs of their own (docs/adr/0043).
"""

from __future__ import annotations

from enroot_py.errors import KernelError
from enroot_py.gpu.injection import Bind, Injection
from enroot_py.gpu.rootfs.executor import Executor
from enroot_py.gpu.rootfs.placement import Written
from enroot_py.linux.path import read_beneath, resolve

FOLDER = "/proc/driver/nvidia"
_OPTIONS = ("ro", "nosuid", "nodev", "noexec")
_LIMIT = 1 << 16


def masked_params(content: bytes) -> bytes | None:
    """Return `params` with device file modification off; None if it is off or not stated exactly.

    Source: NVIDIA container toolkit, disable-device-node-modification.
    """
    lines = content.split(b"\n")
    if b"ModifyDeviceFiles: 1" not in lines:
        return None
    return b"\n".join(b"ModifyDeviceFiles: 0" if x == b"ModifyDeviceFiles: 1" else x for x in lines)


def mask_proc(executor: Executor, injection: Injection) -> None:
    """Do to /proc/driver/nvidia what the injection says; nothing where there is no such folder."""
    if injection.proc == "params":
        _mask_params(executor)
    elif injection.proc == "full":
        _narrow(executor, injection.proc_gpus)


def _mask_params(executor: Executor) -> None:
    content = read_beneath(executor.root_fd, f"{FOLDER}/params", limit=_LIMIT)
    masked = masked_params(content) if content is not None else None
    if masked is None:
        return
    executor.write_own(Written("proc/params", masked))
    executor.bind(
        Bind("own:proc/params", f"{FOLDER}/params", "no node modification", options=_OPTIONS)
    )


def _narrow(executor: Executor, gpus: tuple[str, ...]) -> None:
    """Leave the version, the parameters and the selected GPUs' folders in a read-only tmpfs."""
    try:
        with resolve(executor.root_fd, FOLDER):
            pass
    except KernelError:
        return
    kept = {}
    for name in ("version", "params", "registry"):
        content = read_beneath(executor.root_fd, f"{FOLDER}/{name}", limit=_LIMIT)
        if content is not None:
            kept[name] = masked_params(content) or content
    for pci in gpus:
        path = f"{FOLDER}/gpus/{pci}/information"
        content = read_beneath(executor.root_fd, path, limit=_LIMIT)
        if content is not None:
            kept[f"gpus/{pci}/information"] = content
    for name, content in kept.items():
        executor.write_own(Written(f"proc/nvidia/{name}", content, 0o444))
    executor.bind(
        Bind("own:proc/nvidia", FOLDER, "selected GPUs only", "folder", _OPTIONS, required=True)
    )
