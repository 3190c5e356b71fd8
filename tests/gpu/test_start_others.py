"""Containers with CDI devices, fabrics, other vendors' accelerators, and started from images."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from enroot_py.gpu.cdi.generate import generate_spec
from enroot_py.gpu.driver_root import DriverRoot, Node
from enroot_py.gpu.loader.cache import parse_cache
from enroot_py.gpu.nvidia.discovery import find_devices
from enroot_py.gpu.planning import plan_request
from enroot_py.gpu.request import GpuOptions, read_request
from enroot_py.gpu.situation import Situation
from enroot_py.squashfs.reader import SquashfsImage
from tests.gpu.cdi.specs import write
from tests.gpu.containers import MEMORY_NODES, Containers, memory_driver, tree
from tests.roots.driver import VERSION, FakeDriver
from tests.roots.fabric import drm_device, kfd_node, verbs_device
from tests.roots.shared_objects import compat_note, returns, write_stub

pytestmark = pytest.mark.kernel

LOOK = """
ls /dev | /bin/busybox grep -E '^nvidia' | /bin/busybox sort
for n in 3 5; do dd if=/dev/nvidia$n bs=1 count=1 2>/dev/null | /bin/busybox wc -c; done
probe libcuda.so.1 libcuda.so libnvidia-ml.so.1 libnvcuvid.so.1 libGLX_indirect.so.0
nvidia-smi
ls -l /run/enroot/gpu/lib64 | /bin/busybox awk '{print $9, $10, $11}'
"""


class MemoryNodes(DriverRoot):
    """Sees the fake root's files as the memory devices that will be bound over them."""

    def node(self, path: str) -> Node | None:
        found = self.resolve(path)
        if found is None:
            return None
        digits = path.removeprefix("/dev/nvidia")
        minor = int(digits) if digits.isdigit() else 3
        return Node(path, found, 1, minor, True, "0:0 0666", 0, 0o020666)


def nvidia_spec(driver: FakeDriver, hook: str) -> dict[str, object]:
    root = MemoryNodes(root=str(driver.path))
    request = read_request({}, {"NVIDIA_DRIVER_CAPABILITIES": "all"}, GpuOptions(), gpus="all")
    injection = plan_request(request, GpuOptions(), Situation(root, "x86_64", {}, {}))
    return generate_spec(
        injection, find_devices(root), arch="x86_64", hook=hook, driver=VERSION,
        library_folder="/usr/lib/x86_64-linux-gnu",
    )  # fmt: skip


@pytest.mark.parametrize("device", ["all", "0", "1"])
@pytest.mark.parametrize("hooks", [True, False], ids=["hooks", "no hooks"])
def test_a_specification_gives_the_same_container_as_discovery(
    tmp_path: Path, rootfs: dict[str, Path], device: str, hooks: bool
) -> None:
    """… and none of its hooks is executed."""
    driver, binds = memory_driver(tmp_path / "driver")
    containers = Containers(tmp_path / "work", driver, binds)
    containers.add("box", rootfs["2.36"])
    trap = tmp_path / "nvidia-cdi-hook"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/executed\n")
    trap.chmod(0o755)
    write(tmp_path / "cdi/nvidia.yaml", nvidia_spec(driver, str(trap) if hooks else ""))
    given = {"NVIDIA_DRIVER_CAPABILITIES": "all", "ENROOT_CDI_DIRS": str(tmp_path / "cdi")}
    look = ("sh", "-c", LOOK)
    native = containers.output("box", *look, options=("--gpus", device), **given)
    by_cdi = containers.output(
        "box", *look, options=("--device", f"nvidia.com/gpu={device}"), **given
    )
    assert by_cdi == native
    assert "libcuda.so.1 ok 42" in native and f"nvidia-smi {VERSION}" in native
    preferred = containers.output(
        "box", *look, options=("--gpus", device), ENROOT_GPU_PREFER_CDI="yes", **given
    )
    assert preferred == native
    environ = containers.output(
        "box", "env", options=("--device", f"nvidia.com/gpu={device}"), **given
    )
    assert "NVIDIA_VISIBLE_DEVICES=void\n" in environ
    assert not (tmp_path / "executed").exists()


def spec(**edits: object) -> dict[str, object]:
    devices = [{"name": "a", "containerEdits": edits}]
    return {"cdiVersion": "0.6.0", "kind": "site.org/fabric", "devices": devices}


def test_a_site_specification(tmp_path: Path, rootfs: dict[str, Path]) -> None:
    """Nodes, mounts and variables as an administrator writes them for a fabric."""
    containers = Containers(tmp_path / "work", None, [])
    box = containers.add("box", rootfs["2.36"])
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libcxi.so.1").write_text("cxi")
    edits = {
        "env": ["FI_PROVIDER=cxi"],
        "deviceNodes": [{"path": "/dev/cxi0", "hostPath": "/dev/zero"}],
        "mounts": [
            {"hostPath": str(tmp_path / "lib"), "containerPath": "/opt/cray/lib",
             "options": ["ro", "nosuid"]},
            {"hostPath": "tmpfs", "containerPath": "/opt/scratch", "type": "tmpfs",
             "options": ["nosuid", "mode=700"]},
        ],
    }  # fmt: skip
    write(tmp_path / "cdi/site.json", spec(**edits))
    script = """
        echo $FI_PROVIDER; cat /opt/cray/lib/libcxi.so.1; echo
        /bin/busybox dd if=/dev/cxi0 bs=1 count=2 2>/dev/null | /bin/busybox wc -c
        touch /opt/cray/lib/x 2>/dev/null || echo closed; echo x > /opt/scratch/x && echo open
    """
    found = containers.output(
        "box", "sh", "-c", script, options=("--device", "site.org/fabric=a"),
        ENROOT_CDI_DIRS=str(tmp_path / "cdi"),
    )  # fmt: skip
    assert found.split() == ["cxi", "cxi", "2", "closed", "open"]
    # What is left is a mount point, which exports leave out.
    assert (box / "opt/scratch").stat().st_mode & 0o777 == 0


def test_devices_that_do_not_resolve_stop_the_start(
    tmp_path: Path, rootfs: dict[str, Path]
) -> None:
    containers = Containers(tmp_path / "work", None, [])
    containers.add("box", rootfs["2.36"])
    write(tmp_path / "cdi/site.json", spec(env=["A=b"]))
    done = containers.start(
        "box", "true", options=("--device", "site.org/fabric=b"), check=False,
        ENROOT_CDI_DIRS=str(tmp_path / "cdi"),
    )  # fmt: skip
    assert done.returncode == 1
    assert "unresolvable CDI devices site.org/fabric=b" in done.stderr
    assert "site.org/fabric=a" in done.stderr


@pytest.mark.parametrize("setting", ["run", "warn", "error"])
def test_hooks_of_others(tmp_path: Path, rootfs: dict[str, Path], setting: str) -> None:
    containers = Containers(tmp_path / "work", None, [])
    containers.add("box", rootfs["2.36"])
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\n/bin/cat > {tmp_path}/state\n/usr/bin/env > {tmp_path}/env\n")
    hook.chmod(0o755)
    edits = spec(hooks=[{"hookName": "createContainer", "path": str(hook), "env": ["K=v"]}])
    write(tmp_path / "cdi/site.json", edits)
    done = containers.start(
        "box", "true", options=("--device", "site.org/fabric=a", "--env", "LD_PRELOAD=/evil.so"),
        check=False, ENROOT_CDI_DIRS=str(tmp_path / "cdi"), ENROOT_CDI_UNKNOWN_HOOKS=setting,
    )  # fmt: skip
    assert (done.returncode == 0) == (setting != "error")
    assert (tmp_path / "state").exists() == (setting == "run")
    if setting == "run":
        state = json.loads((tmp_path / "state").read_text())
        assert state["status"] == "creating" and state["pid"] > 0
        environ = (tmp_path / "env").read_text()
        assert "K=v\n" in environ and "LD_PRELOAD" not in environ and "ENROOT" not in environ
    else:
        assert str(hook) in done.stderr


def test_an_image_cannot_choose_cdi_devices(tmp_path: Path, rootfs: dict[str, Path]) -> None:
    containers = Containers(tmp_path / "work", None, [])
    box = containers.add("box", rootfs["2.36"])
    write(tmp_path / "cdi/site.json", spec(env=["A=b"]))
    (box / "etc/environment").write_text("NVIDIA_VISIBLE_DEVICES=site.org/fabric=a\n")
    done = containers.start("box", "env", ENROOT_CDI_DIRS=str(tmp_path / "cdi"))
    assert "A=b" not in done.stdout.split() and "--device" in done.stderr


def bind_all(driver: FakeDriver) -> list[tuple[str, str, int]]:
    """Binds of a memory device over every file below the fake root's /dev."""
    found = []
    for folder, _, names in os.walk(driver.path / "dev"):
        found += [("/dev/zero", os.path.join(folder, name), 0) for name in names]
    return found


def test_infiniband(tmp_path: Path, rootfs: dict[str, Path]) -> None:
    host = FakeDriver(tmp_path / "host")
    verbs_device(host, 0, "0000:1a:00.0")
    verbs_device(host, 1, "0000:2a:00.0", interface=False)
    verbs_device(host, 2, "0000:3a:00.0")
    containers = Containers(tmp_path / "work", host, bind_all(host))
    containers.add("box", rootfs["2.36"])
    look = ("sh", "-c", "ls /dev/infiniband")
    found = containers.output("box", *look, MELLANOX_VISIBLE_DEVICES="all")
    assert found.split() == ["rdma_cm", "uverbs0", "uverbs2"]
    found = containers.output("box", *look, MELLANOX_VISIBLE_DEVICES="2")
    assert found.split() == ["rdma_cm", "uverbs2"]
    found = containers.output("box", *look, options=("--env", "RDMA_VISIBLE_DEVICES=mlx5_0"))
    assert found.split() == ["rdma_cm", "uverbs0"]
    done = containers.start("box", "true", check=False, MELLANOX_VISIBLE_DEVICES="1")
    assert done.returncode == 1 and "no interface" in done.stderr


def test_amd_gpus(tmp_path: Path, rootfs: dict[str, Path]) -> None:
    host = FakeDriver(tmp_path / "host")
    drm_device(host, 0, "0000:03:00.0", "amdgpu")
    drm_device(host, 1, "0000:83:00.0", "amdgpu")
    kfd_node(host, 1, 128)
    kfd_node(host, 2, 129)
    host.node("kfd", 234, 0)
    containers = Containers(tmp_path / "work", host, bind_all(host))
    containers.add("box", rootfs["2.36"])
    look = ("sh", "-c", "ls /dev/kfd /dev/dri/*")
    found = containers.output("box", *look, AMD_VISIBLE_DEVICES="1", ENROOT_RESTRICT_DEV="y")
    assert found.split() == ["/dev/dri/card1", "/dev/dri/renderD129", "/dev/kfd"]
    found = containers.output("box", *look, options=("--env", "AMD_VISIBLE_DEVICES=all"))
    assert len(found.split()) == 5


def test_an_image_gets_everything_where_programs_expect_it(
    tmp_path: Path, rootfs: dict[str, Path]
) -> None:
    driver, binds = memory_driver(tmp_path / "driver")
    containers = Containers(tmp_path / "work", driver, binds)
    box = containers.add("box", rootfs["2.36"])
    (box / "etc/ld.so.cache").unlink()
    image = tmp_path / "image.sqsh"
    containers.start("box", program="export", options=("-o", str(image)))
    script = "/usr/bin/nvidia-smi; cat /etc/OpenCL/vendors/nvidia.icd; ls /etc/vulkan/icd.d; "
    script += "probe libcuda.so.1 libGLX_nvidia.so.0; echo $LD_LIBRARY_PATH"
    for options in (("--gpus", "all"), ("--gpus", "all", "--rw")):
        found = containers.output(
            str(image), "sh", "-c", script, options=options, NVIDIA_DRIVER_CAPABILITIES="all"
        )
        assert found.split("\n")[:5] == [
            f"nvidia-smi {VERSION}", "libnvidia-opencl.so.1", "nvidia_icd.json",
            "libcuda.so.1 ok 42", "libGLX_nvidia.so.0 ok 42",
        ]  # fmt: skip


def test_an_export_holds_nothing_of_an_injection(tmp_path: Path, rootfs: dict[str, Path]) -> None:
    driver, binds = memory_driver(tmp_path / "driver")
    containers = Containers(tmp_path / "work", driver, binds)
    box = containers.add("box", rootfs["2.36"])
    plain, after = tmp_path / "plain.sqsh", tmp_path / "after.sqsh"
    containers.start("box", "true")
    containers.start("box", program="export", options=("-o", str(plain)))
    before = tree(box)
    containers.start("box", "true", options=("--gpus", "all", "--rw"))
    assert tree(box) != before  # the loader's cache has entries …
    containers.start("box", program="export", options=("-o", str(after)))
    with SquashfsImage(str(plain)) as first, SquashfsImage(str(after)) as second:
        # … which the image has not.
        assert b"enroot/gpu" not in second.read("etc/ld.so.cache")
        caches = [parse_cache(image.read("etc/ld.so.cache")) for image in (first, second)]
        assert caches[0] == caches[1]
        assert [path for path, _ in first.walk()] == [path for path, _ in second.walk()]


@pytest.mark.parametrize(
    ("version", "note", "setting", "answer"),
    [
        ("590.44.01", [580], "auto", 77),
        ("590.44.01", [550], "auto", 42),
        ("590.44.01", None, "auto", 77),
        ("590.44.01", [580], "off", 42),
        ("570.1.1", None, "auto", 42),
        ("570.1.1", None, "force", 77),
    ],
)
def test_the_images_newer_libcuda(
    tmp_path: Path, rootfs: dict[str, Path], version: str, note: list[int] | None, setting: str,
    answer: int,
) -> None:  # fmt: skip
    driver, binds = memory_driver(tmp_path / "driver")
    containers = Containers(tmp_path / "work", driver, binds)
    box = containers.add("box", rootfs["2.36"])
    text = json.dumps({"format": 1, "CUDA Version": "13.1", "driver": note, "device": []})
    write_stub(
        box / f"usr/local/cuda/compat/libcuda.so.{version}", "libcuda.so.1",
        functions={"cuInit": returns(77)}, note=compat_note(text) if note else b"",
    )  # fmt: skip
    done = containers.start(
        "box", "probe", "libcuda.so.1", "libnvidia-ml.so.1", ENROOT_GPU_COMPAT=setting,
        options=("--gpus", "all", "--env", "LD_LIBRARY_PATH=/opt/x:/usr/local/cuda/compat/lib"),
    )  # fmt: skip
    assert done.stdout == f"libcuda.so.1 ok {answer}\nlibnvidia-ml.so.1 ok 42\n"
    assert ("error 803" in done.stderr) == (answer == 42 and setting == "auto")


def test_nested_containers_may_mount_proc(tmp_path: Path, rootfs: dict[str, Path]) -> None:
    driver, binds = memory_driver(tmp_path / "driver")
    containers = Containers(tmp_path / "work", driver, binds)
    containers.add("box", rootfs["2.36"])
    script = "/bin/busybox unshare -Urpf --mount-proc /bin/busybox sh -c 'echo $$'"
    found = containers.output("box", "sh", "-c", script, options=("--gpus", "all"))
    assert found == "1\n"


def test_memory_devices_are_what_the_fixture_says() -> None:
    for minor, name in MEMORY_NODES.items():
        assert os.stat(f"/dev/{name}").st_rdev == os.makedev(1, minor)
