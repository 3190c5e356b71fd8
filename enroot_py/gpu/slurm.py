"""CUDA_VISIBLE_DEVICES inside a container that holds a subset of the GPUs. Pure.

Slurm numbers a job's GPUs from 0 where it constrains devices. A container that really hides some of
the GPUs shifts those numbers, so lists of numbers are rewritten; names (UUIDs, MIG) are left alone.
"""

from __future__ import annotations

from enroot_py.errors import DeviceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def visible_devices(
    container: Mapping[str, str], visible_gpus: tuple[int, ...] | None
) -> tuple[tuple[str, str], ...]:
    """Return the assignments that make CUDA's device numbers right again, none if they are.

    Args:
        container: the container's environment.
        visible_gpus: positions of the GPUs in the container among those of the launcher; None if
            nothing is hidden.

    Raises:
        DeviceError: if every GPU that CUDA_VISIBLE_DEVICES names is hidden.
    """
    value = container.get("CUDA_VISIBLE_DEVICES", "")
    words = [word.strip() for word in value.split(",") if word.strip()]
    if not visible_gpus or not words or not all(word.isdigit() for word in words):
        return ()
    places = {host: own for own, host in enumerate(visible_gpus)}
    kept = [str(places[int(word)]) for word in words if int(word) in places]
    if not kept:
        listed = ", ".join(map(str, visible_gpus))
        raise DeviceError(
            f"gpu: CUDA_VISIBLE_DEVICES={value} names no GPU of this container, which has "
            f"GPU {listed}",
            hint="use NVIDIA_VISIBLE_DEVICES=all and let CUDA_VISIBLE_DEVICES choose",
        )
    if kept == words:
        return ()
    changed = [("CUDA_VISIBLE_DEVICES", ",".join(kept))]
    if "CUDA_DEVICE_ORDER" not in container:
        # The numbers are positions in PCI order; CUDA's own default is by speed.
        changed.append(("CUDA_DEVICE_ORDER", "PCI_BUS_ID"))
    return tuple(changed)


def task_binding_warning(launcher: Mapping[str, str], *, by_index: bool) -> tuple[str, ...]:
    """Warn of index lists in a step whose tasks are bound to GPUs one by one."""
    binding = launcher.get("SLURM_GPUS_PER_TASK") or launcher.get("SLURM_TRES_PER_TASK", "")
    if not by_index or not binding or launcher.get("SLURM_NTASKS", "1") == "1":
        return ()
    warning = (
        "gpu: GPU numbers count the GPUs of the step's first task, and this step binds GPUs to "
        "tasks; NVIDIA_VISIBLE_DEVICES=all gives each task its own"
    )
    return (warning,)
