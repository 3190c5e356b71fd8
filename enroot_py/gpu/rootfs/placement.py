"""Where each part of an injection goes in one rootfs, and by which means. Pure.

Libraries are bound under their SONAMEs in a folder in memory, and the loader learns of it through
an extended cache: bound over the image's where the rootfs is read-only, written in place where it
is writable (a bound cache would make ldconfig fail inside). Nothing is ever created in a rootfs
that outlives the container; what needs a place there and has none goes to our folder and is
announced by an environment variable. See docs/adr/0041 and 0042.
"""

from __future__ import annotations

from enroot_py.errors import UnsupportedError
from enroot_py.gpu.injection import (
    FILE_OPTIONS,
    LIBCUDA_VARIABLE,
    Bind,
    Device,
    Injection,
    Library,
    Link,
)
from enroot_py.gpu.loader.cache import (
    FLAG_AARCH64,
    FLAG_I386,
    FLAG_PPC64LE,
    FLAG_X86_64,
    CacheEntry,
    LoaderCache,
    add_entries,
    build_cache,
    parse_cache,
    remove_entries,
)
from enroot_py.gpu.rootfs.facts import FILE, FOLDER, MISSING, SAME, RootfsFacts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

CACHE = "/etc/ld.so.cache"
PROFILE = "/etc/profile"

_FLAGS = {"x86_64": FLAG_X86_64, "aarch64": FLAG_AARCH64, "ppc64le": FLAG_PPC64LE}
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SEARCH_FOLDERS = {
    # folder: (variable that names such folders, folders that are searched without it)
    "/usr/share/glvnd/egl_vendor.d": (
        "__EGL_VENDOR_LIBRARY_DIRS",
        "/etc/glvnd/egl_vendor.d:/usr/share/glvnd/egl_vendor.d",
    ),
    "/usr/share/egl/egl_external_platform.d": (
        "__EGL_EXTERNAL_PLATFORM_CONFIG_DIRS",
        "/etc/egl/egl_external_platform.d:/usr/share/egl/egl_external_platform.d",
    ),
    "/etc/vulkan/icd.d": ("VK_ADD_DRIVER_FILES", ""),
    "/etc/vulkan/implicit_layer.d": ("VK_ADD_IMPLICIT_LAYER_PATH", ""),
}


class Written(NamedTuple):
    """A file of ours: path (in our folder, or in the rootfs), content, mode."""

    path: str
    content: bytes
    mode: int = 0o644


class DevPlan(NamedTuple):
    """What happens to /dev: whether it is built anew, which nodes are added, which left out."""

    rebuild: bool = False
    nodes: tuple[Device, ...] = ()
    hidden: tuple[str, ...] = ()


class Placement(NamedTuple):
    """What the executor does, in this order. Paths `own_*` are relative to our folder.

    Attributes:
        folder: our folder's path in the container.
        own_binds, own_links, own_files: what is made in it.
        binds: bound in the rootfs; a source that starts with `own:` is in our folder.
        links: symbolic links in the rootfs.
        writes: files replaced in a writable rootfs.
        environ: assignments for the container.
    """

    folder: str
    own_binds: tuple[Bind, ...] = ()
    own_links: tuple[Link, ...] = ()
    own_files: tuple[Written, ...] = ()
    binds: tuple[Bind, ...] = ()
    links: tuple[Link, ...] = ()
    writes: tuple[Written, ...] = ()
    dev: DevPlan = DevPlan()
    environ: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def place(
    injection: Injection,
    facts: RootfsFacts,
    environ: Mapping[str, str],
    arch: str,
    *,
    library_path: bool = False,
) -> Placement:
    """Decide where everything goes.

    Args:
        environ: the container's environment so far.
        arch: the machine's architecture, as the kernel names it.
        library_path: name our folder in LD_LIBRARY_PATH in any case.
    """
    placer = _Placer(facts, environ, arch)
    placer.place_libraries(injection.libraries)
    if library_path and injection.libraries and "LD_LIBRARY_PATH" not in placer.environ:
        small = any(library.bits == 32 for library in injection.libraries)
        placer.add_library_path("the configuration says so", small)
    placer.place_programs(injection)
    for bind in injection.binds:
        placer.place_bind(bind)
    for link in injection.links:
        placer.place_link(link)
    for text in injection.texts:
        content = Written(text.path.lstrip("/"), text.content.encode(), text.mode)
        placer.place_text(content, text.path, text.reason)
    for name, value in injection.environ:
        moved = name == LIBCUDA_VARIABLE and injection.libraries
        placer.environ[name] = f"{facts.folder}/lib64" if moved else value
    return placer.finish(plan_dev(injection, facts))


def plan_dev(injection: Injection, facts: RootfsFacts) -> DevPlan:
    """Decide about /dev: the host's own is only ever looked at, never changed."""
    missing = tuple(device for device in injection.devices if device.target not in facts.devices)
    hidden = tuple(path for path in injection.hidden if path in facts.devices)
    rebuild = bool(hidden) or (facts.shared_dev and bool(missing))
    return DevPlan(rebuild, missing, injection.hidden if rebuild else ())


class _Placer:
    """Collects a placement."""

    def __init__(self, facts: RootfsFacts, environ: Mapping[str, str], arch: str) -> None:
        self.facts = facts
        self.container = environ
        self.arch = arch
        self.own_binds: list[Bind] = []
        self.own_links: list[Link] = []
        self.own_files: list[Written] = []
        self.binds: list[Bind] = []
        self.links: list[Link] = []
        self.writes: list[Written] = []
        self.environ: dict[str, str] = {}
        self.warnings: list[str] = []
        self.notes: list[str] = []

    def finish(self, dev: DevPlan) -> Placement:
        binds = sorted(self.binds, key=lambda bind: bind.target.count("/"))
        return Placement(
            folder=self.facts.folder,
            own_binds=tuple(self.own_binds),
            own_links=tuple(self.own_links),
            own_files=tuple(self.own_files),
            binds=tuple(binds),
            links=tuple(self.links),
            writes=tuple(self.writes),
            dev=dev,
            environ=tuple(self.environ.items()),
            warnings=tuple(self.warnings),
            notes=tuple(self.notes),
        )

    def place_libraries(self, libraries: tuple[Library, ...]) -> None:
        if not libraries:
            return
        entries = []
        for library in libraries:
            folder = "lib64" if library.bits == 64 else "lib32"
            flags = _FLAGS.get(self.arch, FLAG_X86_64) if library.bits == 64 else FLAG_I386
            target = f"{folder}/{library.soname}"
            self.own_binds.append(Bind(library.source, target, library.reason, required=True))
            for name in library.names:
                self.own_links.append(Link(f"{folder}/{name}", library.soname, library.reason))
            if library.folder:
                path = f"{folder}/{library.folder}/{library.soname}"
                self.own_links.append(Link(path, f"../{library.soname}", library.reason))
            for name in (library.soname, *library.names):
                entries.append(CacheEntry(flags, name, f"{self.facts.folder}/{folder}/{name}"))
        self.tell_loader(entries, any(library.bits == 32 for library in libraries))

    def tell_loader(self, entries: list[CacheEntry], small: bool) -> None:
        """Make the loader find our folder: through its cache, or else LD_LIBRARY_PATH."""
        facts = self.facts
        if facts.libc == "musl":
            self.warnings.append(
                "gpu: this image's C library is musl; NVIDIA's libraries need glibc and load only "
                "with a glibc layer"
            )
            return self.add_library_path("the image's C library is musl", small)
        if facts.cache is None and not facts.ephemeral:
            return self.add_library_path("the image has no loader cache", small)
        try:
            cache = parse_cache(facts.cache) if facts.cache is not None else LoaderCache(())
        except UnsupportedError as error:
            return self.add_library_path(str(error), small)
        cache = remove_entries(cache, facts.folder)
        content = build_cache(add_entries(cache, entries))
        if facts.cache is None or facts.writable:
            self.writes.append(Written(CACHE, content))
            return self.tell_ldconfig(small) if facts.writable else None
        self.own_files.append(Written("etc/ld.so.cache", content))
        self.binds.append(Bind("own:etc/ld.so.cache", CACHE, "loader cache", required=True))
        return None

    def tell_ldconfig(self, small: bool) -> None:
        """Name our folder in the loader's configuration, so that ldconfig inside keeps it.

        A line is added to a drop-in that is there already, in memory: a new file would stay behind.
        """
        if self.facts.conf is None:
            return self.add_library_path("ldconfig inside would forget the folder", small)
        path, content = self.facts.conf
        lines = f"\n{self.facts.folder}/lib64\n" + (f"{self.facts.folder}/lib32\n" if small else "")
        self.own_files.append(Written("etc/ld.so.conf", content + lines.encode()))
        # Read-only: an edit inside would be lost, and is better refused.
        self.binds.append(Bind("own:etc/ld.so.conf", path, "for ldconfig"))
        return None

    def add_library_path(self, reason: str, small: bool) -> None:
        folders = [f"{self.facts.folder}/lib64"] + [f"{self.facts.folder}/lib32"] * small
        known = self.environ.get("LD_LIBRARY_PATH", self.container.get("LD_LIBRARY_PATH", ""))
        self.environ["LD_LIBRARY_PATH"] = ":".join([*folders, known]).rstrip(":")
        self.notes.append(f"gpu: LD_LIBRARY_PATH names the libraries: {reason}")

    def creatable(self, target: str) -> bool:
        """Whether something may be put at a target without a trace in a lasting rootfs."""
        return self.facts.ephemeral or self.facts.kind(target) != MISSING

    def place_programs(self, injection: Injection) -> None:
        homeless = []
        for program in injection.programs:
            name = program.target.rpartition("/")[2]
            if self.facts.kind(program.target) == FOLDER:
                continue
            if self.creatable(program.target):
                self.binds.append(Bind(program.source, program.target, program.reason))
            else:
                self.own_binds.append(Bind(program.source, f"bin/{name}", program.reason))
                homeless.append(name)
        if not homeless:
            return
        folder = f"{self.facts.folder}/bin"
        path = self.container.get("PATH") or _DEFAULT_PATH
        if folder not in path.split(":"):
            self.environ["PATH"] = f"{path}:{folder}"
        profile = self.facts.profile
        if profile is not None and b"PATH=" in profile:
            # Debian's login shells start by setting PATH anew.
            line = f'\ncase ":$PATH:" in *:{folder}:*) ;; *) PATH="$PATH:{folder}" ;; esac\n'
            self.own_files.append(Written("etc/profile", profile + line.encode()))
            self.binds.append(Bind("own:etc/profile", PROFILE, "login shells' PATH"))

    def place_bind(self, bind: Bind) -> None:
        kind = self.facts.kind(bind.target)
        if kind == SAME:
            return
        if bind.required:
            self.binds.append(bind)
            return
        wanted = FOLDER if bind.kind == "folder" or bind.fstype else FILE
        if kind in (FOLDER, FILE) and kind != wanted:
            self.notes.append(f"gpu: {bind.target} is of another kind in the image; left out")
        elif self.creatable(bind.target):
            self.binds.append(bind)
        elif bind.kind == "file" and bind.reason != "firmware":
            self.announce(bind)
        else:
            self.notes.append(f"gpu: {bind.target} has no place in this rootfs; left out")

    def announce(self, bind: Bind) -> None:
        """Keep a configuration file in our folder, and name it where there is a variable for it."""
        path = bind.target.lstrip("/")
        self.own_binds.append(bind._replace(target=path))
        folder = bind.target.rpartition("/")[0]
        own = f"{self.facts.folder}/{path}"
        if folder == "/etc/OpenCL/vendors":
            self.prefix("OCL_ICD_FILENAMES", "libnvidia-opencl.so.1", "")
        elif folder in _SEARCH_FOLDERS:
            variable, usual = _SEARCH_FOLDERS[folder]
            value = own if variable == "VK_ADD_DRIVER_FILES" else own.rpartition("/")[0]
            self.prefix(variable, value, usual)
        else:
            self.notes.append(f"gpu: {bind.target} has no place in this rootfs; it is at {own}")

    def prefix(self, variable: str, value: str, usual: str) -> None:
        known = self.environ.get(variable) or self.container.get(variable) or usual
        if value not in known.split(":"):
            self.environ[variable] = f"{value}:{known}".rstrip(":")

    def place_link(self, link: Link) -> None:
        if link.path.startswith("lib:"):
            self.own_links.append(link._replace(path=f"lib64/{link.path[4:]}"))
            folder = f"{self.facts.folder}/lib64/gbm"
            triplet = f"{self.arch}-linux-gnu"
            usual = f"/usr/lib/{triplet}/gbm:/usr/lib64/gbm:/usr/lib/gbm"
            if link.path.startswith("lib:gbm/"):
                self.prefix("GBM_BACKENDS_PATH", folder, usual)
        elif link.path.startswith("/dev/") or self.facts.can_create(link.path):
            self.links.append(link)
        elif self.facts.kind(link.path) == MISSING:
            self.notes.append(f"gpu: link {link.path} has no place in this rootfs; left out")

    def place_text(self, text: Written, target: str, reason: str) -> None:
        if not self.creatable(target):
            self.notes.append(f"gpu: {target} has no place in this rootfs; left out")
            return
        self.own_files.append(text)
        self.binds.append(Bind(f"own:{text.path}", target, reason, options=FILE_OPTIONS))
