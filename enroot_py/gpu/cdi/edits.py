"""CDI container edits to an injection.

Reads the host (does a node exist, is a mounted file a library), changes nothing.

Source: Container Device Interface specification 1.1.0, "OCI edits"; what an ordinary user in a user
namespace cannot do (make nodes, add groups, move interfaces) is checked and said.
"""

from __future__ import annotations

import os
import stat

from enroot_py.errors import DeviceError, UnsupportedError
from enroot_py.gpu.cdi.nvidia_hooks import HookMeaning
from enroot_py.gpu.cdi.records import ContainerEdits, HookEdit, MountEdit, NodeEdit
from enroot_py.gpu.injection import Bind, Device, HostHook, Injection, Library, Link, Program
from enroot_py.gpu.loader.elf import read_elf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_OPTIONS = frozenset({
    "ro", "rw", "nosuid", "suid", "nodev", "dev", "noexec", "exec", "bind", "rbind", "private",
    "rprivate", "slave", "rslave", "shared", "rshared", "unbindable", "runbindable", "atime",
    "noatime", "diratime", "nodiratime", "relatime", "norelatime", "strictatime", "nostrictatime",
    "idmap", "ridmap", "sync", "async", "defaults",
})  # fmt: skip
_KEPT = ("ro", "nosuid", "nodev", "noexec", "rbind")
_TYPES = {"c": stat.S_ISCHR, "u": stat.S_ISCHR, "b": stat.S_ISBLK, "p": stat.S_ISFIFO}
_PROGRAM_FOLDERS = ("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin")


def merge_edits(parts: Iterable[ContainerEdits]) -> ContainerEdits:
    """Merge edits in order: of two variables, nodes or mounts for one place the later counts."""
    env: dict[str, str] = {}
    nodes: dict[str, NodeEdit] = {}
    mounts: dict[str, MountEdit] = {}
    hooks: list[HookEdit] = []
    net: list[tuple[str, str]] = []
    gids: list[int] = []
    rdt = False
    for part in parts:
        env.update((text.partition("=")[0], text) for text in part.env)
        nodes.update((node.path, node) for node in part.device_nodes)
        mounts.update((mount.container_path, mount) for mount in part.mounts)
        hooks += part.hooks
        net += part.net_devices
        gids += part.additional_gids
        rdt = rdt or part.intel_rdt
    return ContainerEdits(
        env=tuple(env.values()),
        device_nodes=tuple(nodes.values()),
        mounts=tuple(mounts.values()),
        hooks=tuple(hooks),
        net_devices=tuple(net),
        additional_gids=tuple(dict.fromkeys(gids)),
        intel_rdt=rdt,
    )


class EditsPlanner:
    """Turns the merged edits of one kind into parts of an injection.

    Args:
        kind: `vendor/class`, for explanations.
        rehome: libraries and programs go to the private folder instead of the image's own; those in
            folders of an update-ldcache hook do in any case.
        keep_paths: they are bound at their own paths too.
        ignore_privileged: edits that need privileges are left out with a warning.
    """

    def __init__(
        self, kind: str, *, rehome: bool, keep_paths: bool, ignore_privileged: bool
    ) -> None:
        self.kind = kind
        self.rehome = rehome
        self.keep_paths = keep_paths
        self.ignore_privileged = ignore_privileged
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.gbm: list[Link] = []
        self.also: list[Library] = []

    def plan(self, edits: ContainerEdits, meaning: HookMeaning) -> Injection:
        """Return the injection.

        Raises:
            DeviceError: if something of the host that the edits name is missing.
            UnsupportedError: if the edits need privileges.
        """
        self._check_privileges(edits)
        devices = tuple(self._device(node, edits.additional_gids) for node in edits.device_nodes)
        libraries: list[Library] = []
        programs: list[Program] = []
        binds: list[Bind] = []
        for mount in edits.mounts:
            item = self._mount(mount, meaning.folders)
            if isinstance(item, Library):
                libraries.append(item)
            elif isinstance(item, Program):
                programs.append(item)
            else:
                binds.append(item)
        libraries += self.also
        names, links = self._links(meaning.links, libraries)
        libraries = _merge_libraries(libraries, names)
        environ = [text.partition("=") for text in edits.env]
        return Injection(
            devices=devices,
            libraries=tuple(libraries),
            programs=tuple(programs),
            binds=tuple(sorted(binds, key=lambda bind: bind.target.count("/"))),
            links=(*links, *self.gbm),
            environ=tuple((name, value) for name, _, value in environ),
            warnings=tuple(self.warnings),
            notes=(*self.notes, *meaning.notes),
        )

    def _check_privileges(self, edits: ContainerEdits) -> None:
        if edits.net_devices:
            listed = ", ".join(host for host, _ in edits.net_devices)
            if not self.ignore_privileged:
                raise UnsupportedError(
                    f"cdi: {self.kind} moves network interfaces ({listed}), which needs privileges",
                    hint="ENROOT_CDI_IGNORE_PRIVILEGED=yes leaves them out",
                )
            self.warnings.append(f"cdi: {self.kind}: network interfaces {listed} are left out")
        if edits.intel_rdt:
            self.warnings.append(f"cdi: {self.kind}: resource control (intelRdt) is left out")

    def _device(self, node: NodeEdit, gids: tuple[int, ...]) -> Device:
        source = node.host_path or node.path
        try:
            facts = os.stat(source)
        except OSError as error:
            raise DeviceError(
                f"cdi: {self.kind} names {source}: {error.strerror}",
                hint="the devices have changed since; generate the specification again",
            ) from error
        if node.type and not _TYPES[node.type](facts.st_mode):
            raise DeviceError(
                f'cdi: {self.kind} names {source}, which is not of type "{node.type}"',
                hint="generate the specification again",
            )
        stated = (node.major, node.minor)
        actual = (os.major(facts.st_rdev), os.minor(facts.st_rdev))
        if node.major >= 0 and stated != actual:
            self.warnings.append(
                f"cdi: {self.kind}: {source} is device {actual[0]}:{actual[1]} here, the "
                f"specification says {node.major}:{node.minor}; generate it again"
            )
        if not os.access(source, os.R_OK | os.W_OK, effective_ids=True):
            self._denied(source, node, facts, gids)
        if node.permissions not in ("", "rw", "rwm"):
            self.notes.append(f'cdi: "{node.permissions}" for {node.path} cannot be enforced here')
        return Device(source, node.path, self.kind)

    def _denied(
        self, source: str, node: NodeEdit, facts: os.stat_result, gids: tuple[int, ...]
    ) -> None:
        if facts.st_mode & 0o006 == 0o006:
            self.warnings.append(f"cdi: {source} is denied to this process by the device cgroup")
            return
        wanted = gids or ((node.gid,) if node.gid > 0 else (facts.st_gid,))
        groups = ", ".join(_group_name(gid) for gid in wanted)
        mode = stat.S_IMODE(facts.st_mode)
        self.warnings.append(
            f"cdi: {source}: permission denied (mode {mode:04o}; you are not in group {groups})"
        )

    def _mount(self, mount: MountEdit, folders: tuple[str, ...]) -> Bind | Library | Program:
        words = [word for option in mount.options for word in option.split(",")]
        unknown = [w for w in words if w not in _OPTIONS and mount.type != "tmpfs"]
        if unknown:
            raise DeviceError(f'cdi: {self.kind}: unknown mount option "{unknown[0]}"')
        if mount.type == "tmpfs":
            options = tuple(word for word in words if word not in ("bind", "rbind"))
            return Bind("tmpfs", mount.container_path, self.kind, "folder", options, True, "tmpfs")
        if mount.type not in ("", "none", "bind"):
            raise DeviceError(f'cdi: {self.kind}: unknown mount type "{mount.type}"')
        try:
            facts = os.stat(mount.host_path)
        except OSError as error:
            raise DeviceError(
                f"cdi: {self.kind} mounts {mount.host_path}: {error.strerror}",
                hint="generate the specification again",
            ) from error
        options = tuple(dict.fromkeys(word for word in words if word in _KEPT))
        if stat.S_ISSOCK(facts.st_mode):
            return Bind(mount.host_path, mount.container_path, self.kind, "socket", options)
        if stat.S_ISDIR(facts.st_mode):
            return Bind(
                mount.host_path, mount.container_path, self.kind, "folder", options, required=True
            )
        return self._file(mount, options, folders, facts)

    def _file(
        self,
        mount: MountEdit,
        options: tuple[str, ...],
        folders: tuple[str, ...],
        facts: os.stat_result,
    ) -> Bind | Library | Program:
        """Tell libraries and programs from other files: those have places that need no writing."""
        path = mount.container_path
        folder, _, name = path.rpartition("/")
        bind = Bind(
            mount.host_path, path, self.kind, "file", options, self.keep_paths or not self.rehome
        )
        inside = folder.rpartition("/")[2]
        special = inside in ("vdpau", "gbm") or not folders
        if ".so" in name and (folder in folders or (self.rehome and special)):
            library = self._library(mount.host_path, name, inside)
            if library is not None and self.keep_paths:
                self.also.append(library)
            elif library is not None:
                return library
        program = self.rehome and folder in _PROGRAM_FOLDERS and facts.st_mode & 0o111
        return (
            Program(mount.host_path, path, self.kind) if program and not self.keep_paths else bind
        )

    def _library(self, source: str, name: str, inside: str) -> Library | None:
        elf = read_elf(source)
        if elf is None:
            return None
        soname = elf.soname or name
        if inside == "gbm":
            self.gbm.append(Link(f"lib:gbm/{name}", f"../{soname}", self.kind))
        names = (name,) if name != soname and inside != "gbm" else ()
        return Library(
            source, soname, self.kind, names, elf.bits, inside if inside == "vdpau" else ""
        )

    def _links(
        self, links: tuple[tuple[str, str], ...], libraries: list[Library]
    ) -> tuple[dict[str, list[str]], list[Link]]:
        """Tell further names of re-homed libraries from links in the rootfs.

        Returns:
            Names to add, by SONAME, and the other links.
        """
        owners = {name: lib.soname for lib in libraries for name in (lib.soname, *lib.names)}
        names: dict[str, list[str]] = {}
        others = []
        for target, path in links:
            own, name = target.rpartition("/")[2], path.rpartition("/")[2]
            owner = owners.get(own)
            if owner is not None and path.rpartition("/")[0].endswith("/gbm"):
                others.append(Link(f"lib:gbm/{name}", target, self.kind))
            elif owner is not None and ".so" in name:
                owners[name] = owner
                names.setdefault(owner, []).append(name)
            elif owner is None and self.rehome and name in owners:
                continue
            else:
                others.append(Link(path, target, self.kind))
        return names, others


def _merge_libraries(libraries: list[Library], names: dict[str, list[str]]) -> list[Library]:
    """Put mounts of one library under several names together, and add its further names."""
    merged: dict[tuple[str, int, str], Library] = {}
    for library in libraries:
        key = (library.soname, library.bits, library.folder)
        known = merged.get(key)
        all_names = (*(known.names if known else ()), *library.names)
        all_names += tuple(names.get(library.soname, ()))
        unique = tuple(name for name in dict.fromkeys(all_names) if name != library.soname)
        merged[key] = library._replace(names=unique)
    return list(merged.values())


def _group_name(gid: int) -> str:
    import grp

    try:
        return f'{gid} "{grp.getgrgid(gid).gr_name}"'
    except KeyError:
        return str(gid)


def host_hooks(hooks: tuple[HookEdit, ...]) -> tuple[HostHook, ...]:
    """Return hooks as the executor takes them."""
    return tuple(
        HostHook(hook.hook_name, hook.path, hook.args or (hook.path,), hook.env, hook.timeout)
        for hook in hooks
    )
