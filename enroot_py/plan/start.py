"""Decide a start: spec, settings and host facts in, a frozen plan out. Pure.

Everything that can be decided before the namespaces are entered is decided here; `plan/printing.py`
shows a plan, `enter/` carries it out.

Source: enroot 4.1.2 src/runtime.sh, runtime::start() and runtime::_start(), for the order.
"""

from __future__ import annotations

from enroot_py.errors import SettingsError, UnsupportedError, UsageError
from enroot_py.plan.environ import parse_assignment
from enroot_py.plan.fstab import Mount, parse_fstab, parse_mount
from enroot_py.plan.system_mounts import NET_FSTAB, PID_FSTAB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import NamedTuple

    from enroot_py.host import HostFacts
    from enroot_py.plan.spec import StartSpec
    from enroot_py.settings import Settings
else:
    from enroot_py.record import NamedTuple

MACHINES = ("x86_64", "aarch64", "ppc64le")
"""What `uname -m` may say: the machines whose system call numbers are known (linux/)."""

BEFORE_HOOKS, AFTER_HOOKS = -1, 0
"""The passes in which mount entries are performed; entries of any other fs_passno never are."""

_FLAGS = (
    # field of the spec, field of the settings, variable that hooks see
    ("root", "remap_root", "ENROOT_REMAP_ROOT"),
    ("writable", "rootfs_writable", "ENROOT_ROOTFS_WRITABLE"),
    ("unshare_pid", "unshare_pid", "ENROOT_UNSHARE_PID"),
    ("unshare_net", "unshare_net", "ENROOT_UNSHARE_NET"),
    ("unshare_ipc", "unshare_ipc", "ENROOT_UNSHARE_IPC"),
    ("unshare_uts", "unshare_uts", "ENROOT_UNSHARE_UTS"),
)


class RootfsSource(NamedTuple):
    """Where a root filesystem comes from.

    Attributes:
        path: absolute host path of a folder or of a squashfs image, links resolved.
        is_image: it is an image.
        borrowed: a folder on a read-only file system: it is the lower layer of an overlay, and
            what is written vanishes with the container, as it does over an image.
    """

    path: str
    is_image: bool = False
    borrowed: bool = False


class NamespacePlan(NamedTuple):
    """The namespaces to enter; a cgroup namespace comes at the end.

    Attributes:
        user: a user namespace that maps this user alone.
        uid, gid: who the user is inside: 0 if remapped to root.
        outside_uid, outside_gid: who he is on the host.
        pid, net, ipc, uts: namespaces of these kinds.
        machine: the machine whose system calls are filtered, where there is a user namespace.
        mount: a mount namespace; every container has one.
    """

    user: bool
    uid: int
    gid: int
    outside_uid: int
    outside_gid: int
    pid: bool
    net: bool
    ipc: bool
    uts: bool
    machine: str
    mount: bool = True


class StartPlan(NamedTuple):
    """Everything that is decided before the namespaces are entered.

    Attributes:
        namespaces: which, and who the user is inside.
        rootfs: where the root filesystem comes from.
        writable: whether it stays writable for the container.
        workdir: absolute host path of the runtime folder; a tmpfs is mounted there.
        settings: the configuration, the spec's switches included.
        host: facts about the user and the machine.
        environ: what `--env` asked for, in order.
        mounts: what `--mount` asked for, in order.
        conf: absolute host path of the configuration script, or "".
        rc: host path of the command script, or "" for the image's.
        command: words for the command script, or the command.
        gpus, devices: as in the spec.
        preserve_fds: descriptors from 3 on to pass on, ascending.
    """

    namespaces: NamespacePlan
    rootfs: RootfsSource
    writable: bool
    workdir: str
    settings: Settings
    host: HostFacts
    environ: tuple[tuple[str, str], ...]
    mounts: tuple[Mount, ...]
    conf: str
    rc: str
    command: tuple[str, ...]
    gpus: str
    devices: tuple[str, ...]
    preserve_fds: tuple[int, ...]

    @property
    def environ_file(self) -> str:
        """The file by which executed hooks change the container's environment."""
        return f"{self.workdir}/environment"

    @property
    def mounts_file(self) -> str:
        """The file by which executed hooks ask for mounts."""
        return f"{self.workdir}/fstab"

    @property
    def mounted_rootfs(self) -> str:
        """Where the rootfs will be mounted: absolute host path."""
        if self.rootfs.is_image or self.rootfs.borrowed:
            return f"{self.workdir}/overlay"
        return self.rootfs.path


def plan_start(
    spec: StartSpec, settings: Settings, host: HostFacts, rootfs: RootfsSource
) -> StartPlan:
    """Decide how to start a container.

    Args:
        spec: what was asked for.
        settings: the configuration; switches of the spec are added to it.
        host: facts about the user and the machine.
        rootfs: what `spec.target` turned out to be.

    Raises:
        UsageError: for a mount, a variable or a word that cannot be.
        SettingsError: if the runtime folder would hide the rootfs.
        UnsupportedError: on a machine whose system calls are not known.
    """
    if host.architecture not in MACHINES:
        raise UnsupportedError(
            f"Containers cannot be started on {host.architecture}",
            hint="supported: " + ", ".join(MACHINES),
        )
    settings = add_switches(spec, settings)
    workdir = settings.runtime_path
    if not rootfs.is_image and f"{rootfs.path}/".startswith(f"{workdir}/"):
        raise SettingsError(
            f"The runtime folder {workdir} would hide the container {rootfs.path}, which is in it",
            hint="set ENROOT_DATA_PATH or ENROOT_RUNTIME_PATH to another folder",
        )
    for word in spec.command:
        if "\0" in word:
            raise UsageError(f"Invalid command: {word!r} holds a NUL byte")
    return StartPlan(
        namespaces=plan_namespaces(settings, host),
        rootfs=rootfs,
        writable=settings.rootfs_writable,
        workdir=workdir,
        settings=settings,
        host=host,
        environ=plan_environ(spec.environ, settings.environment),
        mounts=tuple(
            parse_mount(mount) if isinstance(mount, str) else mount for mount in spec.mounts
        ),
        conf=spec.conf,
        rc=spec.rc,
        command=spec.command,
        gpus=spec.gpus,
        devices=spec.devices,
        preserve_fds=plan_descriptors(settings.environment, host.pid, spec.preserve_fds),
    )


def add_switches(spec: StartSpec, settings: Settings) -> Settings:
    """Return the settings with the spec's switches on, as hooks see them too.

    Source: enroot 4.1.2 enroot.in, enroot::start().
    """
    changes: dict[str, object] = {}
    environment = dict(settings.environment)
    for asked, field, variable in _FLAGS:
        if getattr(spec, asked):
            changes[field] = True
            environment[variable] = "y"
    if not changes:
        return settings
    return settings._replace(environment=environment, **changes)  # type: ignore[arg-type]


def plan_namespaces(settings: Settings, host: HostFacts) -> NamespacePlan:
    """Decide which namespaces to enter.

    Source: enroot 4.1.2 src/runtime.sh, the end of runtime::start().
    """
    user = host.euid != 0 or not settings.allow_superuser
    remap = user and settings.remap_root
    return NamespacePlan(
        user=user,
        uid=0 if remap else host.euid,
        gid=0 if remap else host.egid,
        outside_uid=host.euid,
        outside_gid=host.egid,
        pid=settings.unshare_pid,
        net=settings.unshare_net,
        ipc=settings.unshare_ipc,
        uts=settings.unshare_uts,
        machine=host.architecture,
    )


def plan_environ(
    assignments: Iterable[str], environment: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Parse what `--env` asked for.

    Raises:
        UsageError: for a malformed assignment, and for ENROOT_ names: they are reserved, and would
            not arrive.
    """
    pairs = tuple(parse_assignment(text, environment) for text in assignments)
    for name, _ in pairs:
        if name.startswith("ENROOT_"):
            raise UsageError(
                f"Invalid variable: {name} is reserved for the host",
                hint="choose a name that does not begin with ENROOT_",
            )
    return pairs


def plan_descriptors(environment: Mapping[str, str], pid: int, preserve: int) -> tuple[int, ...]:
    """Return the descriptors from 3 on that the container gets, ascending.

    They are PMI_FD's, LISTEN_FDS' where LISTEN_PID names this process, and the first `preserve`.

    Source: sd_listen_fds(3); Slurm's PMI2 client protocol for PMI_FD.
    """
    numbers = set(range(3, 3 + preserve))
    pmi = environment.get("PMI_FD", "")
    if pmi.isdecimal() and 2 < int(pmi) < 1 << 20:
        numbers.add(int(pmi))
    count = environment.get("LISTEN_FDS", "")
    if count.isdecimal() and environment.get("LISTEN_PID") in (str(pid), None):
        numbers.update(range(3, 3 + min(int(count), 1 << 16)))
    return tuple(sorted(numbers))


def host_variables(plan: StartPlan, rootfs: str, *, pid: int) -> dict[str, str]:
    """Return what `${NAME}` refers to in a container's configuration files.

    Args:
        plan: has the host's environment.
        rootfs: absolute host path of the mounted rootfs.
        pid: the container's process, as the host knows it.
    """
    variables = dict(plan.settings.environment)
    variables["ENROOT_PID"] = str(pid)
    variables["ENROOT_ROOTFS"] = rootfs
    variables["ENROOT_WORKDIR"] = plan.workdir
    variables["ENROOT_ENVIRON"] = plan.environ_file
    variables["ENROOT_MOUNTS"] = plan.mounts_file
    return variables


def plan_mounts(
    texts: Iterable[tuple[str, str]], plan: StartPlan, environ: Mapping[str, str]
) -> tuple[Mount, ...]:
    """Return the mounts of the configuration, image and namespaces, in the order of their files.

    Args:
        texts: (file name, fstab text) of the image's and the host's files, in order.
        plan: says which namespaces there are.
        environ: what `${NAME}` refers to.

    Raises:
        InvalidMountError: naming file and entry.

    Source: enroot 4.1.2 src/runtime.sh, runtime::_do_mounts_init().
    """
    mounts: list[Mount] = []
    for origin, text in texts:
        mounts += parse_fstab(text, environ, origin)
    if plan.namespaces.pid:
        mounts += parse_fstab(PID_FSTAB, environ, "--pid")
    if plan.namespaces.net:
        mounts += parse_fstab(NET_FSTAB, environ, "--net")
    return tuple(mounts)


def mounts_of_pass(mounts: Iterable[Mount], passno: int) -> tuple[Mount, ...]:
    """Return the entries of one pass, in order."""
    return tuple(mount for mount in mounts if mount.passno == passno)
