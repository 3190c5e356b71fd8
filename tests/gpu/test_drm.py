"""AMD, Intel and Gaudi accelerators."""

from __future__ import annotations

from pathlib import Path

import pytest

from enroot_py.errors import NotFoundError, UsageError
from enroot_py.gpu.drm import VENDORS, find_accelerators, parse_index_list, plan_accelerators
from enroot_py.gpu.injection import Injection
from tests.roots.driver import FakeDriver
from tests.roots.fabric import drm_device, gaudi_device, kfd_node

AMD, INTEL, HABANA = VENDORS


@pytest.fixture
def amd(tmp_path: Path) -> FakeDriver:
    """Two AMD GPUs and a partition, whose KFD order is not that of PCI, beside an Intel GPU."""
    host = FakeDriver(tmp_path)
    drm_device(host, 0, "0000:03:00.0", "i915")
    drm_device(host, 1, "0000:83:00.0", "amdgpu")
    drm_device(host, 2, "0000:43:00.0", "amdgpu")
    drm_device(host, 3, "amdgpu_xcp_0", "")
    kfd_node(host, 0, 0)
    kfd_node(host, 1, 129, 0xABC)
    kfd_node(host, 2, 131, 0xABD)
    kfd_node(host, 10, 130, 0xABE)
    host.node("kfd", 234, 0)
    return host


def targets(injection: Injection) -> list[str]:
    return [device.target for device in injection.devices]


def test_amd_gpus_come_in_the_order_of_the_topology(amd: FakeDriver) -> None:
    found = [(gpu.address, gpu.unique_id) for gpu in find_accelerators(amd.root, AMD)]
    assert found == [
        ("0000:83:00.0", "0xabc"), ("amdgpu_xcp_0", "0xabd"), ("0000:43:00.0", "0xabe"),
    ]  # fmt: skip


def test_without_a_topology_the_order_is_that_of_pci(amd: FakeDriver, tmp_path: Path) -> None:
    host = FakeDriver(tmp_path / "other")
    drm_device(host, 0, "0000:83:00.0", "amdgpu")
    drm_device(host, 1, "0000:43:00.0", "amdgpu")
    assert [gpu.address for gpu in find_accelerators(host.root, AMD)] == [
        "0000:43:00.0", "0000:83:00.0",
    ]  # fmt: skip


def test_all_amd_gpus(amd: FakeDriver) -> None:
    injection = plan_accelerators({}, {"AMD_VISIBLE_DEVICES": "all"}, amd.root)
    assert targets(injection) == [
        "/dev/dri/card1", "/dev/dri/renderD129", "/dev/dri/card3", "/dev/dri/renderD131",
        "/dev/dri/card2", "/dev/dri/renderD130", "/dev/kfd",
    ]  # fmt: skip
    assert injection.hidden == () and injection.libraries == ()


@pytest.mark.parametrize("text", ["0,2", "0-0,2", "0xABC,0xabe", " 2 , 0,none"])
def test_some_amd_gpus_hide_the_others(amd: FakeDriver, text: str) -> None:
    injection = plan_accelerators({"AMD_VISIBLE_DEVICES": text}, {}, amd.root)
    assert {"/dev/dri/card1", "/dev/dri/card2", "/dev/kfd"} <= set(targets(injection))
    assert set(injection.hidden) == {"/dev/dri/card3", "/dev/dri/renderD131"}


def test_none_hides_all_of_them(amd: FakeDriver) -> None:
    injection = plan_accelerators({"AMD_VISIBLE_DEVICES": "none"}, {}, amd.root)
    assert injection.devices == () and len(injection.hidden) == 6


def test_the_runtimes_variable_brings_the_nodes_and_hides_nothing(amd: FakeDriver) -> None:
    injection = plan_accelerators({"ROCR_VISIBLE_DEVICES": "1"}, {}, amd.root)
    assert len(injection.devices) == 7 and injection.hidden == ()


def test_intel_gpus(amd: FakeDriver) -> None:
    injection = plan_accelerators({"INTEL_VISIBLE_DEVICES": "all"}, {}, amd.root)
    assert targets(injection) == ["/dev/dri/card0", "/dev/dri/renderD128"]


def test_gaudi_accelerators(tmp_path: Path) -> None:
    host = FakeDriver(tmp_path)
    gaudi_device(host, 0, "0000:33:00.0")
    gaudi_device(host, 1, "0000:34:00.0")
    injection = plan_accelerators({"HABANA_VISIBLE_DEVICES": "1"}, {}, host.root)
    assert targets(injection) == ["/dev/accel/accel1", "/dev/accel/accel_controlD1"]
    assert set(injection.hidden) == {"/dev/accel/accel0", "/dev/accel/accel_controlD0"}


def test_unknown_devices_are_named(amd: FakeDriver) -> None:
    for text in ("3", "0xdead", "0-3"):
        with pytest.raises(NotFoundError, match="AMD_VISIBLE_DEVICES.*0xabc"):
            plan_accelerators({"AMD_VISIBLE_DEVICES": text}, {}, amd.root)


@pytest.mark.parametrize("text", ["x", "3-1", "0-99999", "-1", "1-", "\u0661"])
def test_malformed_lists(text: str) -> None:
    with pytest.raises(UsageError, match="V"):
        parse_index_list(text, "V")


def test_ranges() -> None:
    assert parse_index_list("0-3,8,0x1F,2", "V") == ("0", "1", "2", "3", "8", "0x1f")
    assert parse_index_list("0,all", "V") is None
    assert parse_index_list("void", "V") == ()


def test_a_host_without_such_devices(tmp_path: Path) -> None:
    root = FakeDriver(tmp_path).root
    asked = plan_accelerators({}, {"AMD_VISIBLE_DEVICES": "all"}, root)
    assert asked.empty and "no amd device" in asked.warnings[0]
    with pytest.raises(NotFoundError, match="no amd device"):
        plan_accelerators({"AMD_VISIBLE_DEVICES": "0"}, {}, root)
    assert plan_accelerators({"AMD_VISIBLE_DEVICES": "none"}, {}, root).warnings == ()
    assert plan_accelerators({"ROCR_VISIBLE_DEVICES": "0"}, {}, root).warnings == ()


def test_nodes_that_are_denied_are_named(amd: FakeDriver) -> None:
    amd.node("kfd", 234, 0, "no")
    injection = plan_accelerators({"AMD_VISIBLE_DEVICES": "0"}, {}, amd.root)
    assert any("/dev/kfd" in text and "render" in text for text in injection.warnings)
