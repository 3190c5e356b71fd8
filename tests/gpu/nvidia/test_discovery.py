"""Finding NVIDIA's devices in a driver root."""

from __future__ import annotations

from pathlib import Path

import pytest

from enroot_py.gpu.nvidia.discovery import (
    find_devices,
    is_version,
    parse_driver_version,
    parse_pci_address,
)
from enroot_py.gpu.nvidia.mig import parse_mig_minors
from tests.roots.driver import FakeDriver, FakeGpu, eight_gpus, one_gpu, uuid_of


def test_a_host_without_a_driver(tmp_path: Path) -> None:
    devices = find_devices(FakeDriver(tmp_path).root)
    assert (devices.found_in, devices.version, devices.gpus, devices.control) == ("", "", (), ())


def test_one_gpu(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.kernel_module()
    driver.gpus(one_gpu())
    devices = find_devices(driver.root)
    assert devices.version == "580.95.05"
    (gpu,) = devices.gpus
    assert (gpu.number, gpu.minor, gpu.pci) == (0, 0, "0000:1b:00.0")
    assert (gpu.uuid, gpu.model) == (uuid_of(0), "NVIDIA H200")
    assert gpu.node is not None and (gpu.node.major, gpu.node.minor) == (195, 0)
    assert [node.path for node in devices.control] == [
        "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset",
    ]  # fmt: skip


def test_numbers_follow_the_pci_order_and_not_the_minors(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.kernel_module()
    driver.gpus(eight_gpus())
    devices = find_devices(driver.root)
    assert [gpu.number for gpu in devices.gpus] == list(range(8))
    assert [gpu.minor for gpu in devices.gpus] == [3, 1, 0, 7, 2, 5, 4, 6]
    assert [gpu.pci for gpu in devices.gpus] == sorted(gpu.pci for gpu in devices.gpus)


def test_gpus_that_may_not_be_used_have_no_number(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.kernel_module()
    driver.gpus(eight_gpus())
    driver.node("nvidia2", 195, 2, "no")
    driver.node("nvidia3", 195, 3, "no")
    devices = find_devices(driver.root)
    assert len(devices.gpus) == 8
    assert [gpu.minor for gpu in devices.usable_gpus] == [1, 0, 7, 5, 4, 6]
    assert [gpu.number for gpu in devices.usable_gpus] == [0, 1, 2, 3, 4, 5]


def test_excluded_absent_and_foreign_nodes_do_not_count(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.kernel_module()
    gpus = eight_gpus()[:5]
    gpus[0].excluded = True
    driver.gpus(gpus)
    (tmp_path / "dev/nvidia1").unlink()
    driver.node("nvidia0", 1, 3)  # some other device under that name
    driver.node("nvidia7", 195, 6)  # another GPU's minor
    assert [gpu.minor for gpu in find_devices(driver.root).gpus] == [2]


def test_long_pci_domains_and_uuids_never_used(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.kernel_module()
    driver.gpus([FakeGpu(0, "00000001:0A:00.0", "GPU-????????-????-????-????-????????????")])
    (gpu,) = find_devices(driver.root).gpus
    assert gpu.pci == "0001:0a:00.0"
    assert "?" in gpu.uuid


def test_without_procfs_the_nodes_are_enumerated(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    for minor in (10, 2, 0):
        driver.node(f"nvidia{minor}", 195, minor)
    driver.node("nvidiactl", 195, 255)
    devices = find_devices(driver.root)
    assert devices.found_in == "/dev"
    assert [(gpu.number, gpu.minor, gpu.pci) for gpu in devices.gpus] == [
        (0, 0, ""), (1, 2, ""), (2, 10, ""),
    ]  # fmt: skip


def test_a_driver_without_gpus(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.kernel_module()
    driver.gpus([])
    devices = find_devices(driver.root)
    assert devices.found_in and devices.gpus == ()


def test_mig_devices_have_the_nodes_that_their_access_files_name(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.kernel_module()
    driver.gpus([FakeGpu(4, "0000:1b:00.0", uuid_of(4), mig={10: (0,), 2: (1, 0)})])
    (gpu,) = find_devices(driver.root).gpus
    found = [(mig.gpu_instance, mig.compute_instance) for mig in gpu.mig_devices]
    assert found == [(2, 0), (2, 1), (10, 0)]
    assert [node.path for node in gpu.mig_devices[2].nodes] == [
        "/dev/nvidia-caps/nvidia-cap101", "/dev/nvidia-caps/nvidia-cap102",
    ]  # fmt: skip


def test_the_table_serves_where_an_access_file_cannot_be_read(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.kernel_module()
    driver.gpus([FakeGpu(0, "0000:1b:00.0", uuid_of(0), mig={1: (0,)})])
    (tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access").unlink()
    (gpu,) = find_devices(driver.root).gpus
    assert [node.minor for node in gpu.mig_devices[0].nodes] == [101, 102]


def test_imex_channels_and_numbered_nodes(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.kernel_module()
    driver.gpus(one_gpu())
    driver.imex(10, 2)
    for name in ("nvidia-nvswitch0", "nvidia-nvswitchctl", "nvidia-fs1", "gdrdrv"):
        driver.node(name, 240, 0)
    devices = find_devices(driver.root)
    assert [number for number, _ in devices.imex_channels] == [2, 10]
    paths = [node.path for node in devices.control]
    assert paths.count("/dev/nvidia-nvswitchctl") == 1
    assert {"/dev/nvidia-nvswitch0", "/dev/nvidia-fs1", "/dev/gdrdrv"} <= set(paths)


def test_drm_nodes_come_from_the_pci_function(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.kernel_module()
    gpus = eight_gpus()[:2]
    driver.gpus(gpus)
    driver.drm(gpus[1], 5)
    first, second = find_devices(driver.root).gpus
    assert first.drm == ()
    assert [node.path for node in second.drm] == ["/dev/dri/card5", "/dev/dri/renderD133"]
    assert second.drm_links == (
        ("/dev/dri/by-path/pci-0000:2b:00.0-card", "../card5"),
        ("/dev/dri/by-path/pci-0000:2b:00.0-render", "../renderD133"),
    )


@pytest.mark.parametrize(
    ("name", "platform"),
    [("dev/dxg", "wsl"), ("etc/nv_tegra_release", "tegra"),
     ("etc/nvidia-container-runtime/host-files-for-container.d/l4t.csv", "tegra")],
)  # fmt: skip
def test_other_platforms_are_recognised(tmp_path: Path, name: str, platform: str) -> None:
    driver = FakeDriver(tmp_path)
    driver.write(name)
    assert find_devices(driver.root).other_platform == platform


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed Oct", "470.82.01"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Rel", "580.95.05"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  610.43  Rel", "610.43"),
        ("something else 1.2.3", ""),
        ("", ""),
    ],
)
def test_driver_versions(text: str, version: str) -> None:
    assert parse_driver_version(text) == version


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("1b:0.0", "0000:1b:00.0"),
        ("10000:3:1f.7", "10000:03:1f.7"),
        ("1b:20.0", ""),
        ("1b:00.8", ""),
        ("100:00.0", ""),
        ("1b:00", ""),
        ("1b.0", ""),
        ("x:00.0", ""),
        ("-1:00.0", ""),
        ("a:b:c:d.0", ""),
        ("", ""),
    ],
)
def test_pci_addresses(text: str, address: str) -> None:
    assert parse_pci_address(text) == address


def test_versions() -> None:
    assert is_version("580.95.05")
    for text in ("580", "", ".", "580.", "a.b", "5\u0668.1"):
        assert not is_version(text)


def test_the_mig_table() -> None:
    text = "config 1\nmonitor 2\ngpu0/gi0/access 3\ngpu0/gi0/ci1/access 5\njunk\n x y\n"
    assert parse_mig_minors(text) == {
        "config": 1, "monitor": 2, "gpu0/gi0/access": 3, "gpu0/gi0/ci1/access": 5,
    }  # fmt: skip
