"""What each driver capability consists of: the tables, and nothing else. Pure.

Vendor-neutral loaders (libGL, libEGL, libGLX, libOpenCL) are left out on purpose: they belong to
the image.

Source: libnvidia-container nvc_info.c; NVIDIA container toolkit, driver discovery.
"""

from __future__ import annotations

from enroot_py.errors import UsageError

CAPABILITIES = ("compute", "compat32", "graphics", "utility", "video", "display", "ngx")
DEFAULT_CAPABILITIES = "compute,utility"

LIBRARIES: dict[str, tuple[str, ...]] = {
    "utility": ("libnvidia-ml", "libnvidia-cfg", "libnvidia-nscq"),
    "compute": (
        "libcuda", "libcudadebugger", "libnvidia-opencl", "libnvidia-compiler",
        "libnvidia-ptxjitcompiler", "libnvidia-gpucomp", "libnvidia-nvvm", "libnvidia-nvvm70",
        "libnvidia-tileiras", "libnvidia-allocator", "libnvidia-pkcs11",
        "libnvidia-pkcs11-openssl3", "libnvidia-fatbinaryloader",
    ),
    "video": ("libnvcuvid", "libnvidia-encode", "libnvidia-opticalflow", "libvdpau_nvidia"),
    "graphics": (
        "libnvidia-glcore", "libnvidia-eglcore", "libnvidia-glsi", "libnvidia-tls",
        "libnvidia-fbc", "libnvidia-ifr", "libnvidia-rtcore", "libnvidia-cbl",
        "libnvidia-glvkspirv", "libnvidia-gpucomp", "libnvidia-allocator",
        "libnvidia-vulkan-producer", "libnvoptix", "libGLX_nvidia", "libEGL_nvidia",
        "libGLESv1_CM_nvidia", "libGLESv2_nvidia", "libnvidia-egl-gbm", "libnvidia-egl-wayland",
        "libnvidia-egl-wayland2", "libnvidia-egl-xcb", "libnvidia-egl-xlib",
    ),
    "display": (),
    "ngx": ("libnvidia-ngx",),
}  # fmt: skip

OWN_VERSIONS = frozenset({
    "libnvidia-nscq", "libnvidia-nvvm70", "libnvidia-egl-gbm", "libnvidia-egl-wayland",
    "libnvidia-egl-wayland2", "libnvidia-egl-xcb", "libnvidia-egl-xlib",
})  # fmt: skip
"""Libraries that carry version numbers of their own instead of the driver's."""

NEVER = frozenset({
    "libGL", "libEGL", "libGLX", "libGLESv1_CM", "libGLESv2", "libOpenCL", "libOpenGL",
    "libGLdispatch", "libglvnd_install_checker", "libglx", "libglxserver_nvidia",
})  # fmt: skip
"""Never taken as `any other library of the driver`: vendor-neutral ones and X.Org modules."""

PROGRAMS: dict[str, tuple[str, ...]] = {
    "utility": (
        "nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nv-fabricmanager",
        "nvidia-imex", "nvidia-imex-ctl",
    ),
    "compute": ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
    "display": ("nvidia-xconfig",),
}  # fmt: skip

CONFIGS: dict[str, tuple[tuple[str, str], ...]] = {
    # (path below a configuration folder, folder in the container)
    "graphics": (
        ("glvnd/egl_vendor.d/10_nvidia.json", "/usr/share"),
        ("egl/egl_external_platform.d/15_nvidia_gbm.json", "/usr/share"),
        ("egl/egl_external_platform.d/10_nvidia_wayland.json", "/usr/share"),
        ("egl/egl_external_platform.d/09_nvidia_wayland2.json", "/usr/share"),
        ("egl/egl_external_platform.d/20_nvidia_xcb.json", "/usr/share"),
        ("egl/egl_external_platform.d/20_nvidia_xlib.json", "/usr/share"),
        ("nvidia/nvoptix.bin", "/usr/share"),
        ("vulkan/icd.d/nvidia_icd.json", "/etc"),
        ("vulkan/icd.d/nvidia_icd.x86_64.json", "/etc"),
        ("vulkan/icd.d/nvidia_icd.aarch64.json", "/etc"),
        ("vulkan/implicit_layer.d/nvidia_layers.json", "/etc"),
    ),
    "compute": (("OpenCL/vendors/nvidia.icd", "/etc"),),
}

XORG_MODULES = ("drivers/nvidia_drv.so", "extensions/libglxserver_nvidia.so")
XORG_FOLDERS = (
    "/usr/lib/xorg/modules",
    "/usr/lib64/xorg/modules",
    "/usr/lib/x86_64-linux-gnu/nvidia/xorg",
)

SOCKETS = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
"""Below /run or /var/run; with the utility capability."""


def parse_capabilities(text: str, origin: str = "NVIDIA_DRIVER_CAPABILITIES") -> frozenset[str]:
    """Parse a list of driver capabilities; empty means the default, `compute,utility`.

    The default is wider than enroot's (`utility`), with which nvidia-smi works and CUDA does not.

    Raises:
        UsageError: naming the unknown word and the valid ones.
    """
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if not words:
        words = DEFAULT_CAPABILITIES.split(",")
    if "all" in words:
        return frozenset(CAPABILITIES)
    chosen = set()
    for word in words:
        if word == "none":
            continue
        if word not in CAPABILITIES:
            valid = ", ".join((*CAPABILITIES, "all"))
            raise UsageError(
                f'gpu: unknown driver capability "{word}" in {origin}', hint=f"valid: {valid}"
            )
        chosen.add(word)
    return frozenset(chosen)


def library_capabilities(capabilities: frozenset[str]) -> frozenset[str]:
    """Add the capabilities that others imply: video needs compute, display graphics."""
    implied = set(capabilities)
    if "video" in implied:
        implied.add("compute")
    if "display" in implied:
        implied.add("graphics")
    return frozenset(implied)


def wanted_libraries(capabilities: frozenset[str]) -> frozenset[str]:
    """Return the base names of the libraries that the capabilities name."""
    wanted: set[str] = set()
    for capability in library_capabilities(capabilities):
        wanted.update(LIBRARIES.get(capability, ()))
    return frozenset(wanted)


def known_libraries() -> frozenset[str]:
    """Return the base names of every library of the tables."""
    return frozenset(name for names in LIBRARIES.values() for name in names)


def capability_of(name: str, capabilities: frozenset[str]) -> str:
    """Return the capability on whose account the library `name` is injected, for explanations."""
    for capability in CAPABILITIES:
        if capability in library_capabilities(capabilities) and name in LIBRARIES.get(
            capability, ()
        ):
            return capability
    return "compute"
