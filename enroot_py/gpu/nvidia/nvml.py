"""Ask the driver's own libraries what the kernel's files do not tell, in a child with a time limit.

Only three questions ever need this: which instances a MIG UUID stands for, the architecture and
brand of a GPU, and the CUDA version of a driver branch that is not in our table. The libraries may
hang, crash or start GPUs, so they are never loaded into the launcher itself.

Source: nvml.h (NVML API reference), cuda.h.
"""

from __future__ import annotations

import os
import select
import signal
import time

from enroot_py.errors import DeviceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TIME_LIMIT = 10.0
"""Seconds; waking a GPU takes up to a few."""

BRANDS = (
    "unknown", "quadro", "tesla", "nvs", "grid", "geforce", "titan", "nvidiavapps", "nvidiavpc",
    "nvidiavcs", "nvidiavws", "nvidiacloudgaming", "quadrortx", "nvidiartx", "nvidia", "geforcertx",
    "titanrtx",
)  # fmt: skip
"""nvmlBrandType_t, as requirement expressions write them."""


def mig_by_uuid(library: str, uuid: str, *, limit: float = TIME_LIMIT) -> tuple[str, int, int]:
    """Return (UUID of the GPU, GPU instance, compute instance) of a MIG device.

    Args:
        library: absolute host path of libnvidia-ml; "" if there is none.

    Raises:
        DeviceError: if NVML could not be used, or does not know the device.
    """
    try:
        answer = _ask(lambda: _mig_facts(library, uuid), library, limit)
        parent, instance, compute = answer.split()
        return parent, int(instance), int(compute)
    except _NoAnswerError as error:
        raise DeviceError(
            f"gpu: {uuid} needs NVML to resolve and libnvidia-ml could not be used: {error}",
            hint="use the GPU:MIG index or the MIG-GPU-UUID/GI/CI form",
        ) from error


def arch_and_brand(library: str, uuid: str, *, limit: float = TIME_LIMIT) -> tuple[str, str]:
    """Return the compute capability (`9.0`) and the brand word of a GPU; "" for what is unknown."""
    try:
        arch, brand = _ask(lambda: _gpu_facts(library, uuid), library, limit).split()
    except (_NoAnswerError, ValueError):
        return "", ""
    return arch, brand


def cuda_version(library: str, *, limit: float = TIME_LIMIT) -> str:
    """Return the CUDA version that libcuda offers, "" if it cannot be told. Needs no device."""
    try:
        return _ask(lambda: _driver_facts(library), library, limit)
    except _NoAnswerError:
        return ""


class _NoAnswerError(Exception):
    """The child could not answer."""


def _ask(question: Callable[[], str], library: str, limit: float) -> str:
    if not library:
        raise _NoAnswerError("it was not found")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(question, writer)
    os.close(writer)
    try:
        data = _read_all(reader, limit)
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if data[:1] != b"+":
        raise _NoAnswerError(os.fsdecode(data[1:]) or "it gave no answer in time")
    return os.fsdecode(data[1:])


def _answer(question: Callable[[], str], writer: int) -> None:
    """Run in the child; never returns."""
    try:
        try:
            text = "+" + question()
        except OSError as error:
            text = f"-{error}"
        except _NoAnswerError as error:
            text = f"-{error}"
        os.write(writer, os.fsencode(text)[:4096])
    finally:
        os._exit(0)


def _read_all(reader: int, limit: float) -> bytes:
    deadline = time.monotonic() + limit
    data = b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([reader], [], [], left)[0]:
            break
        chunk = os.read(reader, 4096)
        if not chunk:
            return data
        data += chunk
    return b""


def _mig_facts(library: str, uuid: str) -> str:
    import ctypes

    nvml = ctypes.CDLL(library)
    _call(nvml, "nvmlInit_v2")
    device, parent = ctypes.c_void_p(), ctypes.c_void_p()
    instance, compute = ctypes.c_uint(), ctypes.c_uint()
    _call(nvml, "nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(device))
    _call(nvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", device, ctypes.byref(parent))
    _call(nvml, "nvmlDeviceGetGpuInstanceId", device, ctypes.byref(instance))
    _call(nvml, "nvmlDeviceGetComputeInstanceId", device, ctypes.byref(compute))
    name = ctypes.create_string_buffer(96)
    _call(nvml, "nvmlDeviceGetUUID", parent, name, ctypes.c_uint(96))
    return f"{os.fsdecode(name.value)} {instance.value} {compute.value}"


def _gpu_facts(library: str, uuid: str) -> str:
    import ctypes

    nvml = ctypes.CDLL(library)
    _call(nvml, "nvmlInit_v2")
    device = ctypes.c_void_p()
    major, minor, brand = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    _call(nvml, "nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(device))
    _call(
        nvml, "nvmlDeviceGetCudaComputeCapability", device, ctypes.byref(major), ctypes.byref(minor)
    )
    _call(nvml, "nvmlDeviceGetBrand", device, ctypes.byref(brand))
    word = BRANDS[brand.value] if 0 <= brand.value < len(BRANDS) else "unknown"
    return f"{major.value}.{minor.value} {word}"


def _driver_facts(library: str) -> str:
    import ctypes

    version = ctypes.c_int()
    _call(ctypes.CDLL(library), "cuDriverGetVersion", ctypes.byref(version))
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def _call(library: object, name: str, *arguments: object) -> None:
    function = getattr(library, name, None)
    if function is None:
        raise _NoAnswerError(f"it has no {name}")
    status = function(*arguments)
    if status != 0:
        raise _NoAnswerError(f"{name} answered {status}")
