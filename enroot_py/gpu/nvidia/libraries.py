"""Find the driver's shared objects: through the loader's cache first, then in the usual folders.

A candidate counts only if its own header says that it is of the wanted architecture and its name
that it is of the wanted version: caches and folders of multi-architecture hosts hold others too.
"""

from __future__ import annotations

import os

from enroot_py.errors import UnsupportedError
from enroot_py.gpu.driver_root import DriverRoot
from enroot_py.gpu.loader.cache import MAX_SIZE, parse_cache
from enroot_py.gpu.loader.elf import EM_386, EM_AARCH64, EM_PPC64, EM_X86_64, ElfObject, read_elf
from enroot_py.gpu.nvidia.catalogue import NEVER, OWN_VERSIONS, known_libraries
from enroot_py.gpu.nvidia.discovery import is_version
from enroot_py.gpu.nvidia.records import DriverLibrary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

MACHINES = {"x86_64": EM_X86_64, "aarch64": EM_AARCH64, "ppc64le": EM_PPC64}
"""ELF machine numbers by the kernel's names for architectures."""

_TRIPLETS = {
    "x86_64": "x86_64-linux-gnu",
    "aarch64": "aarch64-linux-gnu",
    "ppc64le": "powerpc64le-linux-gnu",
}
_FOLDERS_32 = (
    "/usr/lib/i386-linux-gnu", "/usr/lib/i386-linux-gnu/nvidia/current", "/lib/i386-linux-gnu",
    "/usr/lib32", "/usr/lib", "/usr/local/nvidia/lib",
)  # fmt: skip
_PREFIXES = ("libnv", "libcuda", "libGL", "libEGL", "libvdpau")
_ANCHORS = ("libcuda", "libnvidia-ml")
_TLS_ABI = (2, 3, 99)


class Candidate(NamedTuple):
    """A file that could be a library of the driver.

    Attributes:
        name: base name, e.g. `libcuda`.
        version: what follows `.so.` in its name.
        path: path inside the root.
        source: absolute host path, links resolved.
    """

    name: str
    version: str
    path: str
    source: str


class Search(NamedTuple):
    """Everything that looked like a library of the driver, in order of preference, and a note."""

    candidates: tuple[Candidate, ...]
    note: str = ""


def library_folders(root: DriverRoot, arch: str, loader_paths: Iterable[str] = ()) -> list[str]:
    """Return the folders to search, paths inside the root, best first.

    Args:
        loader_paths: folders of the launcher's LD_LIBRARY_PATH.
    """
    if root.library_paths:
        return list(root.library_paths)
    triplet = _TRIPLETS.get(arch, f"{arch}-linux-gnu")
    return [
        "/usr/lib64", f"/usr/lib/{triplet}", f"/usr/lib/{triplet}/nvidia/current",
        "/lib64", f"/lib/{triplet}", f"/lib/{triplet}/nvidia/current",
        "/usr/lib64/nvidia", "/usr/lib/nvidia", "/usr/local/nvidia/lib64",
        "/run/opengl-driver/lib", *(path for path in loader_paths if path.startswith("/")),
    ]  # fmt: skip


def search_libraries(
    root: DriverRoot,
    arch: str,
    *,
    version: str = "",
    compat32: bool = False,
    loader_paths: Iterable[str] = (),
) -> Search:
    """List every file that could be a library of the driver.

    Args:
        version: the driver's, by which libraries are recognised whose names are not known.
    """
    ending = f".so.{version}" if version else ".so.?"
    finder = _Finder(root)
    note = ""
    known = known_libraries()
    if not root.library_paths:
        try:
            sonames = _cached_paths(root, known)
        except UnsupportedError as error:
            sonames, note = [], f"gpu: {error}; searched the usual folders instead"
        for path in sonames:
            folder, _, name = path.rpartition("/")
            finder.add(folder, name)
    folders = library_folders(root, arch, loader_paths)
    seen: set[str] = set()
    for folder in [*folders, *(_FOLDERS_32 if compat32 and not root.library_paths else ())]:
        for sub in (folder, folder + "/vdpau"):
            place = finder.place(sub)
            if not place or place in seen:
                continue
            seen.add(place)
            for name in root.names(sub):
                if ".so." in name and (name.startswith(_PREFIXES) or name.endswith(ending)):
                    finder.add(sub, name)
    return Search(tuple(finder.found.values()), note)


def library_version(search: Search) -> str:
    """Return the version that the driver's main libraries carry, "" if there are none."""
    for anchor in _ANCHORS:
        for candidate in search.candidates:
            if candidate.name == anchor and is_version(candidate.version):
                return candidate.version
    return ""


def other_versions(search: Search, version: str) -> tuple[tuple[str, str], ...]:
    """Return (version, folder) of the main libraries, if none of them has `version`; else none."""
    found: dict[str, str] = {}
    for candidate in search.candidates:
        if candidate.name in _ANCHORS and is_version(candidate.version):
            found.setdefault(candidate.version, candidate.path.rpartition("/")[0])
    return () if version in found else tuple(found.items())


class Wanted(NamedTuple):
    """Which libraries are looked for.

    Attributes:
        version: the driver's.
        names: base names.
        unknown: any other library of that version too, so that a new driver's library needs no new
            release of this program.
        arch: the machine's architecture, as the kernel names it.
        bits: 64 for the native architecture, 32 for i386.
    """

    version: str
    names: frozenset[str]
    unknown: bool
    arch: str
    bits: int = 64

    def includes(self, candidate: Candidate, known: frozenset[str]) -> bool:
        """Tell whether a candidate has a name and a version that are wanted."""
        name = candidate.name
        if candidate.version != self.version and name not in OWN_VERSIONS:
            return False
        return name in self.names or (self.unknown and name not in known and name not in NEVER)

    def fits(self, elf: ElfObject | None) -> bool:
        """Tell whether a file is of the wanted architecture."""
        machine = EM_386 if self.bits == 32 else MACHINES.get(self.arch, -1)
        return elf is not None and (elf.bits, elf.machine) == (self.bits, machine)


def choose_libraries(
    search: Search, wanted: Wanted, elves: dict[str, ElfObject | None]
) -> tuple[tuple[DriverLibrary, ...], str]:
    """Choose one file for each library wanted.

    Args:
        elves: what was read of files already, by path; added to.

    Returns:
        The libraries by name, and a library whose file system forbids execution ("" if none).
    """
    known = known_libraries()
    chosen: dict[str, tuple[DriverLibrary, ElfObject]] = {}
    noexec = ""
    for candidate in search.candidates:
        name, source = candidate.name, candidate.source
        several = name == "libnvidia-tls"
        if not wanted.includes(candidate, known) or (name in chosen and not several):
            continue
        if source not in elves:
            elves[source] = read_elf(source, notes=several)
        elf = elves[source]
        if elf is None or not wanted.fits(elf):
            continue
        # Of two libnvidia-tls the one for kernels with thread-local storage is right.
        if name in chosen and (chosen[name][1].abi >= _TLS_ABI or elf.abi < _TLS_ABI):
            continue
        if os.statvfs(source).f_flag & os.ST_NOEXEC:
            noexec = candidate.path if not noexec or name == "libcuda" else noexec
            continue
        chosen[name] = (_library(candidate, elf), elf)
    return tuple(chosen[name][0] for name in sorted(chosen)), noexec


def _library(candidate: Candidate, elf: ElfObject) -> DriverLibrary:
    file = os.path.basename(candidate.source)
    folder = "vdpau" if os.path.dirname(candidate.source).endswith("/vdpau") else ""
    return DriverLibrary(
        candidate.name, candidate.source, file, elf.soname or file, elf.bits, folder
    )


def _cached_paths(root: DriverRoot, known: frozenset[str]) -> list[str]:
    """Return the paths that the root's loader cache has for the driver's libraries."""
    path = root.ldcache or root.resolve("/etc/ld.so.cache")
    if path is None:
        return []
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_SIZE + 1)
    except OSError:
        return []
    entries = parse_cache(data).entries
    # Plain entries first: one that asks for special hardware is not for every container.
    chosen = [entry for entry in entries if entry.soname.partition(".so")[0] in known]
    return [entry.path for entry in sorted(chosen, key=lambda entry: entry.hwcap != 0)]


class _Finder:
    """Collects candidates by their resolved paths; folders are resolved once."""

    def __init__(self, root: DriverRoot) -> None:
        self.root = root
        self.found: dict[str, Candidate] = {}
        self._places: dict[str, str] = {}

    def place(self, folder: str) -> str:
        """Return the host path of a folder inside the root, "" if there is none."""
        if folder not in self._places:
            self._places[folder] = self.root.resolve(folder) or ""
        return self._places[folder]

    def add(self, folder: str, name: str) -> None:
        place = self.place(folder)
        source: str | None = f"{place}/{name}" if place else None
        if source is None or source in self.found:
            return
        try:
            target = os.readlink(source)
        except OSError:
            target = ""
        if target:
            source = self.root.resolve(f"{folder}/{name}")
        elif not os.path.exists(source):
            source = None
        if source is None or source in self.found:
            return
        base, _, version = source.rpartition("/")[2].partition(".so.")
        if version:
            self.found[source] = Candidate(base, version, self.root.inside(source), source)
