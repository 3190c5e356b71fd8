"""Find the driver's files: libraries, programs, configuration, firmware and sockets."""

from __future__ import annotations

import os
import stat

from enroot_py.gpu.driver_root import DriverRoot
from enroot_py.gpu.loader.elf import ElfObject
from enroot_py.gpu.nvidia.catalogue import (
    CONFIGS,
    PROGRAMS,
    SOCKETS,
    XORG_FOLDERS,
    XORG_MODULES,
    library_capabilities,
    wanted_libraries,
)
from enroot_py.gpu.nvidia.libraries import (
    Wanted,
    choose_libraries,
    library_version,
    other_versions,
    search_libraries,
)
from enroot_py.gpu.nvidia.records import DriverFile, DriverFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_BINARY_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin",
                   "/usr/local/nvidia/bin")  # fmt: skip
_MPS_PIPE = "/tmp/nvidia-mps"


def find_files(
    root: DriverRoot,
    *,
    version: str,
    capabilities: frozenset[str],
    arch: str,
    environ: Mapping[str, str],
    gates: frozenset[str] = frozenset(),
) -> DriverFiles:
    """Find the files that the capabilities need.

    Args:
        version: the kernel driver's version; "" takes that of the libraries.
        arch: the machine's architecture, as the kernel names it.
        environ: the launcher's environment, for its search paths.
        gates: groups of devices that were switched on (`gds`).
    """
    found = _libraries(root, version, capabilities, arch, environ)
    return found._replace(
        programs=_programs(root, capabilities, environ),
        configs=_configs(root, capabilities, found.version, environ),
        firmware=_firmware(root, found.version) if capabilities else (),
        sockets=_sockets(root) if "utility" in capabilities else (),
        mps=_mps_folder(root, environ) if "compute" in capabilities else "",
        gds=_gds_files(root) if "gds" in gates else (),
    )


def _libraries(
    root: DriverRoot,
    version: str,
    capabilities: frozenset[str],
    arch: str,
    environ: Mapping[str, str],
) -> DriverFiles:
    """Find the shared objects, and what is to be said about them."""
    search = search_libraries(
        root,
        arch,
        version=version,
        compat32="compat32" in capabilities,
        loader_paths=environ.get("LD_LIBRARY_PATH", "").split(":"),
    )
    others = other_versions(search, version) if version else ()
    version = version or library_version(search)
    unknown = "compute" in library_capabilities(capabilities)
    wanted = Wanted(version, wanted_libraries(capabilities), unknown, arch)
    elves: dict[str, ElfObject | None] = {}
    libraries, noexec = choose_libraries(search, wanted, elves)
    if "compat32" in capabilities:
        libraries += choose_libraries(search, wanted._replace(bits=32), elves)[0]
    return DriverFiles(version, others, noexec, search.note, libraries)


def _programs(
    root: DriverRoot, capabilities: frozenset[str], environ: Mapping[str, str]
) -> tuple[DriverFile, ...]:
    folders = root.binary_paths or (*environ.get("PATH", "").split(":"), *_BINARY_FOLDERS)
    found = []
    for capability in ("utility", "compute", "display"):
        for name in PROGRAMS[capability] if capability in capabilities else ():
            for folder in folders:
                source = root.resolve(f"{folder}/{name}") if folder.startswith("/") else None
                if source and os.path.isfile(source) and os.access(source, os.X_OK):
                    found.append(DriverFile(source, f"/usr/bin/{name}"))
                    break
    return tuple(found)


def _configs(
    root: DriverRoot, capabilities: frozenset[str], version: str, environ: Mapping[str, str]
) -> tuple[DriverFile, ...]:
    shares = [part for part in environ.get("XDG_DATA_DIRS", "").split(":") if part.startswith("/")]
    folders = root.config_paths or ("/etc", *shares, "/usr/local/share", "/usr/share")
    found = []
    for capability in sorted(library_capabilities(capabilities)):
        for name, target in CONFIGS.get(capability, ()):
            for folder in folders:
                source = root.resolve(f"{folder}/{name}")
                if source and os.path.isfile(source):
                    found.append(DriverFile(source, f"{target}/{name}"))
                    break
    if "display" in capabilities:
        found += _xorg_modules(root, version)
    return tuple(found)


def _xorg_modules(root: DriverRoot, version: str) -> list[DriverFile]:
    found = []
    for folder in XORG_FOLDERS:
        for module in XORG_MODULES:
            for name in (module, f"{module}.{version}"):
                source = root.resolve(f"{folder}/{name}")
                if source and os.path.isfile(source):
                    found.append(DriverFile(source, f"{folder}/{name}"))
    return found


def _firmware(root: DriverRoot, version: str) -> tuple[DriverFile, ...]:
    """Best effort: only old kernels look firmware up in the namespace of the process."""
    release = os.uname().release
    own = (root.read("/sys/module/firmware_class/parameters/path") or "").strip()
    folders = [own] if own.startswith("/") else []
    for base in ("/lib/firmware/updates", "/lib/firmware"):
        folders += [f"{base}/{release}", base]
    for folder in folders:
        place = f"{folder}/nvidia/{version}"
        names = [
            name for name in root.names(place) if name.startswith("gsp") and name.endswith(".bin")
        ]
        files = [(root.resolve(f"{place}/{name}"), f"{place}/{name}") for name in names]
        if files:
            return tuple(DriverFile(source, path) for source, path in files if source)
    return ()


def _gds_files(root: DriverRoot) -> tuple[DriverFile, ...]:
    """GPUDirect Storage reads udev's database and its own settings; only where it is in use."""
    if not any(name.startswith("nvidia-fs") for name in root.names("/dev/")):
        return ()
    wanted = (("/run/udev", "folder"), ("/etc/cufile.json", "file"))
    found = [(root.resolve(path), path, kind) for path, kind in wanted]
    return tuple(DriverFile(source, path, kind) for source, path, kind in found if source)


def _sockets(root: DriverRoot) -> tuple[DriverFile, ...]:
    """Find the daemons' sockets. One that may not be reached counts as absent."""
    found = []
    for name in SOCKETS:
        for base in ("/run", "/var/run"):
            source = root.resolve(f"{base}/{name}")
            if source and _is_socket(source):
                found.append(DriverFile(source, f"/run/{name}", "socket"))
                break
    return tuple(found)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _mps_folder(root: DriverRoot, environ: Mapping[str, str]) -> str:
    """Return the host path of the MPS pipe folder in the launcher's own namespace, or ""."""
    named = environ.get("CUDA_MPS_PIPE_DIRECTORY", "")
    path = named if named.startswith("/") else root.resolve(_MPS_PIPE)
    if path and os.path.isdir(path) and os.access(path, os.R_OK | os.X_OK):
        return path
    return ""
