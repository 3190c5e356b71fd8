"""Plans of NVIDIA injections, from fake driver roots to `Injection`."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from enroot_py.errors import DeviceError, NotFoundError, UsageError
from enroot_py.gpu.driver_root import DriverRoot
from enroot_py.gpu.injection import Injection
from enroot_py.gpu.nvidia.plan import Privileges
from enroot_py.gpu.planning import plan_request
from enroot_py.gpu.request import read_options, read_request
from enroot_py.gpu.situation import Situation
from tests.roots.driver import (
    LIB,
    VERSION,
    FakeDriver,
    FakeGpu,
    eight_gpus,
    full_driver,
    one_gpu,
    uuid_of,
)
from tests.roots.fabric import verbs_device
from tests.roots.shared_objects import returns, stores, stores_text, write_stub


def plan(
    root: DriverRoot,
    gpus: str = "",
    launcher: dict[str, str] | None = None,
    container: dict[str, str] | None = None,
    privileges: Privileges = Privileges(),  # noqa: B008
) -> Injection:
    launcher, container = launcher or {}, container or {}
    options = read_options(launcher)
    request = read_request(launcher, container, options, gpus=gpus)
    return plan_request(
        request, options, Situation(root, "x86_64", launcher, container, privileges)
    )


def targets(injection: Injection) -> list[str]:
    return [device.target for device in injection.devices]


class Untouchable(DriverRoot):
    """A driver root that must not be looked at."""

    def resolve(self, path: str) -> str | None:
        raise AssertionError(f"looked at {path}")


@pytest.mark.parametrize("text", [None, "", "void", "VOID,all"])
def test_unset_empty_and_void_look_at_nothing(text: str | None) -> None:
    container = {} if text is None else {"NVIDIA_VISIBLE_DEVICES": text}
    assert plan(Untouchable(), container=container).empty


def test_none_brings_the_driver_and_no_gpu(tmp_path: Path) -> None:
    injection = plan(full_driver(tmp_path, eight_gpus()).root, "none")
    assert {library.soname for library in injection.libraries} >= {"libcuda.so.1"}
    assert "/usr/bin/nvidia-smi" in {program.target for program in injection.programs}
    assert "/dev/nvidiactl" in targets(injection)
    assert not [path for path in targets(injection) if path[11:].isdigit()]
    assert len(injection.hidden) == 8
    assert injection.visible_gpus == ()


def test_none_without_gpus_and_nodes_starts(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.libraries()
    driver.cache()
    driver.programs()
    injection = plan(driver.root, "none")
    assert injection.devices == () and injection.libraries


def test_all_of_eight(tmp_path: Path) -> None:
    injection = plan(full_driver(tmp_path, eight_gpus()).root, "all")
    nodes = [path for path in targets(injection) if path[11:].isdigit()]
    assert nodes == [f"/dev/nvidia{minor}" for minor in (3, 1, 0, 7, 2, 5, 4, 6)]
    assert injection.hidden == () and injection.visible_gpus is None


def test_all_includes_what_this_task_may_not_open(tmp_path: Path) -> None:
    driver = full_driver(tmp_path, eight_gpus())
    for minor in (2, 3):
        driver.node(f"nvidia{minor}", 195, minor, "no")
    injection = plan(driver.root, "all")
    assert len([path for path in targets(injection) if path[11:].isdigit()]) == 8


def test_a_subset_hides_the_others(tmp_path: Path) -> None:
    gpus = eight_gpus()
    driver = full_driver(tmp_path, gpus)
    for number, gpu in enumerate(gpus):
        driver.drm(gpu, number)
    injection = plan(driver.root, "1,2", {"NVIDIA_DRIVER_CAPABILITIES": "all"})
    assert {"/dev/nvidia1", "/dev/nvidia0", "/dev/dri/card1", "/dev/dri/renderD130"} <= set(
        targets(injection)
    )
    assert {"/dev/nvidia3", "/dev/dri/card0", "/dev/dri/renderD128"} <= set(injection.hidden)
    assert "/dev/dri/by-path/pci-0000:1b:00.0-card" in injection.hidden
    assert not set(injection.hidden) & set(targets(injection))
    assert injection.visible_gpus == (1, 2)
    assert [link.path for link in injection.links if link.path.startswith("/dev")] == [
        f"/dev/dri/by-path/pci-{pci}-{kind}"
        for pci in ("0000:2b:00.0", "0000:3b:00.0")
        for kind in ("card", "render")
    ]


def test_mig_devices_bring_their_nodes_and_hide_the_others(tmp_path: Path) -> None:
    gpus = [
        FakeGpu(0, "0000:1b:00.0", uuid_of(0), mig={1: (0,), 2: (0,)}),
        FakeGpu(1, "0000:2b:00.0", uuid_of(1), mig={1: (0,)}),
    ]
    injection = plan(full_driver(tmp_path, gpus).root, "0:1")
    assert [path for path in targets(injection) if "nvidia-cap" in path or path[11:].isdigit()] == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap103",
        "/dev/nvidia-caps/nvidia-cap104",
    ]
    assert set(injection.hidden) == {
        "/dev/nvidia1",
        *(f"/dev/nvidia-caps/nvidia-cap{n}" for n in (101, 102, 105, 106)),
    }


@pytest.mark.parametrize(
    ("capabilities", "has", "lacks"),
    [
        ("utility", {"/dev/nvidiactl"}, {"/dev/nvidia-uvm", "/dev/nvidia-modeset"}),
        ("compute", {"/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}, {"/dev/nvidia-modeset"}),
        ("video", {"/dev/nvidia-uvm"}, set()),
        ("graphics", {"/dev/nvidia-modeset"}, {"/dev/nvidia-uvm"}),
        ("all", {"/dev/nvidia-uvm", "/dev/nvidia-modeset"}, set()),
    ],
)
def test_control_nodes(tmp_path: Path, capabilities: str, has: set[str], lacks: set[str]) -> None:
    root = full_driver(tmp_path).root
    injection = plan(root, "all", {"NVIDIA_DRIVER_CAPABILITIES": capabilities})
    assert has <= set(targets(injection))
    assert not lacks & set(targets(injection))


def test_utility_alone_warns_that_cuda_will_not_be_found(tmp_path: Path) -> None:
    injection = plan(full_driver(tmp_path).root, "all", {"NVIDIA_DRIVER_CAPABILITIES": "utility"})
    assert any("NVIDIA_DRIVER_CAPABILITIES=utility" in text for text in injection.warnings)


def test_a_missing_uvm_module_is_warned_of_with_the_fix(tmp_path: Path) -> None:
    driver = full_driver(tmp_path)
    (tmp_path / "dev/nvidia-uvm").unlink()
    assert any("nvidia-modprobe -u -c 0" in text for text in plan(driver.root, "all").warnings)


@pytest.mark.parametrize(
    ("text", "channels"), [("", [0, 3]), ("all", [0, 3]), ("3", [3]), ("channel0", [0])]
)
def test_imex_channels(tmp_path: Path, text: str, channels: list[int]) -> None:
    driver = full_driver(tmp_path)
    driver.imex(0, 3)
    injection = plan(driver.root, "all", {"NVIDIA_IMEX_CHANNELS": text})
    found = [path for path in targets(injection) if "imex" in path]
    assert found == [f"/dev/nvidia-caps-imex-channels/channel{n}" for n in channels]
    none = plan(driver.root, "all", {"NVIDIA_DRIVER_CAPABILITIES": "utility"})
    assert not [path for path in targets(none) if "imex" in path]


def test_gated_devices(tmp_path: Path) -> None:
    driver = full_driver(tmp_path)
    for name in ("nvidia-fs0", "nvidia-nvswitch0", "nvidia-nvswitchctl", "gdrdrv"):
        driver.node(name, 240, 1)
    driver.write("etc/cufile.json", "{}")
    closed = plan(driver.root, "all")
    assert "/dev/gdrdrv" in targets(closed)
    assert not [path for path in targets(closed) if "fs0" in path or "nvswitch" in path]
    open_ = plan(driver.root, "all", {"NVIDIA_GDS": "enabled", "NVIDIA_NVSWITCH": "enabled"})
    assert {"/dev/nvidia-fs0", "/dev/nvidia-nvswitch0", "/dev/nvidia-nvswitchctl"} <= set(
        targets(open_)
    )
    assert "/etc/cufile.json" in [bind.target for bind in open_.binds]


def test_the_fabric_comes_along_if_asked_for(tmp_path: Path) -> None:
    driver = full_driver(tmp_path)
    verbs_device(driver, 0, "0000:1a:00.0")
    assert "/dev/infiniband/uverbs0" not in targets(plan(driver.root, "all"))
    given = plan(driver.root, "all", {"NVIDIA_MOFED": "enabled"})
    assert "/dev/infiniband/uverbs0" in targets(given)


def test_mps_needs_the_hosts_ipc_namespace(tmp_path: Path) -> None:
    driver = full_driver(tmp_path)
    (tmp_path / "tmp/nvidia-mps").mkdir(parents=True)
    shared = plan(driver.root, "all")
    assert f"{tmp_path}/tmp/nvidia-mps" in [bind.target for bind in shared.binds]
    own = plan(driver.root, "all", privileges=Privileges(shared_ipc=False))
    assert "MPS" not in [bind.reason for bind in own.binds]
    assert any("MPS" in text for text in own.warnings)


def test_sockets_are_not_read_only(tmp_path: Path) -> None:
    driver = full_driver(tmp_path)
    driver.socket()
    (bind,) = [b for b in plan(driver.root, "all").binds if b.kind == "socket"]
    assert "ro" not in bind.options and {"nosuid", "nodev", "noexec"} <= set(bind.options)


def test_mig_administration_is_for_real_root(tmp_path: Path) -> None:
    gpus = [FakeGpu(0, "0000:1b:00.0", uuid_of(0), mig={1: (0,)})]
    driver = full_driver(tmp_path, gpus)
    (tmp_path / "proc/driver/nvidia/capabilities/mig").mkdir()
    for number in (1, 2):
        driver.node(f"nvidia-caps/nvidia-cap{number}", 234, number)
    asked = {"NVIDIA_MIG_CONFIG_DEVICES": "all", "NVIDIA_MIG_MONITOR_DEVICES": "all"}
    root = Privileges(real_root=True)
    assert {f"/dev/nvidia-caps/nvidia-cap{n}" for n in (1, 2)} <= set(
        targets(plan(driver.root, "all", asked, privileges=root))
    )
    with pytest.raises(DeviceError, match="real root"):
        plan(driver.root, "all", asked)
    by_image = plan(driver.root, "all", container=asked)
    assert any("administer MIG" in text for text in by_image.warnings)
    with pytest.raises(UsageError, match="single MIG devices"):
        two = [*gpus, FakeGpu(1, "0000:2b:00.0", uuid_of(1))]
        other = full_driver(tmp_path / "two", two)
        plan(other.root, "0:0", asked, privileges=root)


def test_without_a_driver_an_image_starts_with_a_warning(tmp_path: Path) -> None:
    root = FakeDriver(tmp_path).root
    injection = plan(root, container={"NVIDIA_VISIBLE_DEVICES": "all"})
    assert injection.empty
    (warning,) = injection.warnings
    assert "no NVIDIA driver on this host" in warning and "without GPUs" in warning


@pytest.mark.parametrize(
    ("gpus", "launcher"),
    [
        ("all", {}),
        ("none", {}),
        ("", {"NVIDIA_VISIBLE_DEVICES": "all"}),
        ("", {"ENROOT_GPU_DEFAULT_DEVICES": "all"}),
    ],
)
def test_without_a_driver_a_user_who_asks_is_told(
    tmp_path: Path, gpus: str, launcher: dict[str, str]
) -> None:
    with pytest.raises(NotFoundError, match="no NVIDIA driver") as caught:
        plan(FakeDriver(tmp_path).root, gpus, launcher)
    assert "void" in caught.value.hint


def test_the_administrator_can_demand_a_driver(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        plan(
            FakeDriver(tmp_path).root, "", {"ENROOT_GPU_REQUIRED": "y"},
            {"NVIDIA_VISIBLE_DEVICES": "all"},
        )  # fmt: skip


def test_a_kernel_module_without_libraries_is_no_driver(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.kernel_module()
    driver.gpus(one_gpu())
    with pytest.raises(NotFoundError, match="ibraries"):
        plan(driver.root, "all")


def test_versions_that_do_not_match_are_reported_before_the_start(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.kernel_module()
    driver.gpus(one_gpu())
    driver.version = "580.105.08"
    driver.libraries()
    driver.cache()
    with pytest.raises(DeviceError, match="mismatch.*580.95.05.*580.105.08") as caught:
        plan(driver.root, "all")
    assert "reload" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "platform"), [("dev/dxg", "WSL"), ("etc/nv_tegra_release", "TEGRA")]
)
def test_other_platforms_go_through_cdi(tmp_path: Path, name: str, platform: str) -> None:
    driver = FakeDriver(tmp_path)
    driver.write(name)
    with pytest.raises(DeviceError, match=platform) as caught:
        plan(driver.root, "all")
    assert "CDI" in caught.value.hint


def test_requirements(tmp_path: Path) -> None:
    root = full_driver(tmp_path).root
    image = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_REQUIRE_CUDA": "cuda>=99.1"}
    with pytest.raises(DeviceError) as caught:
        plan(root, container=image)
    for part in ("unsatisfied condition: cuda>=99.1", "NVIDIA_REQUIRE_CUDA", "580.95.05", "13.0"):
        assert part in str(caught.value)
    assert not plan(root, container={**image, "NVIDIA_DISABLE_REQUIRE": "1"}).empty
    fine = {**image, "NVIDIA_REQUIRE_CUDA": "cuda>=12.0 brand=tesla,driver>=470"}
    assert not plan(root, container=fine).empty


def test_a_damaged_cache_is_worth_a_note(tmp_path: Path) -> None:
    driver = full_driver(tmp_path)
    (tmp_path / "etc/ld.so.cache").write_bytes(b"x")
    injection = plan(driver.root, "all")
    assert len(injection.notes) == 1 and "loader cache" in injection.notes[0]


def test_names_that_no_soname_has(tmp_path: Path) -> None:
    injection = plan(full_driver(tmp_path).root, "all", {"NVIDIA_DRIVER_CAPABILITIES": "all"})
    names = {library.soname: library.names for library in injection.libraries}
    assert "libcuda.so" in names["libcuda.so.1"]
    assert "libnvidia-opticalflow.so" in names["libnvidia-opticalflow.so.1"]
    assert "libGLX_indirect.so.0" in names["libGLX_nvidia.so.0"]
    assert [link.path for link in injection.links] == ["lib:gbm/nvidia-drm_gbm.so"]


def test_the_application_profile_masks_the_minors(tmp_path: Path) -> None:
    environ = {"NVIDIA_DRIVER_CAPABILITIES": "graphics"}
    injection = plan(full_driver(tmp_path, eight_gpus()).root, "0,3", environ)
    (text,) = injection.texts
    assert text.path == "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf"
    assert "0x88" in text.content  # minors 3 and 7
    assert plan(full_driver(tmp_path / "b").root, "none", environ).texts == ()


@pytest.mark.parametrize(
    ("setting", "real_root", "proc"),
    [("", False, ""), ("", True, "params"), ("none", True, ""), ("params", False, "params"),
     ("full", False, "full"), ("auto", False, "")],
)  # fmt: skip
def test_the_treatment_of_proc(tmp_path: Path, setting: str, real_root: bool, proc: str) -> None:
    launcher = {"ENROOT_GPU_PROC": setting} if setting else {}
    privileges = Privileges(real_root=real_root)
    assert plan(full_driver(tmp_path).root, "all", launcher, privileges=privileges).proc == proc


def test_nodes_that_permissions_deny_are_named(tmp_path: Path) -> None:
    class Denied(type(full_driver(tmp_path).root)):  # type: ignore[misc]
        def node(self, path: str):  # type: ignore[no-untyped-def]
            node = super().node(path)
            if node is not None and path == "/dev/nvidia0":
                return node._replace(usable=False, owner="0:44 0660", mode=0o020660)
            return node

    injection = plan(Denied(root=str(tmp_path)), "all")
    assert any("/dev/nvidia0: permission denied" in t and "0660" in t for t in injection.warnings)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the stubs hold x86-64 code")
def test_a_mig_uuid_is_resolved_by_the_drivers_own_library(tmp_path: Path) -> None:
    gpus = [FakeGpu(1, "0000:1b:00.0", uuid_of(1), mig={2: (5,), 3: (0,)})]
    driver = full_driver(tmp_path, gpus)
    library = tmp_path / LIB / f"libnvidia-ml.so.{VERSION}"
    functions = {
        "nvmlInit_v2": returns(0),
        "nvmlDeviceGetHandleByUUID": returns(0),
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": returns(0),
        "nvmlDeviceGetGpuInstanceId": stores(2),
        "nvmlDeviceGetComputeInstanceId": stores(5),
        "nvmlDeviceGetUUID": stores_text(uuid_of(1)),
    }
    write_stub(library, "libnvidia-ml.so.1", functions=functions)
    injection = plan(driver.root, "MIG-01234567-89ab-cdef-0123-456789abcdef")
    assert [path for path in targets(injection) if "cap" in path or path[11:].isdigit()] == [
        "/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap101", "/dev/nvidia-caps/nvidia-cap102",
    ]  # fmt: skip
    write_stub(library, "libnvidia-ml.so.1", functions={"nvmlInit_v2": returns(9)})
    with pytest.raises(DeviceError, match="needs NVML to resolve"):
        plan(driver.root, "MIG-01234567-89ab-cdef-0123-456789abcdef")
