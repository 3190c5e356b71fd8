"""CDI edits to injections: AMD-, Intel- and NVIDIA-shaped specifications, and the rest."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from enroot_py.errors import DeviceError, NotFoundError, UnsupportedError
from enroot_py.gpu.cdi.planning import native_list_as_cdi, plan_cdi
from enroot_py.gpu.driver_root import DriverRoot
from enroot_py.gpu.injection import Injection
from enroot_py.gpu.nvidia.selection import DeviceList
from enroot_py.gpu.request import GpuOptions
from enroot_py.gpu.situation import Situation
from tests.gpu.cdi.specs import write
from tests.roots.driver import FakeDriver, full_driver
from tests.roots.shared_objects import write_stub


def plan(
    tmp_path: Path, edits: dict[str, object], *, kind: str = "vendor.com/device",
    common: dict[str, object] | None = None, version: str = "1.1.0",
    launcher: dict[str, str] | None = None, root: DriverRoot | None = None,
    **options: object,
) -> Injection:  # fmt: skip
    document: dict[str, object] = {
        "cdiVersion": version,
        "kind": kind,
        "devices": [{"name": "0", "containerEdits": edits}],
    }
    if common:
        document["containerEdits"] = common
    write(tmp_path / "etc/cdi/spec.yaml", document)
    given = GpuOptions(cdi_folders=(str(tmp_path / "etc/cdi"),), **options)  # type: ignore[arg-type]
    place = root or FakeDriver(tmp_path / "none").root
    return plan_cdi((f"{kind}=0",), given, Situation(place, "x86_64", launcher or {}, {}))


NULL = {"path": "/dev/x", "hostPath": "/dev/null", "type": "c", "major": 1, "minor": 3}


def test_nodes_keep_their_place_in_the_container(tmp_path: Path) -> None:
    injection = plan(tmp_path, {"deviceNodes": [NULL, {"path": "/dev/zero"}]})
    assert [(d.source, d.target) for d in injection.devices] == [
        ("/dev/null", "/dev/x"), ("/dev/zero", "/dev/zero"),
    ]  # fmt: skip
    assert injection.warnings == ()


def test_the_later_of_two_nodes_mounts_and_variables_counts(tmp_path: Path) -> None:
    common = {
        "deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/zero"}],
        "mounts": [{"hostPath": "/etc", "containerPath": "/m"}],
        "env": ["A=1", "B=1"],
    }
    edits = {
        "deviceNodes": [NULL],
        "mounts": [{"hostPath": "/usr", "containerPath": "/m"}],
        "env": ["A=2=3"],
    }
    injection = plan(tmp_path, edits, common=common)
    assert [d.source for d in injection.devices] == ["/dev/null"]
    assert [b.source for b in injection.binds] == ["/usr"]
    assert injection.environ == (("A", "2=3"), ("B", "1"))


def test_a_missing_node_says_to_generate_again(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="/dev/controlD69") as caught:
        plan(tmp_path, {"deviceNodes": [{"path": "/dev/controlD69", "major": 226, "minor": 69}]})
    assert "generate" in caught.value.hint


def test_a_stale_number_is_warned_of_and_the_hosts_node_used(tmp_path: Path) -> None:
    injection = plan(tmp_path, {"deviceNodes": [{**NULL, "major": 511, "minor": 0}]})
    assert [d.source for d in injection.devices] == ["/dev/null"]
    assert "1:3" in injection.warnings[0] and "511:0" in injection.warnings[0]


@pytest.mark.parametrize(("kind", "fine"), [("c", True), ("u", True), ("b", False), ("p", False)])
def test_the_type_is_checked_against_the_node(tmp_path: Path, kind: str, fine: bool) -> None:
    edits = {"deviceNodes": [{"path": "/dev/null", "type": kind}]}
    if fine:
        assert plan(tmp_path, edits).devices
    else:
        with pytest.raises(DeviceError, match="not of type"):
            plan(tmp_path, edits)


def test_an_amd_shaped_specification(tmp_path: Path) -> None:
    node = {**NULL, "path": "/dev/kfd", "fileMode": 432, "uid": 0, "gid": 44, "permissions": "rw"}
    edits = {"deviceNodes": [node, {**NULL, "path": "/dev/dri/renderD128"}]}
    injection = plan(tmp_path, edits, kind="amd.com/gpu", version="0.6.0")
    assert [d.target for d in injection.devices] == ["/dev/kfd", "/dev/dri/renderD128"]


@pytest.mark.kernel
def test_a_missing_group_is_named(tmp_path: Path) -> None:
    assert os.geteuid() != 0, "for an ordinary user"
    path = tmp_path / "node"
    path.touch(0)
    edits = {"deviceNodes": [{"path": str(path), "gid": 44}], "additionalGids": [44]}
    injection = plan(tmp_path, edits, kind="amd.com/gpu")
    assert any("44" in text and "video" in text for text in injection.warnings)


def test_an_intel_shaped_specification(tmp_path: Path) -> None:
    folder = tmp_path / "by-path"
    folder.mkdir()
    edits = {
        "deviceNodes": [{**NULL, "path": "/dev/dri/card0"}],
        "mounts": [
            {"hostPath": str(folder), "containerPath": "/dev/dri/by-path",
             "options": ["ro", "nosuid", "nodev", "bind"], "type": "none"}
        ],
    }  # fmt: skip
    injection = plan(tmp_path, edits, kind="intel.com/gpu")
    (bind,) = injection.binds
    assert (bind.target, bind.kind, bind.required) == ("/dev/dri/by-path", "folder", True)
    assert bind.options == ("ro", "nosuid", "nodev")


def test_other_mounts(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        back = os.getcwd()
        os.chdir(tmp_path)
        try:
            server.bind("s")
        finally:
            os.chdir(back)
    edits = {
        "mounts": [
            {"hostPath": str(tmp_path / "s"), "containerPath": "/run/a/b/s"},
            {"hostPath": "tmpfs", "containerPath": "/scratch", "type": "tmpfs",
             "options": ["nosuid", "size=1m"]},
            {"hostPath": "/etc/hosts", "containerPath": "/h", "options": ["ro,idmap", "shared"]},
        ]
    }  # fmt: skip
    by_target = {bind.target: bind for bind in plan(tmp_path, edits).binds}
    assert by_target["/run/a/b/s"].kind == "socket"
    assert by_target["/scratch"].fstype == "tmpfs"
    assert by_target["/scratch"].options == ("nosuid", "size=1m")
    assert by_target["/h"].options == ("ro",)
    assert list(by_target) == ["/scratch", "/h", "/run/a/b/s"]


@pytest.mark.parametrize(
    ("mount", "what"),
    [
        ({"hostPath": "/missing", "containerPath": "/x"}, "/missing"),
        ({"hostPath": "/etc", "containerPath": "/x", "type": "overlay"}, "unknown mount type"),
        ({"hostPath": "/etc", "containerPath": "/x", "options": ["loop"]}, "unknown mount option"),
    ],
)
def test_mounts_that_cannot_be(tmp_path: Path, mount: dict[str, object], what: str) -> None:
    with pytest.raises(DeviceError, match=what):
        plan(tmp_path, {"mounts": [mount]})


def test_interfaces_need_privileges(tmp_path: Path) -> None:
    edits = {"netDevices": [{"hostInterfaceName": "eth7", "name": "eth0"}]}
    with pytest.raises(UnsupportedError, match="eth7"):
        plan(tmp_path, edits)
    injection = plan(tmp_path, edits, ignore_privileged=True)
    assert "eth7" in injection.warnings[0]


def test_resource_control_is_left_out_with_a_warning(tmp_path: Path) -> None:
    assert "intelRdt" in plan(tmp_path, {"intelRdt": {"closID": "x"}}).warnings[0]


HOOK = {"hookName": "createContainer", "path": "/opt/hook", "args": ["hook", "x"], "timeout": 2}


def test_unknown_hooks_by_setting(tmp_path: Path) -> None:
    late = {**HOOK, "hookName": "poststop"}
    edits = {"env": ["A=b"], "hooks": [HOOK, late]}
    warned = plan(tmp_path, edits)
    assert warned.hooks == () and "/opt/hook" in warned.warnings[0]
    with pytest.raises(DeviceError, match="/opt/hook"):
        plan(tmp_path, edits, unknown_hooks="error")
    run = plan(tmp_path, edits, unknown_hooks="run")
    assert [(h.stage, h.path, h.arguments, h.timeout) for h in run.hooks] == [
        ("createContainer", "/opt/hook", ("hook", "x"), 2)
    ]
    assert any("poststop" in note for note in run.notes)


def nvidia_spec(tmp_path: Path) -> tuple[dict[str, object], Path]:
    """Edits of NVIDIA's shape: libraries by their full names, links and cache left to hooks."""
    lib = tmp_path / "host"
    write_stub(lib / "libcuda.so.580.95.05", "libcuda.so.1")
    write_stub(lib / "vdpau/libvdpau_nvidia.so.580.95.05", "libvdpau_nvidia.so.1")
    write_stub(lib / "libnvidia-allocator.so.580.95.05", "libnvidia-allocator.so.1")
    (lib / "nvidia-smi").write_text("#!/bin/sh\n")
    (lib / "nvidia-smi").chmod(0o755)
    (lib / "10_nvidia.json").write_text("{}")

    def mount(name: str, folder: str = "/usr/lib64") -> dict[str, object]:
        return {
            "hostPath": str(lib / name), "containerPath": f"{folder}/{name}",
            "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
        }  # fmt: skip

    def hook(*args: str) -> dict[str, object]:
        return {"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook",
                "args": ["nvidia-cdi-hook", *args]}  # fmt: skip

    edits: dict[str, object] = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64"],
        "deviceNodes": [NULL],
        "mounts": [
            mount("libcuda.so.580.95.05"), mount("vdpau/libvdpau_nvidia.so.580.95.05"),
            mount("libnvidia-allocator.so.580.95.05"), mount("nvidia-smi", "/usr/bin"),
            mount("10_nvidia.json", "/usr/share/glvnd/egl_vendor.d"),
        ],
        "hooks": [
            hook("create-symlinks", "--link", "libcuda.so.1::/usr/lib64/libcuda.so",
                 "--link", "../libnvidia-allocator.so.1::/usr/lib64/gbm/nvidia-drm_gbm.so",
                 "--link", "../card0::/dev/dri/by-path/pci-0000:1b:00.0-card"),
            hook("update-ldcache", "--folder", "/usr/lib64", "--folder", "/usr/lib64/vdpau"),
            hook("disable-device-node-modification"),
            hook("update-application-profile"),
        ],
    }  # fmt: skip
    return edits, lib


def test_an_nvidia_shaped_specification_needs_no_hook_run(tmp_path: Path) -> None:
    edits, lib = nvidia_spec(tmp_path)
    injection = plan(tmp_path, edits, kind="nvidia.com/gpu", unknown_hooks="error")
    libraries = {library.soname: library for library in injection.libraries}
    assert libraries["libcuda.so.1"].source == f"{lib}/libcuda.so.580.95.05"
    assert set(libraries["libcuda.so.1"].names) == {"libcuda.so.580.95.05", "libcuda.so"}
    assert libraries["libvdpau_nvidia.so.1"].folder == "vdpau"
    assert [program.target for program in injection.programs] == ["/usr/bin/nvidia-smi"]
    assert [(link.path, link.target) for link in injection.links] == [
        ("lib:gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1"),
        ("/dev/dri/by-path/pci-0000:1b:00.0-card", "../card0"),
    ]
    assert [bind.target for bind in injection.binds] == [
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json"
    ]
    assert dict(injection.environ)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert injection.hooks == () and injection.texts and injection.proc == ""
    full = plan(tmp_path, edits, kind="nvidia.com/gpu", proc="params")
    assert full.proc == "params"


def test_libraries_stay_where_they_are_if_the_setting_says_so(tmp_path: Path) -> None:
    edits, lib = nvidia_spec(tmp_path)
    injection = plan(tmp_path, edits, kind="nvidia.com/gpu", rehome=False)
    assert injection.programs == ()
    targets = [bind.target for bind in injection.binds]
    assert "/usr/lib64/libcuda.so.580.95.05" in targets and "/usr/bin/nvidia-smi" in targets
    # … but the loader finds them all the same.
    assert "libcuda.so.1" in [library.soname for library in injection.libraries]


def test_a_sites_libraries_are_found_by_the_loader_if_a_hook_says_so(tmp_path: Path) -> None:
    write_stub(tmp_path / "libcxi.so.1", "libcxi.so.1")
    edits = {
        "mounts": [
            {"hostPath": str(tmp_path / "libcxi.so.1"), "containerPath": "/opt/cxi/libcxi.so.1"}
        ],
        "hooks": [
            {"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook",
             "args": ["nvidia-cdi-hook", "update-ldcache", "--folder", "/opt/cxi"]}
        ],
    }  # fmt: skip
    injection = plan(tmp_path, edits, kind="hpe.com/slingshot")
    assert [library.soname for library in injection.libraries] == ["libcxi.so.1"]
    assert injection.binds == () and injection.warnings == ()
    edits.pop("hooks")
    plain = plan(tmp_path, edits, kind="hpe.com/slingshot")
    assert [bind.target for bind in plain.binds] == ["/opt/cxi/libcxi.so.1"]
    assert plain.libraries == ()


def test_a_number_in_a_job_is_not_the_jobs_number(tmp_path: Path) -> None:
    path = tmp_path / "denied"
    path.touch(0)
    driver = full_driver(tmp_path / "driver")
    edits = {"deviceNodes": [{"path": "/dev/nvidia5", "hostPath": str(path)}]}
    if os.geteuid() == 0:  # root may open everything; that a job may not is then the cgroup's doing
        assert plan(tmp_path, edits, kind="nvidia.com/gpu", root=driver.root).devices
        return
    with pytest.raises(DeviceError, match="those of the job"):
        plan(tmp_path, edits, kind="nvidia.com/gpu", root=driver.root,
             launcher={"SLURM_JOB_ID": "1"})  # fmt: skip
    assert plan(tmp_path, edits, kind="nvidia.com/gpu", root=driver.root).devices


def test_a_native_list_in_an_installed_specification(tmp_path: Path) -> None:
    document = {
        "cdiVersion": "0.6.0", "kind": "nvidia.com/gpu",
        "devices": [{"name": n, "containerEdits": {"env": ["A=b"]}} for n in ("0", "all")],
    }  # fmt: skip
    write(tmp_path / "a.yaml", document)
    options = GpuOptions(cdi_folders=(str(tmp_path),))
    assert native_list_as_cdi(DeviceList(everything=True), options) == ("nvidia.com/gpu=all",)
    assert native_list_as_cdi(DeviceList(items=("0",)), options) == ("nvidia.com/gpu=0",)
    assert native_list_as_cdi(DeviceList(items=("0", "1")), options) == ()
    assert native_list_as_cdi(DeviceList(), options) == ()


def test_names_that_do_not_resolve(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="unresolvable CDI devices a/b=c"):
        given = GpuOptions(cdi_folders=(str(tmp_path),))
        plan_cdi(("a/b=c",), given, Situation(DriverRoot(str(tmp_path)), "x86_64", {}, {}))
