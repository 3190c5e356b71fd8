"""CUDA forward compatibility: should the image's own, newer libcuda serve instead of the host's?

An image may ship `/usr/local/cuda/compat/libcuda.so.<newer>` for hosts whose driver is older than
its CUDA. Used where it is not meant to, CUDA fails with error 803 or 804.

Source: NVIDIA CUDA Compatibility guide; NVIDIA container toolkit, enable-cuda-compat.
"""

from __future__ import annotations

import os
import stat

from enroot_py.gpu.driver_root import resolve_beneath
from enroot_py.gpu.loader.elf import ElfObject, read_elf
from enroot_py.gpu.nvidia.discovery import is_version
from enroot_py.gpu.nvidia.records import DriverLibrary
from enroot_py.gpu.nvidia.requirement import compare_versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

DEFAULT_FOLDER = "/usr/local/cuda/compat"
NOTE_OWNER = b"NVIDIA Corporation"
_CONSUMER = ("geforce", "titan", "rtx")


class CompatNote(NamedTuple):
    """What a compat library says about itself: its CUDA version, the driver majors it runs on."""

    cuda: str
    drivers: tuple[int, ...]


class CompatLibrary(NamedTuple):
    """The image's candidate.

    Attributes:
        folder: path inside the rootfs.
        version: version of its libcuda; "" if there is no (single) candidate.
        note: None if the library carries none.
        libraries: all the folder's libraries.
        warning: why there is no candidate though there is a folder.
    """

    folder: str = ""
    version: str = ""
    note: CompatNote | None = None
    libraries: tuple[DriverLibrary, ...] = ()
    warning: str = ""


class CompatDecision(NamedTuple):
    """Whether the candidate is used, and why (not)."""

    use: bool
    reason: str = ""


def find_compat(rootfs: str, folder: str = DEFAULT_FOLDER) -> CompatLibrary:
    """Look for compat libraries in an image.

    Args:
        rootfs: absolute host path of the root filesystem.
        folder: path inside it.
    """
    place = resolve_beneath(rootfs, folder)
    if place is None or not os.path.isdir(place):
        return CompatLibrary()
    names = sorted(os.listdir(place))
    mains = [
        name
        for name in names
        if name.startswith("libcuda.so.")
        and is_version(name[len("libcuda.so.") :])
        and stat.S_ISREG(os.lstat(f"{place}/{name}").st_mode)
    ]
    if not mains:
        return CompatLibrary()
    if len(mains) > 1:
        listed = ", ".join(mains)
        return CompatLibrary(
            folder, warning=f"gpu: {folder} has several libcuda ({listed}); none is used"
        )
    elf = read_elf(f"{place}/{mains[0]}", notes=True)
    if elf is None:
        return CompatLibrary(folder, warning=f"gpu: {folder}/{mains[0]} is not a library; not used")
    libraries = []
    for name in names:
        path = f"{place}/{name}"
        if ".so." not in name or not stat.S_ISREG(os.lstat(path).st_mode):
            continue
        found = read_elf(path)
        if found is not None and found.soname:
            libraries.append(DriverLibrary(name.partition(".so")[0], path, name, found.soname))
    version = mains[0][len("libcuda.so.") :]
    return CompatLibrary(folder, version, compat_note(elf), tuple(libraries))


def compat_note(elf: ElfObject) -> CompatNote | None:
    """Return the forward-compatibility note of a library, None if it has no sound one."""
    for note in elf.notes:
        if note.owner != NOTE_OWNER or not note.payload.lstrip().startswith(b"{"):
            continue
        from json import loads

        try:
            content = loads(note.payload.rstrip(b"\0 "))
        except ValueError:
            continue
        if not isinstance(content, dict):
            continue
        keys = {str(key).lower(): value for key, value in content.items()}
        drivers = keys.get("driver")
        majors = [int(v) for v in drivers if str(v).isdigit()] if isinstance(drivers, list) else []
        return CompatNote(str(keys.get("cuda version", "")), tuple(majors))
    return None


def decide_compat(
    candidate: CompatLibrary,
    *,
    mode: str,
    driver: str,
    driver_cuda: str,
    models: tuple[str, ...],
) -> CompatDecision:
    """Decide whether the image's libcuda serves. Pure.

    Args:
        mode: `auto`, `off` or `force`.
        driver: version of the host's driver; "" if unknown.
        driver_cuda: CUDA version of the host's driver; "" if unknown.
        models: of the GPUs chosen.
    """
    if mode == "off" or not candidate.version:
        return CompatDecision(False)
    if mode == "force":
        return CompatDecision(True, "forced by the configuration")
    for model in models:
        words = model.lower().replace("nvidia ", "", 1)
        if words.startswith(_CONSUMER):
            return CompatDecision(False, f"{model} does not support forward compatibility")
    if not driver:
        return _decide_by_cuda(candidate.note, driver_cuda)
    major = driver.partition(".")[0]
    if candidate.note is not None:
        if not major.isdigit() or int(major) not in candidate.note.drivers:
            return CompatDecision(False, f"it does not list driver branch {major}")
        newer = compare_versions(candidate.version, driver) > 0
    else:
        newer = compare_versions(candidate.version.partition(".")[0], major) > 0
    if newer:
        return CompatDecision(True, f"{candidate.version} is newer than the driver {driver}")
    older = "older" if candidate.note is not None else "of an older branch"
    return CompatDecision(False, f"the driver {driver} is not {older} than {candidate.version}")


def _decide_by_cuda(note: CompatNote | None, driver_cuda: str) -> CompatDecision:
    if note is None or not note.cuda or not driver_cuda:
        return CompatDecision(False, "the driver's version is unknown")
    if compare_versions(note.cuda, driver_cuda) > 0:
        return CompatDecision(True, f"CUDA {note.cuda} is newer than the driver's {driver_cuda}")
    return CompatDecision(False, f"the driver's CUDA {driver_cuda} is not older than {note.cuda}")
