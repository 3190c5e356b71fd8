"""Carry a step's plan out: get the image, make the container, start it once for all tasks.

The container's first process is the pause program (pause.py), which the image's command script
executes last: its environment and its working directory are what tasks get. It is a child of this
process, which stays outside and goes on.

Source: pyxis 0.24 pyxis_slurmstepd.c, enroot_container_create() and enroot_container_start().
"""

from __future__ import annotations

import os
import sys

from enroot_py import (
    CommandError,
    EnrootError,
    NotFoundError,
    StartSpec,
    StoreError,
    UsageError,
    end_with_parent,
    set_log_sink,
    start,
)
from pyxis_py.site_packages import add_site_on_demand
from pyxis_py.step.pause import pause_program
from pyxis_py.step.plan import CREATE, DIRECT, IMPORTER, RC_LOCAL, URI, rc_local_mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NamedTuple, NoReturn

    from enroot_py import Mount, Settings
    from pyxis_py.plugin_config import PluginConfig
    from pyxis_py.protocol.news import News
    from pyxis_py.step.plan import StepPlan
else:
    from enroot_py import NamedTuple

_PAUSE_FD = 3
_MFD_EXEC, _CLOEXEC = 0x10, 1
_SIGKILL = 9
_NAMESPACES = ("user", "cgroup", "mnt", "ipc", "uts", "net")


class Started(NamedTuple):
    """A container that was started for a step.

    Attributes:
        pid: its first process, a child of this one; it is stopped.
        cwd: its working directory, a path inside the container.
        environ: its environment.
    """

    pid: int
    cwd: str
    environ: dict[str, str]


class Image:
    """A step's image, held for as long as it is needed. To be closed by the caller."""

    def __init__(self, path: str, release: Callable[[], None] | None = None) -> None:
        """Hold the squashfs file at `path`; `release` lets go of it."""
        self.path = path
        self._release = release

    def close(self) -> None:
        """Let go of the image."""
        if self._release is not None:
            release, self._release = self._release, None
            release()


def obtain_image(
    plan: StepPlan, config: PluginConfig, settings: Settings, news: News, *, scratch: str
) -> Image:
    """Return the squashfs file of a plan that needs one, importing it if need be.

    Args:
        plan, config, settings: say which image, and how it is got.
        news: is told how an import goes.
        scratch: absolute host path of a folder to import to where the site wants no cache.

    Raises:
        NotFoundError, SquashfsError, RegistryError, …: whatever is wrong with the image.
    """
    if plan.origin == IMPORTER:
        from pyxis_py.importer import get_image

        return Image(get_image(config.importer, plan.image, settings.environment))
    if plan.origin != URI:
        if os.path.isdir(plan.image):
            raise NotFoundError(f"--container-image: a folder, not a file: {plan.image}")
        if not os.path.isfile(plan.image):
            raise NotFoundError(
                f"--container-image: no such file on this node: {plan.image}",
                hint="images of a registry begin with neither a dot nor a slash",
            )
        return Image(plan.image)
    from pyxis_py.site_packages import add_libraries
    from pyxis_py.step.time_limit import time_limit

    add_libraries()
    from enroot_py import cached_image
    from pyxis_py.step.import_progress import ReportedProgress

    if config.cache_policy == "never":
        settings = settings._replace(cache_path=scratch)
    with time_limit(plan.import_timeout, plan.image):
        held = cached_image(plan.image, settings=settings, progress=ReportedProgress(news))
        return Image(held.__enter__(), lambda: _leave(held))


def _leave(held: object) -> None:
    held.__exit__(None, None, None)  # type: ignore[attr-defined]


def make_container(plan: StepPlan, image: Image, settings: Settings) -> None:
    """Unpack the image into the plan's container.

    Raises:
        ExistsError: if another step has made it in the meantime.
        EnrootError: whatever else is wrong.
    """
    from pyxis_py.site_packages import add_libraries

    add_libraries()
    from enroot_py import create

    create(image.path, plan.container, settings=settings)


def load_container(plan: StepPlan, settings: Settings) -> None:
    """Unpack the plan's registry image into its container, without an image file in between."""
    from pyxis_py.site_packages import add_libraries
    from pyxis_py.step.time_limit import time_limit

    add_libraries()
    from enroot_py import load

    with time_limit(plan.import_timeout, plan.image):
        load(plan.image, plan.container, settings=settings)


def start_container(
    plan: StepPlan, target: str, settings: Settings, *, folder: str, environ: tuple[str, ...]
) -> Started:
    """Start a container and return once its command script is done.

    Args:
        plan: what is wanted of it.
        target: a container's name or an image's path.
        settings: in force.
        folder: host path of the user's runtime folder.
        environ: "NAME=value" variables for the container.

    Raises:
        EnrootError: whatever is wrong; the log's last lines are part of the message's hint.
    """
    mounts = list(plan.mounts)
    for mount in mounts:
        _check_source(mount)
    if not plan.entrypoint:
        mounts.append(rc_local_mount(_rc_local(folder)))
    spec = StartSpec(
        target=target,
        command=(f"/proc/self/fd/{_PAUSE_FD}",),
        mounts=tuple(mounts),
        environ=environ,
        gpus=plan.gpus,
        devices=plan.devices,
        preserve_fds=1,
    )
    fault_fd, child_fault_fd = os.pipe()
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(spec, settings, child_fault_fd, keeper)
    os.close(child_fault_fd)
    with open(fault_fd, "rb") as file:
        fault = file.read().decode("utf-8", "surrogateescape")
    _, status = os.waitpid(pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        raise _explain(fault, status, plan)
    return _read(pid)


def stop_container(started: Started) -> None:
    """End the container's first process; tasks that have joined keep the container alive."""
    os.kill(started.pid, _SIGKILL)
    os.waitpid(started.pid, 0)


def differing_namespaces(pid: int) -> tuple[str, ...]:
    """Return the kinds of namespaces that a process has of its own, in joining order."""
    return tuple(
        name
        for name in _NAMESPACES
        if _identity(f"/proc/{pid}/ns/{name}") not in (None, _own(name))
    )


def _own(name: str) -> tuple[int, int] | None:
    return _identity(f"/proc/self/ns/{name}")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None  # a kernel without this kind
    return status.st_dev, status.st_ino


def target_of(plan: StepPlan, image: Image | None) -> str:
    """Return what is to be started: the image's path, or the container's name."""
    return image.path if plan.action == DIRECT and image is not None else plan.container


def needs_image(plan: StepPlan) -> bool:
    """Tell whether an image file has to be there before the start."""
    return plan.action == DIRECT or (plan.action == CREATE and not plan.load)


def _check_source(mount: Mount) -> None:
    """Name a missing source by the flag that it came from, before anything is started."""
    if mount.source.startswith("/") and not os.path.lexists(mount.source):
        raise NotFoundError(f"--container-mounts: no such file or folder: {mount.source}")


def _rc_local(folder: str) -> str:
    """Return the path of a file with RC_LOCAL in it."""
    path = os.path.join(folder, "rc.local")
    try:
        with open(path, "rb") as file:
            if file.read() == RC_LOCAL:
                return path
    except FileNotFoundError:
        pass
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            file.write(RC_LOCAL)
        os.replace(temporary, path)
    except OSError as error:
        try:
            os.unlink(temporary)
        except OSError:
            pass  # it could not even be made
        raise StoreError(
            f"Cannot write {path}: {error.strerror}",
            hint="free some space there, or have runtime_path= name another file system",
        ) from error
    return path


def _become(spec: StartSpec, settings: Settings, fault_fd: int, keeper: int) -> NoReturn:
    """The child: become the container; never returns to the caller's code."""
    status = 0
    try:
        end_with_parent(keeper)  # a keeper that is killed would leave it stopped, for ever
        set_log_sink(_print_message)
        add_site_on_demand()
        _place_pause_program(fault_fd)
        os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
        start(spec, settings=settings)
    except EnrootError as error:
        _report(fault_fd, f"{error}\n{error.hint}")
        status = error.exit_code
    except OSError as error:
        _report(fault_fd, f"{error.strerror}: {error.filename}\n")
        status = 1
    finally:
        if not status:
            # Something that nobody has foreseen; what is printed is shown as the log.
            sys.excepthook(*sys.exc_info())
        os._exit(status or 1)


def _print_message(level: str, text: str) -> None:
    os.write(2, f"[{level}] {text}\n".encode("utf-8", "replace"))


def memory_program(name: str, program: bytes) -> int:
    """Return a close-on-exec descriptor of a program in memory."""
    try:
        fd = os.memfd_create(name, _MFD_EXEC | _CLOEXEC)
    except OSError:  # kernels before 6.3 know no such flag, and need none
        fd = os.memfd_create(name, _CLOEXEC)
    os.write(fd, program)
    return fd


def _place_pause_program(fault_fd: int) -> None:
    """Put the pause program at descriptor 3, which the container inherits."""
    if fault_fd == _PAUSE_FD:
        raise UsageError("Descriptor 3 is in use")
    fd = memory_program("pause", pause_program(os.uname().machine))
    if fd == _PAUSE_FD:
        os.set_inheritable(fd, True)
    else:
        os.dup2(fd, _PAUSE_FD)
        os.close(fd)
    os.fchmod(_PAUSE_FD, 0o555)


def _report(fd: int, text: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(fd, data) :]


def _explain(fault: str, status: int, plan: StepPlan) -> EnrootError:
    message, _, hint = fault.partition("\n")
    if not message:
        code = os.waitstatus_to_exitcode(status)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        message = f"The container ended while it was started ({how})"
        if plan.entrypoint:
            hint = "an unusual entrypoint may be the cause: --no-container-entrypoint leaves it out"
    return CommandError(message, hint=hint)


def _read(pid: int) -> Started:
    inner = _inner_process(pid)
    with open(f"/proc/{inner}/environ", "rb") as file:
        data = file.read().decode("utf-8", "surrogateescape")
    environ = {}
    for item in data.split("\0"):
        name, equals, value = item.partition("=")
        if equals and name:
            environ[name] = value
    return Started(pid, os.readlink(f"/proc/{inner}/cwd"), environ)


def _inner_process(pid: int) -> int:
    """Return the first process of a pid namespace that `pid` only waits for, else `pid`."""
    folder = f"/proc/{pid}"
    if os.stat(f"{folder}/ns/pid").st_ino == os.stat(f"{folder}/ns/pid_for_children").st_ino:
        return pid
    with open(f"{folder}/task/{pid}/children", encoding="ascii") as file:
        return int((file.read().split() or [str(pid)])[0])
