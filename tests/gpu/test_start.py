"""Containers started on fake driver roots, end to end, as an ordinary user."""

from __future__ import annotations

from pathlib import Path

import pytest

from enroot_py.gpu.loader.cache import parse_cache
from tests.gpu.containers import Containers, memory_driver, tree
from tests.roots.debian import SUITES
from tests.roots.driver import VERSION, FakeDriver

pytestmark = pytest.mark.kernel

SONAMES = (
    "libcuda.so.1", "libcuda.so", f"libcuda.so.{VERSION}", "libnvidia-ml.so.1",
    "libnvidia-nvvm.so.4", f"libnvidia-gpucomp.so.{VERSION}", "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-opencl.so.1", "libnvidia-allocator.so.1", "libcudadebugger.so.1",
    "libnvidia-cfg.so.1",
)  # fmt: skip
ALL_SONAMES = (
    *SONAMES, "libnvcuvid.so.1", "libnvidia-encode.so.1", "libnvidia-opticalflow.so.1",
    "libnvidia-opticalflow.so", "libGLX_nvidia.so.0", "libGLX_indirect.so.0",
    "libEGL_nvidia.so.0", f"libnvidia-glcore.so.{VERSION}", f"libnvidia-tls.so.{VERSION}",
    "libnvidia-ngx.so.1", "libvdpau_nvidia.so.1",
)  # fmt: skip
GPU_NODES = "ls /dev | /bin/busybox grep -E '^nvidia[0-9]+$'"


def loads(answer: str, names: tuple[str, ...]) -> None:
    assert answer.split("\n")[:-1] == [f"{name} ok 42" for name in names]


@pytest.mark.parametrize("ldconfig", [True, False], ids=["ldconfig", "no ldconfig"])
@pytest.mark.parametrize("writable", [False, True], ids=["read-only", "writable"])
@pytest.mark.parametrize("version", SUITES)
def test_every_soname_loads_and_nothing_stays_behind(
    tmp_path: Path, rootfs: dict[str, Path], version: str, writable: bool, ldconfig: bool
) -> None:
    driver, binds = memory_driver(tmp_path / "driver")
    containers = Containers(tmp_path / "work", driver, binds)
    box = containers.add("box", rootfs[version])
    if not ldconfig:
        for name in ("usr/sbin/ldconfig", "etc/ld.so.cache"):
            (box / name).unlink()
    before = _settle(containers, box)
    options = ("--gpus", "all", *(("--rw",) if writable else ()))
    answer = containers.output(
        "box", "probe", *ALL_SONAMES, options=options, NVIDIA_DRIVER_CAPABILITIES="all"
    )
    loads(answer, ALL_SONAMES)
    after = tree(box)
    assert set(after) == set(before)
    changed = {name for name in after if after[name] != before[name]}
    # A writable rootfs that has a loader cache gets entries in it …
    assert changed == ({"etc/ld.so.cache"} if writable and ldconfig else set())
    # … which the next start without GPUs takes away.
    gone = containers.output("box", "probe", "libcuda.so.1", options=options[2:])
    assert "cannot open shared object file" in gone
    if "etc/ld.so.cache" in before:
        assert _cache(box).entries == _cache(rootfs[version]).entries


def _settle(containers: Containers, box: Path) -> dict[str, str]:
    """Start once without GPUs, so that mount points of the usual mounts are there."""
    containers.start("box", "true")
    return tree(box)


def _cache(box: Path):  # type: ignore[no-untyped-def]
    return parse_cache((box / "etc/ld.so.cache").read_bytes())


def test_without_a_request_no_driver_file_is_inside(containers: Containers) -> None:
    for environ in ({}, {"NVIDIA_VISIBLE_DEVICES": ""}, {"NVIDIA_VISIBLE_DEVICES": "void"}):
        answer = containers.output("box", "probe", "libcuda.so.1", "libnvidia-ml.so.1", **environ)
        assert answer.count("cannot open shared object file") == 2
        found = containers.output(
            "box", "sh", "-c", "ls -d /run/enroot; command -v nvidia-smi; true", **environ
        )
        assert found == ""


def test_none_brings_the_driver_and_no_gpu(containers: Containers) -> None:
    answer = containers.output("box", "probe", *SONAMES, options=("--gpus", "none"))
    loads(answer, SONAMES)
    script = f"nvidia-smi; {GPU_NODES}; ls /dev/nvidiactl"
    found = containers.output("box", "sh", "-c", script, options=("--gpus", "none"))
    assert found == f"nvidia-smi {VERSION}\n/dev/nvidiactl\n"


@pytest.mark.parametrize("how", ["flag", "launcher", "image"])
def test_a_subset_is_all_that_is_there(containers: Containers, how: str) -> None:
    options: tuple[str, ...] = ()
    environ = {}
    if how == "flag":
        options = ("--gpus", "1,3")
    elif how == "launcher":
        environ = {"NVIDIA_VISIBLE_DEVICES": "1,3"}
    else:
        options = ("--env", "NVIDIA_VISIBLE_DEVICES=1,3")
    found = containers.output("box", "sh", "-c", GPU_NODES, options=options, **environ)
    assert found.split() == ["nvidia5", "nvidia8"]


def test_all_gpus(containers: Containers) -> None:
    found = containers.output("box", "sh", "-c", GPU_NODES, options=("--gpus", "all"))
    assert found.split() == ["nvidia3", "nvidia5", "nvidia7", "nvidia8", "nvidia9"]


def test_the_rest_of_dev_still_works_with_a_subset(containers: Containers) -> None:
    script = """
        echo x > /dev/null && echo null
        test -c /dev/zero && test -d /dev/shm && test -L /dev/fd && echo there
        echo y > /dev/shm/gpu.$$ && cat /dev/shm/gpu.$$ && /bin/busybox rm /dev/shm/gpu.$$
        /bin/busybox dd if=/dev/nvidia5 bs=1 count=3 2>/dev/null | /bin/busybox wc -c
        : < /dev/ptmx && echo "new terminals"
    """
    found = containers.output("box", "sh", "-c", script, options=("--gpus", "1"))
    assert found.split("\n")[:5] == ["null", "there", "y", "3", "new terminals"]


def test_a_restricted_dev_gets_exactly_the_planned_nodes(containers: Containers) -> None:
    found = containers.output(
        "box", "sh", "-c", "ls /dev | /bin/busybox grep nvidia; echo x > /dev/null && echo fine",
        options=("--gpus", "0"), ENROOT_RESTRICT_DEV="yes",
    )  # fmt: skip
    assert found.split() == ["nvidia-uvm", "nvidia-uvm-tools", "nvidia3", "nvidiactl", "fine"]


def test_an_unknown_gpu_stops_the_start_and_says_what_there_is(containers: Containers) -> None:
    done = containers.start("box", "true", options=("--gpus", "9"), check=False)
    assert done.returncode == 1
    assert 'unknown device "9"' in done.stderr and "may use 5 GPUs" in done.stderr


def test_ldconfig_inside_a_writable_rootfs_keeps_the_libraries(containers: Containers) -> None:
    script = "/sbin/ldconfig && probe libcuda.so.1 libnvidia-ml.so.1"
    answer = containers.output("box", "sh", "-c", script, options=("--gpus", "all", "--rw"))
    loads(answer, ("libcuda.so.1", "libnvidia-ml.so.1"))
    gone = containers.output("box", "probe", "libcuda.so.1", options=("--rw",))
    assert "cannot open shared object file" in gone and "too short" not in gone


def test_login_shells_find_the_programs(containers: Containers) -> None:
    for options in (("--gpus", "all"), ("--gpus", "all", "--rw")):
        found = containers.output("box", "nvidia-smi", options=options)
        assert found == f"nvidia-smi {VERSION}\n"


def test_unrelated_libraries_keep_their_choice(tmp_path: Path, rootfs: dict[str, Path]) -> None:
    """An entry for special hardware, and one in front of a default folder, still win."""
    import subprocess

    from tests.roots.shared_objects import returns, write_stub

    driver, binds = memory_driver(tmp_path / "driver")
    containers = Containers(tmp_path / "work", driver, binds)
    box = containers.add("box", rootfs["2.36"])
    for folder, answer in (("usr/local/lib/x86_64-linux-gnu", 1),
                           ("usr/local/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v2", 2),
                           ("usr/lib/x86_64-linux-gnu", 3)):  # fmt: skip
        write_stub(
            box / folder / "libown.so.1", "libown.so.1", functions={"cuInit": returns(answer)}
        )
    subprocess.run(["/sbin/ldconfig", "-r", str(box)], check=True)
    plain = containers.output("box", "probe", "libown.so.1")
    assert plain in ("libown.so.1 ok 2\n", "libown.so.1 ok 1\n")
    assert containers.output("box", "probe", "libown.so.1", options=("--gpus", "all")) == plain


@pytest.mark.parametrize("link", ["lib", "etc", "run", "var/run", "dev"])
def test_links_of_a_hostile_image_lead_nowhere(
    tmp_path: Path, rootfs: dict[str, Path], link: str
) -> None:
    """A folder of the image is a link to a folder of the host's: nothing appears there."""
    driver, binds = memory_driver(tmp_path / "driver")
    containers = Containers(tmp_path / "work", driver, binds)
    box = containers.add("box", rootfs["2.36"])
    outside = tmp_path / "outside"
    outside.mkdir()
    victim = box / {"lib": "etc/ld.so.conf.d", "etc": "etc"}.get(link, link)
    victim.rename(victim.with_name(victim.name + ".real"))
    victim.symlink_to("../" * 20 + str(outside)[1:])
    for rw in ((), ("--rw",)):
        containers.start("box", "true", options=("--gpus", "0", *rw), check=False)
    assert list(outside.iterdir()) == []


def test_a_cache_that_is_a_link_to_the_hosts_is_not_written(
    tmp_path: Path, rootfs: dict[str, Path]
) -> None:
    driver, binds = memory_driver(tmp_path / "driver")
    containers = Containers(tmp_path / "work", driver, binds)
    box = containers.add("box", rootfs["2.36"])
    outside = tmp_path / "outside.cache"
    outside.write_bytes((box / "etc/ld.so.cache").read_bytes())
    before = outside.read_bytes()
    (box / "etc/ld.so.cache").unlink()
    (box / "etc/ld.so.cache").symlink_to("../" * 20 + str(outside)[1:])
    for rw in ((), ("--rw",)):
        containers.start("box", "true", options=("--gpus", "0", *rw), check=False)
    assert outside.read_bytes() == before


def test_sockets_of_daemons(tmp_path: Path, rootfs: dict[str, Path]) -> None:
    driver, binds = memory_driver(tmp_path / "driver")
    socket = driver.socket()
    containers = Containers(tmp_path / "work", driver, binds)
    containers.add("box", rootfs["2.36"])
    look = ("sh", "-c", "test -S /run/nvidia-persistenced/socket && echo there; true")
    assert containers.output("box", *look, options=("--gpus", "all")) == "there\n"
    utility = {"NVIDIA_DRIVER_CAPABILITIES": "compute"}
    assert containers.output("box", *look, options=("--gpus", "all"), **utility) == ""
    # The launcher's /run/nvidia-persistenced is already inside, by a mount of the user's.
    mount = f"{socket.parent}:/run/nvidia-persistenced:none:x-create=dir,bind"
    options = ("--gpus", "all", "--mount", mount)
    assert containers.output("box", *look, options=options) == "there\n"


def test_without_a_driver(tmp_path: Path, rootfs: dict[str, Path]) -> None:
    containers = Containers(tmp_path / "work", FakeDriver(tmp_path), [])
    containers.add("box", rootfs["2.36"])
    image = containers.start("box", "true", options=("--env", "NVIDIA_VISIBLE_DEVICES=all"))
    assert "no NVIDIA driver on this host" in image.stderr and "[WARN]" in image.stderr
    for options, environ in (
        (("--gpus", "all"), {}),
        ((), {"NVIDIA_VISIBLE_DEVICES": "all"}),
        ((), {"ENROOT_GPU_DEFAULT_DEVICES": "all"}),
    ):
        done = containers.start("box", "true", options=options, check=False, **environ)
        assert done.returncode == 1 and "no NVIDIA driver on this host" in done.stderr


def test_musl_loads_them_by_the_search_path_and_says_what_it_cannot_do(
    tmp_path: Path, musl: Path
) -> None:
    driver, binds = memory_driver(tmp_path / "driver")
    containers = Containers(tmp_path / "work", driver, binds)
    box = containers.add("box", musl)
    before = _settle(containers, box)
    loader = "/lib/ld-musl-x86_64.so.1"
    script = f"for name in {' '.join(SONAMES)}; do {loader} --preload $name --list {loader}; done"
    for options in (("--gpus", "all"), ("--gpus", "all", "--rw")):
        done = containers.start("box", "sh", "-c", script, options=options)
        loaded = [line.split()[2] for line in done.stdout.split("\n") if "=>" in line]
        assert loaded == [f"/run/enroot/gpu/lib64/{name}" for name in SONAMES]
        assert "musl" in done.stderr and "glibc" in done.stderr
    gone = containers.start("box", "sh", "-c", script, check=False)
    assert "=>" not in gone.stdout
    assert tree(box) == before


def test_what_joins_the_container_sees_the_same(containers: Containers) -> None:
    """A second process that enters the namespaces, as the other tasks of a step do."""
    script = f"{GPU_NODES}; probe libcuda.so.1"
    answer = containers.joined("box", ("sh", "-c", script), options=("--gpus", "0,4"))
    assert answer.split("\n")[:3] == ["nvidia3", "nvidia9", "libcuda.so.1 ok 42"]


def test_cuda_visible_devices_fits_the_container(containers: Containers) -> None:
    environ = {"options": ("--gpus", "2,3", "--env", "CUDA_VISIBLE_DEVICES=3,2,0")}
    found = containers.output(
        "box", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER", **environ
    )
    assert found == "1,0 PCI_BUS_ID\n"
    done = containers.start(
        "box", "true", options=("--gpus", "2,3", "--env", "CUDA_VISIBLE_DEVICES=0"), check=False
    )
    assert done.returncode == 1 and "CUDA_VISIBLE_DEVICES=0" in done.stderr


def test_the_environment_inside(containers: Containers) -> None:
    found = containers.output("box", "env", options=("--gpus", "0"))
    assert "NVIDIA_VISIBLE_DEVICES=0\n" in found
    assert "NVIDIA_CTK_LIBCUDA_DIR=/run/enroot/gpu/lib64\n" in found
    assert "LD_LIBRARY_PATH" not in found


def test_a_source_on_a_file_system_with_locked_flags(
    tmp_path: Path, rootfs: dict[str, Path]
) -> None:
    """Configuration on a nodev,nosuid,noexec mount is bound, its flags kept."""
    driver, binds = memory_driver(tmp_path / "driver")
    folder = tmp_path / "driver/etc/OpenCL/vendors"
    binds.append((str(folder), str(folder), 2 | 4 | 8))
    containers = Containers(tmp_path / "work", driver, binds)
    box = containers.add("box", rootfs["2.36"])
    (box / "etc/OpenCL/vendors").mkdir(parents=True)
    (box / "etc/OpenCL/vendors/nvidia.icd").touch()
    script = "cat /etc/OpenCL/vendors/nvidia.icd; mount | /bin/busybox grep nvidia.icd"
    found = containers.output("box", "sh", "-c", script, options=("--gpus", "all"))
    assert found.startswith("libnvidia-opencl.so.1\n")
    assert {"ro", "nosuid", "nodev", "noexec"} <= set(
        found.rpartition("(")[2].partition(")")[0].split(",")
    )


def test_a_library_on_a_noexec_file_system_is_refused(
    tmp_path: Path, rootfs: dict[str, Path]
) -> None:
    driver, binds = memory_driver(tmp_path / "driver")
    folder = tmp_path / "driver/usr/lib"
    binds.append((str(folder), str(folder), 8))
    containers = Containers(tmp_path / "work", driver, binds)
    containers.add("box", rootfs["2.36"])
    done = containers.start("box", "true", options=("--gpus", "all"), check=False)
    assert done.returncode == 1
    assert "libcuda" in done.stderr and "noexec" in done.stderr


def test_a_read_only_driver(tmp_path: Path, rootfs: dict[str, Path]) -> None:
    driver, binds = memory_driver(tmp_path / "driver")
    folder = tmp_path / "driver/usr"
    binds.append((str(folder), str(folder), 1 | 2 | 4))
    containers = Containers(tmp_path / "work", driver, binds)
    containers.add("box", rootfs["2.36"])
    loads(containers.output("box", "probe", *SONAMES, options=("--gpus", "all")), SONAMES)
