"""Fake sysfs trees: verbs devices, AMD, Intel and Gaudi accelerators."""

from __future__ import annotations

import os
from pathlib import Path

from tests.roots.driver import FakeDriver


def link(path: Path, target: Path) -> None:
    """Make a relative link, as the kernel's are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


def verbs_device(
    host: FakeDriver, number: int, pci: str, *, name: str = "", driver: str = "mlx5_core",
    interface: bool = True, node: bool = True,
) -> None:  # fmt: skip
    """Add one verbs device with its interface, management devices and class links."""
    name = name or f"mlx5_{number}"
    sys = host.path / "sys"
    function = sys / f"devices/pci0000:00/{pci}"
    own = function / f"infiniband_verbs/uverbs{number}"
    own.mkdir(parents=True)
    (own / "ibdev").write_text(f"{name}\n")
    link(own / "device", function)
    link(sys / f"class/infiniband_verbs/uverbs{number}", own)
    (sys / "class/infiniband_verbs/abi_version").write_text("6\n")
    if interface:
        (function / f"infiniband/{name}").mkdir(parents=True)
        link(sys / f"class/infiniband/{name}", function / f"infiniband/{name}")
    for mad in (f"umad{number}", f"issm{number}"):
        (function / f"infiniband_mad/{mad}").mkdir(parents=True)
        link(sys / f"class/infiniband_mad/{mad}", function / f"infiniband_mad/{mad}")
        host.node(f"infiniband/{mad}", 231, number)
    (sys / "class/infiniband_mad/abi_version").write_text("5\n")
    (sys / f"bus/pci/drivers/{driver}").mkdir(parents=True, exist_ok=True)
    link(function / "driver", sys / f"bus/pci/drivers/{driver}")
    if node:
        host.node(f"infiniband/uverbs{number}", 231, 192 + number)
    host.node("infiniband/rdma_cm", 10, 125)


def drm_device(host: FakeDriver, number: int, address: str, driver: str) -> None:
    """Add a DRM device with a card and a render node; `address` may name a platform device."""
    sys = host.path / "sys"
    bus = "pci0000:00" if ":" in address else "platform"
    function = sys / f"devices/{bus}/{address}"
    function.mkdir(parents=True, exist_ok=True)
    if ":" in address:
        (sys / f"bus/pci/drivers/{driver}").mkdir(parents=True, exist_ok=True)
        link(function / "driver", sys / f"bus/pci/drivers/{driver}")
        link(sys / f"bus/pci/devices/{address}", function)
    for name, minor in ((f"card{number}", number), (f"renderD{128 + number}", 128 + number)):
        (function / f"drm/{name}").mkdir(parents=True)
        link(function / f"drm/{name}/device", function)
        link(sys / f"class/drm/{name}", function / f"drm/{name}")
        host.node(f"dri/{name}", 226, minor)
    # A connector, which is no device.
    (function / f"drm/card{number}/card{number}-DP-1").mkdir()
    link(sys / f"class/drm/card{number}-DP-1", function / f"drm/card{number}/card{number}-DP-1")


def kfd_node(host: FakeDriver, number: int, render_minor: int, unique_id: int = 0) -> None:
    """Add a node to KFD's topology; 0 for a processor's."""
    host.write(
        f"sys/class/kfd/kfd/topology/nodes/{number}/properties",
        f"cpu_cores_count 0\ndrm_render_minor {render_minor}\nunique_id {unique_id}\n",
    )


def gaudi_device(host: FakeDriver, number: int, pci: str) -> None:
    sys = host.path / "sys"
    function = sys / f"devices/pci0000:00/{pci}"
    (function / f"accel/accel{number}").mkdir(parents=True)
    link(function / f"accel/accel{number}/device", function)
    link(sys / f"class/accel/accel{number}", function / f"accel/accel{number}")
    (sys / "bus/pci/drivers/habanalabs").mkdir(parents=True, exist_ok=True)
    link(function / "driver", sys / "bus/pci/drivers/habanalabs")
    host.node(f"accel/accel{number}", 261, number)
    host.node(f"accel/accel_controlD{number}", 261, 64 + number)
