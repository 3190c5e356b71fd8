"""Finding the driver's libraries, programs, configuration, firmware and sockets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from enroot_py.gpu.driver_root import DriverRoot
from enroot_py.gpu.nvidia.catalogue import CAPABILITIES, parse_capabilities
from enroot_py.gpu.nvidia.files import find_files
from enroot_py.gpu.nvidia.records import DriverFiles
from tests.roots.driver import LIB, VERSION, FakeDriver, full_driver


def find(root: DriverRoot, capabilities: str = "compute,utility", **options: object) -> DriverFiles:
    arguments = {
        "version": VERSION, "capabilities": parse_capabilities(capabilities), "arch": "x86_64",
        "environ": {}, **options,
    }  # fmt: skip
    return find_files(root, **arguments)  # type: ignore[arg-type]


def names(files: DriverFiles, bits: int = 64) -> set[str]:
    return {library.name for library in files.libraries if library.bits == bits}


@pytest.mark.parametrize(
    ("capabilities", "has", "lacks"),
    [
        ("utility", {"libnvidia-ml", "libnvidia-cfg"}, {"libcuda", "libnvidia-encode"}),
        ("compute", {"libcuda", "libnvidia-nvvm", "libnvidia-gpucomp"}, {"libnvidia-ml"}),
        ("video", {"libcuda", "libnvcuvid", "libvdpau_nvidia"}, {"libnvidia-ml", "libGLX_nvidia"}),
        ("graphics", {"libGLX_nvidia", "libnvidia-tls"}, {"libcuda", "libnvcuvid"}),
        ("display", {"libGLX_nvidia", "libnvidia-glcore"}, {"libcuda"}),
        ("ngx", {"libnvidia-ngx"}, {"libcuda"}),
        ("all", {"libnvidia-ngx", "libcuda", "libnvidia-ml", "libEGL_nvidia"}, set()),
        ("none", set(), {"libcuda", "libnvidia-ml"}),
        ("", {"libcuda", "libnvidia-ml"}, {"libnvidia-ngx", "libGLX_nvidia"}),
    ],
)
def test_capabilities_name_libraries(
    tmp_path: Path, capabilities: str, has: set[str], lacks: set[str]
) -> None:
    found = names(find(full_driver(tmp_path).root, capabilities))
    assert has <= found
    assert not lacks & found


def test_sonames_sources_and_folders(tmp_path: Path) -> None:
    files = find(full_driver(tmp_path).root, "all")
    by_name = {library.name: library for library in files.libraries}
    assert by_name["libcuda"].soname == "libcuda.so.1"
    assert by_name["libcuda"].source == f"{tmp_path}/{LIB}/libcuda.so.{VERSION}"
    assert by_name["libnvidia-nvvm"].soname == "libnvidia-nvvm.so.4"
    assert by_name["libnvidia-tls"].soname == f"libnvidia-tls.so.{VERSION}"
    assert by_name["libvdpau_nvidia"].folder == "vdpau"
    assert files.note == ""


def test_decoys_are_never_chosen(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.kernel_module()
    # In front of the right one, in the cache and on the way: an older version, another
    # architecture, a text, half a file, and a link out of the root.
    driver.library("libcuda", folder="usr/lib64", version="575.57.08")
    driver.library("libcuda", folder="usr/lib/i386-linux-gnu", machine="i386")
    driver.library("libcuda", folder="usr/lib64/nvidia", machine="aarch64")
    driver.write(f"usr/lib64/libcuda.so.{VERSION}", "not a library")
    driver.write("usr/lib64/libcuda.so.999.1", "not a library")
    real = driver.library("libcuda")
    (tmp_path / "lib64").symlink_to("usr/lib64")
    half = real.read_bytes()[:100]
    (tmp_path / f"usr/lib64/libnvidia-ml.so.{VERSION}").write_bytes(half)
    driver.library("libnvidia-ml")
    driver.cache()
    files = find(driver.root)
    assert {library.source for library in files.libraries} == {
        str(real), f"{tmp_path}/{LIB}/libnvidia-ml.so.{VERSION}",
    }  # fmt: skip


def test_a_link_out_of_the_root_is_resolved_inside(tmp_path: Path) -> None:
    outside = FakeDriver(tmp_path / "outside")
    outside.library("libcuda")
    driver = FakeDriver(tmp_path / "root")
    (driver.path / LIB).mkdir(parents=True)
    target = outside.path / LIB / f"libcuda.so.{VERSION}"
    (driver.path / LIB / f"libcuda.so.{VERSION}").symlink_to(target)
    assert find(driver.root).libraries == ()


def test_a_driver_that_no_cache_knows(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.libraries(folder="usr/local/nvidia/lib64")
    driver.programs("usr/local/nvidia/bin")
    files = find(driver.root)
    assert {"libcuda", "libnvidia-ml"} <= names(files)
    assert f"{tmp_path}/usr/local/nvidia/bin/nvidia-smi" in [f.source for f in files.programs]


@pytest.mark.parametrize("damage", ["empty", "magic", "half"])
def test_a_damaged_cache_is_noted_and_the_folders_are_searched(tmp_path: Path, damage: str) -> None:
    driver = full_driver(tmp_path)
    path = tmp_path / "etc/ld.so.cache"
    data = path.read_bytes()
    path.write_bytes({"empty": b"", "magic": b"x" * 99, "half": data[: len(data) // 2]}[damage])
    files = find(driver.root)
    assert "libcuda" in names(files)
    assert "loader cache" in files.note


def test_configured_folders_alone_count(tmp_path: Path) -> None:
    driver = full_driver(tmp_path)
    driver.library("libcuda", folder="opt/nv/lib")
    root = driver.root._replace(library_paths=("/opt/nv/lib",), binary_paths=("/opt/nv/bin",))
    files = find(root)
    assert [library.source for library in files.libraries] == [
        f"{tmp_path}/opt/nv/lib/libcuda.so.{VERSION}"
    ]
    assert files.programs == ()


def test_folders_of_the_launchers_search_paths(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path)
    driver.libraries(folder="opt/nv/lib")
    driver.programs("opt/nv/bin")
    environ = {"LD_LIBRARY_PATH": "relative:/opt/nv/lib", "PATH": "/opt/nv/bin:."}
    files = find(driver.root, environ=environ)
    assert "libcuda" in names(files) and files.programs


def test_a_new_library_of_the_driver_comes_with_compute(tmp_path: Path) -> None:
    driver = full_driver(tmp_path)
    driver.library("libnvidia-new")
    driver.library("libXNVCtrl", cached=False)
    driver.library("libnvidia-old", version="570.1")
    driver.library("libGL")
    assert {"libnvidia-new", "libXNVCtrl"} <= names(find(driver.root, "compute"))
    assert not {"libnvidia-old", "libGL"} & names(find(driver.root, "all"))
    assert "libnvidia-new" not in names(find(driver.root, "utility"))


def test_libraries_with_versions_of_their_own(tmp_path: Path) -> None:
    driver = full_driver(tmp_path)
    driver.library("libnvidia-egl-wayland", version="1.1.20", soname="libnvidia-egl-wayland.so.1")
    driver.library("libnvidia-nvvm70", version="4", soname="libnvidia-nvvm70.so.4")
    assert {"libnvidia-egl-wayland", "libnvidia-nvvm70"} <= names(find(driver.root, "all"))


def test_compat32_adds_the_32_bit_libraries_alone(tmp_path: Path) -> None:
    driver = full_driver(tmp_path)
    for name in ("libcuda", "libnvidia-ml"):
        driver.library(name, folder="usr/lib/i386-linux-gnu", machine="i386")
    driver.cache()
    plain = find(driver.root)
    both = find(driver.root, "compute,utility,compat32")
    assert names(plain, 32) == set()
    assert names(both, 32) == {"libcuda", "libnvidia-ml"}
    assert [x for x in both.libraries if x.bits == 64] == list(plain.libraries)


def test_versions_of_kernel_module_and_libraries(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path, "580.105.08")
    driver.libraries()
    driver.cache()
    files = find(driver.root, version="580.95.05")
    assert files.libraries == ()
    assert files.other_versions == (("580.105.08", f"/{LIB}"),)
    assert find(driver.root, version="580.105.08").other_versions == ()
    assert find(driver.root, version="").version == "580.105.08"


def test_two_versions_side_by_side(tmp_path: Path) -> None:
    driver = full_driver(tmp_path)
    driver.library("libcuda", folder="usr/lib64", version="580.105.08")
    files = find(driver.root)
    assert files.other_versions == ()
    assert f"libcuda.so.{VERSION}" in {library.file for library in files.libraries}


def test_programs_configuration_and_firmware(tmp_path: Path) -> None:
    driver = full_driver(tmp_path)
    driver.firmware()
    driver.write("usr/lib/xorg/modules/drivers/nvidia_drv.so", "x")
    (tmp_path / "usr/bin/nvidia-debugdump").chmod(0o644)
    files = find(driver.root, "all")
    assert [f.path for f in files.programs] == [
        "/usr/bin/nvidia-smi", "/usr/bin/nvidia-persistenced", "/usr/bin/nvidia-cuda-mps-control",
    ]  # fmt: skip
    assert [f.path for f in files.configs] == [
        "/etc/OpenCL/vendors/nvidia.icd",
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        "/etc/vulkan/icd.d/nvidia_icd.json",
        "/usr/lib/xorg/modules/drivers/nvidia_drv.so",
    ]
    assert [f.path for f in files.firmware] == [f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"]
    assert find(driver.root, "utility").configs == ()


def test_sockets_that_can_be_reached(tmp_path: Path) -> None:
    driver = full_driver(tmp_path)
    assert find(driver.root).sockets == ()
    driver.socket()
    driver.write("run/nvidia-fabricmanager/socket", "not a socket")
    (socket,) = find(driver.root).sockets
    assert (socket.path, socket.kind) == ("/run/nvidia-persistenced/socket", "socket")
    assert find(driver.root, "compute").sockets == ()


@pytest.mark.kernel
def test_a_socket_in_a_closed_folder_counts_as_absent(tmp_path: Path) -> None:
    assert os.geteuid() != 0, "for an ordinary user"
    driver = full_driver(tmp_path)
    path = driver.socket()
    path.parent.chmod(0)
    try:
        assert find(driver.root).sockets == ()
    finally:
        path.parent.chmod(0o755)


def test_the_mps_folder_is_the_launchers(tmp_path: Path) -> None:
    driver = full_driver(tmp_path)
    assert find(driver.root).mps == ""
    (tmp_path / "tmp/nvidia-mps").mkdir(parents=True)
    assert find(driver.root).mps == f"{tmp_path}/tmp/nvidia-mps"
    own = tmp_path / "own"
    own.mkdir()
    assert find(driver.root, environ={"CUDA_MPS_PIPE_DIRECTORY": str(own)}).mps == str(own)
    assert find(driver.root, "utility").mps == ""


def test_storage_files_come_with_the_nodes(tmp_path: Path) -> None:
    driver = full_driver(tmp_path)
    driver.write("etc/cufile.json", "{}")
    (tmp_path / "run/udev").mkdir(parents=True)
    gates = frozenset({"gds"})
    assert find(driver.root, gates=gates).gds == ()
    driver.node("nvidia-fs0", 240, 0)
    assert [f.path for f in find(driver.root, gates=gates).gds] == ["/run/udev", "/etc/cufile.json"]
    assert find(driver.root).gds == ()


def test_every_capability_is_known() -> None:
    assert parse_capabilities("all") == frozenset(CAPABILITIES)
