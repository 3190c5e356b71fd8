"""InfiniBand, RoCE and EFA devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from enroot_py.errors import NotFoundError
from enroot_py.gpu.injection import NO_INJECTION, Injection
from enroot_py.gpu.rdma import LOW_MEMLOCK, find_rdma_devices, plan_rdma, visible_list
from tests.roots.driver import FakeDriver
from tests.roots.fabric import verbs_device

MELLANOX = "MELLANOX_VISIBLE_DEVICES"


@pytest.fixture
def host(tmp_path: Path) -> FakeDriver:
    """Three Mellanox functions whose verbs numbers are not in PCI order, one of them a virtual
    function without an interface; an EFA device; and no class infiniband_cm."""
    host = FakeDriver(tmp_path)
    verbs_device(host, 2, "0000:1a:00.0")
    verbs_device(host, 0, "0000:3a:00.0")
    verbs_device(host, 1, "0000:2a:00.1", interface=False)
    verbs_device(host, 3, "0000:4a:00.0", name="rdmap74s0", driver="efa")
    return host


def plan(
    host: FakeDriver, text: str, variable: str = MELLANOX, *, real_root: bool = False,
    memlock: int = -1,
) -> Injection:  # fmt: skip
    root = host.root
    return plan_rdma(
        text, variable, find_rdma_devices(root), root, real_root=real_root, memlock=memlock
    )


def targets(injection: Injection) -> list[str]:
    return [device.target.rpartition("/")[2] for device in injection.devices]


def test_devices_are_grouped_by_function_and_come_in_pci_order(host: FakeDriver) -> None:
    found = [(d.verbs, d.name, d.pci, d.driver) for d in find_rdma_devices(host.root)]
    assert found == [
        ("uverbs2", "mlx5_2", "0000:1a:00.0", "mlx5_core"),
        ("uverbs1", "", "0000:2a:00.1", "mlx5_core"),
        ("uverbs0", "mlx5_0", "0000:3a:00.0", "mlx5_core"),
        ("uverbs3", "rdmap74s0", "0000:4a:00.0", "efa"),
    ]


def test_all_takes_what_works_and_hides_nothing(host: FakeDriver) -> None:
    injection = plan(host, "all")
    assert targets(injection) == ["uverbs2", "uverbs0", "rdma_cm"]
    assert injection.hidden == () and injection.sysfs_classes == ()


def test_the_variable_for_every_vendor(host: FakeDriver) -> None:
    assert targets(plan(host, "all", "RDMA_VISIBLE_DEVICES")) == [
        "uverbs2", "uverbs0", "uverbs3", "rdma_cm",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "item", ["2", "mlx5_0", "uverbs0", "0000:3a:00.0", "3A:00.0", " 2 , mlx5_0"]
)
def test_a_device_by_any_of_its_names_hides_the_others(host: FakeDriver, item: str) -> None:
    injection = plan(host, item)
    assert targets(injection) == ["uverbs0", "rdma_cm"]
    hidden = {path.rpartition("/")[2] for path in injection.hidden}
    assert {"uverbs2", "umad2", "issm2", "uverbs1"} <= hidden
    assert "uverbs0" not in hidden
    classes = dict(injection.sysfs_classes)
    base = "/sys/devices/pci0000:00/0000:3a:00.0"
    assert classes["/sys/class/infiniband"] == (("mlx5_0", f"{base}/infiniband/mlx5_0"),)
    assert classes["/sys/class/infiniband_verbs"] == (
        ("uverbs0", f"{base}/infiniband_verbs/uverbs0"),
    )
    assert [name for name, _ in classes["/sys/class/infiniband_mad"]] == ["issm0", "umad0"]
    assert "/sys/class/infiniband_cm" not in classes


def test_a_device_without_an_interface_is_a_clear_error(host: FakeDriver) -> None:
    with pytest.raises(NotFoundError, match="uverbs1.*no interface"):
        plan(host, "1")


def test_a_device_without_a_node_is_a_clear_error(tmp_path: Path) -> None:
    host = FakeDriver(tmp_path)
    verbs_device(host, 0, "0000:1a:00.0", node=False)
    with pytest.raises(NotFoundError, match="/dev/infiniband/uverbs0 is missing"):
        plan(host, "0")
    assert plan(host, "all").devices == ()


@pytest.mark.parametrize("item", ["9", "mlx5_9", "x", "0000:4a:00.0", "-1"])
def test_unknown_devices_are_named_with_those_that_there_are(host: FakeDriver, item: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        plan(host, item)
    assert f'"{item}"' in str(caught.value) and "mlx5_2" in str(caught.value)


@pytest.mark.parametrize("text", ["", "void", "none", "None,0"])
def test_lists_that_ask_for_nothing(host: FakeDriver, text: str) -> None:
    assert plan(host, text) == NO_INJECTION


def test_management_devices_are_for_real_root(host: FakeDriver) -> None:
    assert "umad2" not in targets(plan(host, "all"))
    assert {"umad2", "issm0"} <= set(targets(plan(host, "all", real_root=True)))


@pytest.mark.parametrize(
    ("limit", "warned"), [(-1, ""), (LOW_MEMLOCK, ""), (8 << 20, "8 MiB"), (65536, "64 KiB")]
)
def test_a_low_limit_of_locked_memory_is_warned_of(
    host: FakeDriver, limit: int, warned: str
) -> None:
    warnings = plan(host, "all", memlock=limit).warnings
    assert (warned in warnings[0]) if warned else not warnings


def test_a_host_without_fabric(tmp_path: Path) -> None:
    assert plan(FakeDriver(tmp_path), "all") == NO_INJECTION


@pytest.mark.parametrize(
    ("launcher", "container", "answer"),
    [
        ({}, {}, ("", "")),
        ({}, {MELLANOX: "all"}, ("all", MELLANOX)),
        ({MELLANOX: "0"}, {MELLANOX: "all"}, ("0", MELLANOX)),
        ({MELLANOX: ""}, {MELLANOX: "all"}, ("", "")),
        ({MELLANOX: "0"}, {"RDMA_VISIBLE_DEVICES": "1"}, ("1", "RDMA_VISIBLE_DEVICES")),
    ],
)
def test_whose_list_counts(
    launcher: dict[str, str], container: dict[str, str], answer: tuple[str, str]
) -> None:
    assert visible_list(launcher, container) == answer
