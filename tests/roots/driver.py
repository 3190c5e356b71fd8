"""Fake NVIDIA driver roots: everything that discovery looks at, in a folder.

Device nodes are small text files (`195 0 rw`), which `TextNodes` reads in place of stat(2); where
real ones are needed, `make_nodes` makes them (as root).
"""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import dataclass, field
from pathlib import Path

from enroot_py.gpu.driver_root import DriverRoot, Node
from enroot_py.gpu.loader.cache import (
    FLAG_I386,
    FLAG_X86_64,
    CacheEntry,
    LoaderCache,
    build_cache,
    sort_entries,
)
from tests.roots.shared_objects import returns, write_stub

VERSION = "580.95.05"
LIB = "usr/lib/x86_64-linux-gnu"
MAJORS = {"nvidia": 195, "nvidia-uvm": 508, "nvidia-caps": 234, "nvidia-caps-imex-channels": 235}

SONAMES = {
    "libcuda": "libcuda.so.1",
    "libcudadebugger": "libcudadebugger.so.1",
    "libnvidia-ml": "libnvidia-ml.so.1",
    "libnvidia-cfg": "libnvidia-cfg.so.1",
    "libnvidia-opencl": "libnvidia-opencl.so.1",
    "libnvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm": "libnvidia-nvvm.so.4",
    "libnvidia-gpucomp": "libnvidia-gpucomp.so.{version}",
    "libnvidia-allocator": "libnvidia-allocator.so.1",
    "libnvcuvid": "libnvcuvid.so.1",
    "libnvidia-encode": "libnvidia-encode.so.1",
    "libnvidia-opticalflow": "libnvidia-opticalflow.so.1",
    "libnvidia-glcore": "libnvidia-glcore.so.{version}",
    "libnvidia-eglcore": "libnvidia-eglcore.so.{version}",
    "libnvidia-tls": "libnvidia-tls.so.{version}",
    "libGLX_nvidia": "libGLX_nvidia.so.0",
    "libEGL_nvidia": "libEGL_nvidia.so.0",
    "libnvidia-ngx": "libnvidia-ngx.so.1",
    "libvdpau_nvidia": "libvdpau_nvidia.so.1",
}
PROGRAMS = ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control")


@dataclass
class FakeGpu:
    """One GPU of a fake root; `mig` maps GPU instances to their compute instances."""

    minor: int
    pci: str
    uuid: str
    model: str = "NVIDIA H200"
    excluded: bool = False
    mig: dict[int, tuple[int, ...]] = field(default_factory=dict)


def uuid_of(minor: int) -> str:
    return f"GPU-{minor:08x}-1111-2222-3333-444455556666"


def eight_gpus() -> list[FakeGpu]:
    """Eight GPUs whose minors are not in PCI order."""
    minors = (3, 1, 0, 7, 2, 5, 4, 6)
    return [
        FakeGpu(minor, f"0000:{0x1B + 0x10 * place:02x}:00.0", uuid_of(minor))
        for place, minor in enumerate(minors)
    ]


def one_gpu() -> list[FakeGpu]:
    return [FakeGpu(0, "0000:1b:00.0", uuid_of(0))]


class TextNodes(DriverRoot):
    """A driver root whose device nodes are text files."""

    def node(self, path: str) -> Node | None:
        found = self.resolve(path)
        if found is None or not os.path.isfile(found):
            return None
        words = Path(found).read_text().split()
        if len(words) != 3:
            return Node(path, found, -1, -1, True)
        usable = words[2] == "rw"
        return Node(path, found, int(words[0]), int(words[1]), usable, "0:0 0666", 0, 0o020666)


class FakeDriver:
    """A driver root being built in `path`."""

    def __init__(self, path: Path, version: str = VERSION) -> None:
        self.path = path
        self.version = version
        self.entries: list[CacheEntry] = []

    @property
    def root(self) -> DriverRoot:
        return TextNodes(root=str(self.path))

    def write(self, name: str, text: str = "") -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def node(self, name: str, major: int, minor: int, access: str = "rw") -> None:
        self.write(f"dev/{name}", f"{major} {minor} {access}")

    def kernel_module(self) -> None:
        self.write(
            "proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {self.version}  Release "
            "Build  (dvs-builder@U22)\nGCC version:  gcc version 12.3.0\n",
        )
        self.write(
            "proc/driver/nvidia/params", "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\n"
        )
        self.write("proc/driver/nvidia/registry", 'Binary: ""\n')
        majors = "".join(f"{number:3d} {name}\n" for name, number in MAJORS.items())
        self.write("proc/devices", f"Character devices:\n  1 mem\n{majors}\nBlock devices:\n")
        self.node("nvidiactl", 195, 255)
        self.node("nvidia-uvm", 508, 0)
        self.node("nvidia-uvm-tools", 508, 1)
        self.node("nvidia-modeset", 195, 254)

    def gpus(self, gpus: list[FakeGpu]) -> None:
        (self.path / "proc/driver/nvidia/gpus").mkdir(parents=True, exist_ok=True)
        table = ["config 1", "monitor 2"]
        number = 100
        for gpu in gpus:
            self.write(
                f"proc/driver/nvidia/gpus/{gpu.pci}/information",
                f"Model: \t\t {gpu.model}\nIRQ:   \t\t 18\nGPU UUID: \t {gpu.uuid}\n"
                f"Bus Location: \t {gpu.pci}\nDevice Minor: \t {gpu.minor}\n"
                f"GPU Excluded:\t {'Yes' if gpu.excluded else 'No'}\n",
            )
            self.node(f"nvidia{gpu.minor}", 195, gpu.minor)
            for instance, computes in gpu.mig.items():
                base = f"capabilities/gpu{gpu.minor}/mig/gi{instance}"
                for name in ("access", *(f"ci{ci}/access" for ci in computes)):
                    number += 1
                    self.write(
                        f"proc/driver/nvidia/{base}/{name}",
                        f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n",
                    )
                    table.append(f"gpu{gpu.minor}/gi{instance}/{name} {number}")
                    self.node(f"nvidia-caps/nvidia-cap{number}", 234, number)
        self.write("proc/driver/nvidia-caps/mig-minors", "\n".join(table) + "\n")

    def drm(self, gpu: FakeGpu, number: int) -> None:
        """Give a GPU its DRM nodes and their links."""
        for name, minor in ((f"card{number}", number), (f"renderD{128 + number}", 128 + number)):
            (self.path / f"sys/bus/pci/devices/{gpu.pci}/drm/{name}").mkdir(parents=True)
            self.node(f"dri/{name}", 226, minor)
        folder = self.path / "dev/dri/by-path"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"pci-{gpu.pci}-card").symlink_to(f"../card{number}")
        (folder / f"pci-{gpu.pci}-render").symlink_to(f"../renderD{128 + number}")

    def library(
        self, name: str, *, folder: str = LIB, machine: str = "x86_64", version: str = "",
        soname: str = "", answer: int = 42, cached: bool = True,
    ) -> Path:  # fmt: skip
        """Add one library, the link by its SONAME and its entry in the loader's cache."""
        version = version or self.version
        soname = soname or SONAMES.get(name, f"{name}.so.1").format(version=version)
        file = self.path / folder / f"{name}.so.{version}"
        functions = {"cuInit": returns(answer, machine)}
        write_stub(file, soname, machine=machine, functions=functions, marker=f"{name} {version}")
        link = file.parent / soname
        if link != file and not link.is_symlink():
            link.symlink_to(file.name)
        if cached:
            flags = FLAG_I386 if machine == "i386" else FLAG_X86_64
            self.entries.append(CacheEntry(flags, soname, f"/{folder}/{soname}"))
        return file

    def libraries(self, names: tuple[str, ...] = tuple(SONAMES), **options: str) -> None:
        for name in names:
            folder = options.get("folder", LIB)
            if name == "libvdpau_nvidia":
                self.library(name, folder=f"{folder}/vdpau", cached=False)
            else:
                self.library(name, folder=folder)

    def cache(self) -> None:
        """Write the loader's cache for the libraries added so far."""
        path = self.path / "etc/ld.so.cache"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(build_cache(LoaderCache(sort_entries(self.entries))))

    def programs(self, folder: str = "usr/bin") -> None:
        for name in PROGRAMS:
            path = self.write(f"{folder}/{name}", f"#!/bin/sh\necho {name} {self.version}\n")
            path.chmod(0o755)

    def graphics(self) -> None:
        self.write("usr/share/glvnd/egl_vendor.d/10_nvidia.json", "{}\n")
        self.write("usr/share/vulkan/icd.d/nvidia_icd.json", "{}\n")
        self.write("etc/OpenCL/vendors/nvidia.icd", "libnvidia-opencl.so.1\n")

    def firmware(self) -> None:
        self.write(f"lib/firmware/nvidia/{self.version}/gsp_ga10x.bin", "firmware")

    def imex(self, *channels: int) -> None:
        for channel in channels:
            self.node(f"nvidia-caps-imex-channels/channel{channel}", 235, channel)

    def socket(self, name: str = "nvidia-persistenced/socket") -> Path:
        path = self.path / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as server:
            back = os.open(".", os.O_RDONLY)
            try:
                os.chdir(path.parent)  # the address holds 108 bytes
                server.bind(path.name)
            finally:
                os.fchdir(back)
                os.close(back)
        return path


def full_driver(path: Path, gpus: list[FakeGpu] | None = None, **options: str) -> FakeDriver:
    """A complete driver: kernel module, GPUs, libraries, cache, programs, configuration."""
    driver = FakeDriver(path, options.get("version", VERSION))
    driver.kernel_module()
    driver.gpus(one_gpu() if gpus is None else gpus)
    driver.libraries()
    driver.cache()
    driver.programs()
    driver.graphics()
    return driver


def make_nodes(driver: FakeDriver) -> DriverRoot:
    """Turn the text nodes into real ones (as root), and return the plain driver root."""
    for folder, _, names in os.walk(driver.path / "dev"):
        for name in names:
            path = Path(folder, name)
            if path.is_symlink():
                continue
            major, minor, access = path.read_text().split()
            path.unlink()
            os.mknod(path, 0o020666, os.makedev(int(major), int(minor)))
            path.chmod(0o666 if access == "rw" else 0)
    return DriverRoot(root=str(driver.path))


def remove_tree(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
