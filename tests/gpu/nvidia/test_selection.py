"""Which GPUs a device list names."""

from __future__ import annotations

from pathlib import Path

import pytest

from enroot_py.errors import NotFoundError, UsageError
from enroot_py.gpu.nvidia.discovery import find_devices
from enroot_py.gpu.nvidia.records import Devices
from enroot_py.gpu.nvidia.selection import (
    DeviceList,
    Selection,
    parse_device_list,
    select_devices,
)
from tests.roots.driver import FakeDriver, FakeGpu, eight_gpus, uuid_of


@pytest.fixture
def eight(tmp_path: Path) -> Devices:
    driver = FakeDriver(tmp_path)
    driver.kernel_module()
    driver.gpus(eight_gpus())
    return find_devices(driver.root)


@pytest.fixture
def mig(tmp_path: Path) -> Devices:
    driver = FakeDriver(tmp_path)
    driver.kernel_module()
    driver.gpus(
        [
            FakeGpu(1, "0000:1b:00.0", uuid_of(1), mig={1: (0,), 2: (0, 1)}),
            FakeGpu(0, "0000:2b:00.0", uuid_of(0), mig={3: (0,)}),
        ]
    )
    return find_devices(driver.root)


def select(text: str, devices: Devices) -> Selection:
    return select_devices(parse_device_list(text), devices, origin="NVIDIA_VISIBLE_DEVICES")


@pytest.mark.parametrize("text", ["", " ", ",", "void", "VOID", "all,void", "0, void ,1"])
def test_lists_that_ask_for_nothing(text: str) -> None:
    assert parse_device_list(text) == DeviceList(nothing=True)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("all", DeviceList(everything=True)),
        ("ALL,9,void-not", DeviceList(everything=True)),
        ("none", DeviceList()),
        ("none,0", DeviceList(items=("0",))),
        ("0, 1,,0 ", DeviceList(items=("0", "1"))),
        ("a.b/c=d,0", DeviceList(items=("0",), cdi=("a.b/c=d",))),
        ("a.b/c=d,a.b/c=d", DeviceList(cdi=("a.b/c=d",))),
    ],
)
def test_lists(text: str, wanted: DeviceList) -> None:
    assert parse_device_list(text) == wanted


def test_all(eight: Devices) -> None:
    chosen = select("all", eight)
    assert chosen.everything and len(chosen.gpus) == 8


def test_none_selects_no_gpu_and_needs_none(eight: Devices) -> None:
    assert select("none", eight) == Selection()
    assert select("none", Devices()).gpus == ()


def test_number_uuid_and_address_each_once(eight: Devices) -> None:
    text = f"0,{uuid_of(7).upper().replace('GPU', 'gpu')},0000:2b:00.0, 0,2B:0.0"
    chosen = select(text, eight)
    assert [gpu.minor for gpu in chosen.gpus] == [3, 1, 7]
    assert not chosen.everything


def test_all_by_number_is_everything(eight: Devices) -> None:
    assert select("0,1,2,3,4,5,6,7", eight).everything


def test_numbers_count_the_usable_gpus(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.kernel_module()
    driver.gpus(eight_gpus())
    for minor in (2, 3):
        driver.node(f"nvidia{minor}", 195, minor, "no")
    devices = find_devices(driver.root)
    assert [gpu.minor for gpu in select("0,5", devices).gpus] == [1, 6]
    assert len(select("all", devices).gpus) == 8
    with pytest.raises(NotFoundError) as caught:
        select("6", devices)
    message = str(caught.value)
    assert '"6"' in message and "may use 6 GPUs" in message
    assert uuid_of(1) in message and "/dev/nvidia2" in message and "/dev/nvidia3" in message


def test_host_numbers_count_every_gpu(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.kernel_module()
    driver.gpus(eight_gpus())
    driver.node("nvidia3", 195, 3, "no")
    devices = find_devices(driver.root)
    assert [gpu.minor for gpu in select("host:1,host:7", devices).gpus] == [1, 6]
    with pytest.raises(NotFoundError):
        select("host:0", devices)
    with pytest.raises(NotFoundError):
        select("host:8", devices)


@pytest.mark.parametrize(
    "item",
    ["9", "GPU-0", uuid_of(9), "0000:ff:00.0", "0:0", f"MIG-{uuid_of(3)}/1/0", uuid_of(3)[:-1]],
)
def test_unknown_devices_are_named(eight: Devices, item: str) -> None:
    with pytest.raises(NotFoundError, match="unknown device"):
        select(item, eight)


@pytest.mark.parametrize("item", ["x", "-1", "1.5", "0:x", "\u0661", "MIG-a/b/c", "MIG-a/1", "0-3"])
def test_malformed_items_are_refused(eight: Devices, item: str) -> None:
    with pytest.raises(UsageError, match="cannot parse"):
        select(item, eight)


@pytest.mark.parametrize(
    ("item", "minor", "instance"),
    [
        ("0:0", 1, (1, 0)),
        ("0:2", 1, (2, 1)),
        ("1:0", 0, (3, 0)),
        (f"MIG-{uuid_of(1)}/2/0", 1, (2, 0)),
        (f"MIG-{uuid_of(0).removeprefix('GPU-')}/3/0", 0, (3, 0)),
    ],
)
def test_mig_devices_select_their_gpu_too(
    mig: Devices, item: str, minor: int, instance: tuple[int, int]
) -> None:
    chosen = select(item, mig)
    assert [gpu.minor for gpu in chosen.gpus] == [minor]
    ((gpu, device),) = chosen.mig
    assert gpu.minor == minor
    assert (device.gpu_instance, device.compute_instance) == instance
    assert not chosen.everything and chosen.warnings == ()


def test_mig_uuids_are_asked_of_nvml(mig: Devices) -> None:
    asked = []

    def answer(uuid: str) -> tuple[str, int, int]:
        asked.append(uuid)
        return uuid_of(1), 2, 1

    wanted = parse_device_list("MIG-aaaa-bbbb")
    chosen = select_devices(wanted, mig, origin="--gpus", mig_by_uuid=answer)
    assert asked == ["MIG-aaaa-bbbb"]
    assert [(m.gpu_instance, m.compute_instance) for _, m in chosen.mig] == [(2, 1)]


def test_a_gpu_in_mig_mode_without_its_devices_is_warned_of(mig: Devices) -> None:
    assert "MIG mode" in select("0", mig).warnings[0]
    assert select("0,0:1", mig).warnings == ()


def test_all_takes_every_mig_device(mig: Devices) -> None:
    assert len(select("all", mig).mig) == 4
    assert select("0:0,0:1,0:2,1:0", mig).everything


def test_slots_that_no_instance_has(mig: Devices) -> None:
    for item in ("0:3", "1:1", f"MIG-{uuid_of(1)}/9/0"):
        with pytest.raises(NotFoundError):
            select(item, mig)
