"""Questions to the driver's own libraries, in a child with a time limit."""

from __future__ import annotations

import platform
import time
from pathlib import Path

import pytest

from enroot_py.errors import DeviceError
from enroot_py.gpu.nvidia.nvml import arch_and_brand, cuda_version, mig_by_uuid
from tests.roots.shared_objects import HANGS, returns, stores, stores_text, write_stub

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the stubs hold x86-64 code")

UUID = "GPU-00000001-1111-2222-3333-444455556666"
EXITS = b"\xb8\x3c\0\0\0\xbf\x01\0\0\0\x0f\x05"
"""Code that ends the process with status 1."""

NVML = {
    "nvmlInit_v2": returns(0),
    "nvmlDeviceGetHandleByUUID": returns(0),
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": returns(0),
    "nvmlDeviceGetGpuInstanceId": stores(2),
    "nvmlDeviceGetComputeInstanceId": stores(5),
    "nvmlDeviceGetUUID": stores_text(UUID),
    "nvmlDeviceGetCudaComputeCapability": stores(9),
    "nvmlDeviceGetBrand": stores(14),
}


def library(tmp_path: Path, **changes: bytes) -> str:
    path = tmp_path / "libnvidia-ml.so.1"
    write_stub(path, "libnvidia-ml.so.1", functions={**NVML, **changes})
    return str(path)


def test_a_mig_uuid_stands_for_gpu_and_instances(tmp_path: Path) -> None:
    assert mig_by_uuid(library(tmp_path), "MIG-x") == (UUID, 2, 5)


def test_a_device_that_nvml_does_not_know(tmp_path: Path) -> None:
    path = library(tmp_path, nvmlDeviceGetHandleByUUID=returns(6))
    with pytest.raises(DeviceError, match="MIG-x needs NVML.*answered 6") as caught:
        mig_by_uuid(path, "MIG-x")
    assert "GPU:MIG index" in caught.value.hint


def test_without_the_library(tmp_path: Path) -> None:
    for path in ("", str(tmp_path / "missing.so")):
        with pytest.raises(DeviceError, match="needs NVML"):
            mig_by_uuid(path, "MIG-x")


def test_a_library_that_lacks_the_function(tmp_path: Path) -> None:
    path = tmp_path / "libnvidia-ml.so.1"
    write_stub(path, "libnvidia-ml.so.1", functions={"nvmlInit_v2": returns(0)})
    with pytest.raises(DeviceError, match="no nvmlDeviceGetHandleByUUID"):
        mig_by_uuid(str(path), "MIG-x")


def test_a_hanging_or_ending_library_costs_no_more_than_the_limit(tmp_path: Path) -> None:
    hanging = library(tmp_path, nvmlInit_v2=HANGS)
    started = time.monotonic()
    with pytest.raises(DeviceError, match="in time"):
        mig_by_uuid(hanging, "MIG-x", limit=0.3)
    assert time.monotonic() - started < 20
    ending = library(tmp_path, nvmlInit_v2=EXITS)
    with pytest.raises(DeviceError, match="no answer"):
        mig_by_uuid(ending, "MIG-x")


def test_architecture_and_brand(tmp_path: Path) -> None:
    assert arch_and_brand(library(tmp_path), UUID) == ("9.0", "nvidia")
    assert arch_and_brand("", UUID) == ("", "")


def test_the_cuda_version_needs_no_device(tmp_path: Path) -> None:
    path = tmp_path / "libcuda.so.1"
    functions = {"cuDriverGetVersion": stores(13010, argument=1)}
    write_stub(path, "libcuda.so.1", functions=functions)
    assert cuda_version(str(path)) == "13.1"
    assert cuda_version("") == ""
