"""What needs real root to set up: device nodes, device cgroups, locked mount flags, closed folders.

The containers themselves are started by an ordinary user.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from enroot_py.gpu.nvidia.discovery import find_devices
from enroot_py.gpu.planning import plan_request
from enroot_py.gpu.request import GpuOptions, read_request
from enroot_py.gpu.situation import Situation
from tests.gpu.cgroups import denied_devices, versions
from tests.gpu.containers import ENROOT
from tests.roots.driver import FakeDriver, eight_gpus, full_driver, make_nodes

pytestmark = pytest.mark.root

USER = 12345


@pytest.fixture
def open_tmp(tmp_path: Path) -> Iterator[Path]:
    """A folder that the ordinary user can reach; pytest's own are closed to him."""
    folder = tmp_path
    while folder != Path("/tmp") and folder != folder.parent:
        folder.chmod(folder.stat().st_mode | 0o011)
        folder = folder.parent
    work = tmp_path / "user"
    work.mkdir()
    os.chown(work, USER, USER)
    yield work


def environ(folder: Path, driver: FakeDriver) -> dict[str, str]:
    for name in ("home", "data", "run"):
        (folder / name).mkdir(exist_ok=True)
        os.chown(folder / name, USER, USER)
    return {
        "HOME": str(folder / "home"), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1",
        "ENROOT_DATA_PATH": str(folder / "data"), "ENROOT_RUNTIME_PATH": str(folder / "run/enroot"),
        "ENROOT_SYSCONF_PATH": str(folder / "etc"), "ENROOT_GPU_ROOT": str(driver.path),
    }  # fmt: skip


def as_user(command: list[str]) -> list[str]:
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--", *command]


def make_box(folder: Path, rootfs: dict[str, Path]) -> None:
    box = folder / "data/box"
    subprocess.run(["cp", "-a", str(rootfs["2.36"]), str(box)], check=True)
    subprocess.run(["chown", "-R", f"{USER}:{USER}", str(box)], check=True)


def in_group(group: Path, command: list[str]) -> list[str]:
    """Wrap a command so that it runs in a cgroup."""
    script = f'echo $$ > "{group}/cgroup.procs" && exec "$@"'
    return ["sh", "-c", script, "sh", *command]


PLAN = """
import sys
opened = []
sys.addaudithook(lambda name, args: opened.append(str(args[0])) if name == "open" else None)
from enroot_py.gpu.driver_root import DriverRoot
from enroot_py.gpu.nvidia.discovery import find_devices
from enroot_py.gpu.planning import plan_request
from enroot_py.gpu.request import GpuOptions, read_request
from enroot_py.gpu.situation import Situation
root = DriverRoot(root=sys.argv[1])
request = read_request({}, {}, GpuOptions(), gpus="all")
injection = plan_request(request, GpuOptions(), Situation(root, "x86_64", {}, {}))
print(*(gpu.number for gpu in find_devices(root).gpus))
print(sum(device.target[11:].isdigit() for device in injection.devices))
print(sum("/dev/" in path for path in opened))
"""


@pytest.mark.parametrize("version", versions())
def test_the_cgroup_renumbers_and_no_device_is_opened(tmp_path: Path, version: int) -> None:
    driver = full_driver(tmp_path, eight_gpus())
    make_nodes(driver)
    with denied_devices("gpu", [(195, 2), (195, 3)], version=version) as group:
        command = in_group(group, [sys.executable, "-c", PLAN, str(tmp_path)])
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # PCI order is minors 3 1 0 7 2 5 4 6.
    assert done.stdout.split("\n")[:3] == ["-1 0 1 2 -1 3 4 5", "8", "0"]


@pytest.mark.parametrize("version", versions())
def test_each_task_of_a_step_uses_its_own_gpu_in_one_container(
    open_tmp: Path, tmp_path: Path, rootfs: dict[str, Path], version: int
) -> None:
    driver = full_driver(tmp_path / "driver", eight_gpus())
    make_nodes(driver)
    variables = environ(open_tmp, driver)
    make_box(open_tmp, rootfs)
    # There is no driver behind the nodes: one that may be opened says so, one that is denied not.
    look = (
        "for n in 0 1; do (: < /dev/nvidia$n) 2>&1 | /bin/busybox grep -q 'No such dev' "
        "&& echo $n; done"
    )
    with (
        denied_devices("a", [(195, 1)], version=version) as first,
        denied_devices("b", [(195, 0)], version=version) as second,
    ):
        words = [ENROOT, "start", "--gpus", "all", "box", "sh", "-c", f"{look}; echo .; read x"]
        task = subprocess.Popen(
            in_group(first, as_user(words)), env=variables, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert task.stdout is not None
        seen = [task.stdout.readline(), task.stdout.readline()]
        joined = [ENROOT, "exec", str(task.pid), "sh", "-c", look]
        other = subprocess.run(
            in_group(second, as_user(joined)), env=variables, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        task.communicate("x\n", timeout=60)
    assert seen == ["0\n", ".\n"]
    assert other.stdout == "1\n", other.stderr


def test_a_subset_of_real_nodes(open_tmp: Path, tmp_path: Path, rootfs: dict[str, Path]) -> None:
    driver = full_driver(tmp_path / "driver", eight_gpus())
    make_nodes(driver)
    variables = environ(open_tmp, driver)
    make_box(open_tmp, rootfs)
    script = "ls /dev | /bin/busybox grep nvidia; probe libcuda.so.1"
    words = [ENROOT, "start", "--gpus", "0,4", "box", "sh", "-c", script]
    done = subprocess.run(
        as_user(words), env=variables, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [
        "nvidia-uvm", "nvidia-uvm-tools", "nvidia2", "nvidia3", "nvidiactl",
        "libcuda.so.1", "ok", "42",
    ], done.stderr  # fmt: skip


def test_flags_that_the_host_locked_stay(
    open_tmp: Path, tmp_path: Path, rootfs: dict[str, Path]
) -> None:
    """Configuration on a file system that root mounted nodev,nosuid,noexec,noatime."""
    driver = full_driver(tmp_path / "driver", eight_gpus())
    make_nodes(driver)
    variables = environ(open_tmp, driver)
    make_box(open_tmp, rootfs)
    folder = tmp_path / "driver/etc/OpenCL/vendors"
    script = (
        "cat /run/enroot/gpu/etc/OpenCL/vendors/nvidia.icd; mount | /bin/busybox grep nvidia.icd"
    )
    words = as_user([ENROOT, "start", "--gpus", "all", "box", "sh", "-c", script])
    outer = (
        f"mount -t tmpfs -o nodev,nosuid,noexec,noatime x {folder} && "
        f"echo libnvidia-opencl.so.1 > {folder}/nvidia.icd && " + 'exec "$@"'
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", outer, "sh", *words], env=variables,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("libnvidia-opencl.so.1\n"), done.stderr
    flags = set(done.stdout.rpartition("(")[2].partition(")")[0].split(","))
    assert {"ro", "nosuid", "nodev", "noexec", "noatime"} <= flags


def test_a_socket_in_a_folder_closed_to_users_counts_as_absent(
    open_tmp: Path, tmp_path: Path, rootfs: dict[str, Path]
) -> None:
    driver = full_driver(tmp_path / "driver", eight_gpus())
    make_nodes(driver)
    driver.socket("nvidia-fabricmanager/socket")
    driver.socket().parent.chmod(0o700)
    variables = environ(open_tmp, driver)
    make_box(open_tmp, rootfs)
    script = "cd /run && ls -d nvidia-*/socket"
    words = [ENROOT, "start", "--gpus", "all", "box", "sh", "-c", script]
    done = subprocess.run(
        as_user(words), env=variables, capture_output=True, text=True, check=False
    )
    assert done.stdout == "nvidia-fabricmanager/socket\n", done.stderr


def test_a_node_that_permissions_deny_is_named(tmp_path: Path, open_tmp: Path) -> None:
    driver = full_driver(tmp_path / "driver", eight_gpus()[:2])
    make_nodes(driver)
    path = tmp_path / "driver/dev/nvidia3"
    os.chown(path, 0, 44)
    path.chmod(0o660)
    script = "from enroot_py.operations.gpu import gpu_list; print(gpu_list().denied)"
    words = [sys.executable, "-c", script]
    done = subprocess.run(
        as_user(words), env=environ(open_tmp, driver), capture_output=True, text=True, check=False
    )
    assert "/dev/nvidia3" in done.stdout and '44 "video"' in done.stdout, done.stderr


def test_root_may_use_every_gpu(tmp_path: Path) -> None:
    driver = full_driver(tmp_path, eight_gpus())
    root = make_nodes(driver)
    assert [gpu.number for gpu in find_devices(root).gpus] == list(range(8))
    request = read_request({}, {}, GpuOptions(), gpus="0")
    injection = plan_request(request, GpuOptions(), Situation(root, "x86_64", {}, {}))
    assert len(injection.hidden) == 7
