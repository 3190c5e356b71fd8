"""Put an injection into a mounted rootfs: look at the rootfs, place, carry out, report.

The one entry for the hooks; everything it decides is decided by `place` and the planners.
"""

from __future__ import annotations

from enroot_py import log
from enroot_py.gpu.injection import Injection
from enroot_py.gpu.rootfs.attach import Attacher
from enroot_py.gpu.rootfs.executor import Executor
from enroot_py.gpu.rootfs.facts import observe_rootfs
from enroot_py.gpu.rootfs.placement import Placement, place
from enroot_py.gpu.slurm import visible_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple

    from enroot_py.linux.kernel import Kernel
else:
    from enroot_py.record import NamedTuple


class Target(NamedTuple):
    """A container being set up.

    Attributes:
        kernel: the way to system calls.
        rootfs: absolute host path of the mounted root filesystem.
        workdir: absolute host path of a private folder in memory.
        environ: the container's environment so far.
        arch: the machine's architecture, as the kernel names it.
        ephemeral: what is written to the rootfs vanishes with the container.
        writable: the container may write its rootfs.
        library_path: name the libraries' folder in LD_LIBRARY_PATH in any case.
        verbose: report decisions too, not only warnings.
        pid: the container's process, for hooks of CDI specifications.
    """

    kernel: Kernel
    rootfs: str
    workdir: str
    environ: Mapping[str, str]
    arch: str
    ephemeral: bool = False
    writable: bool = False
    library_path: bool = False
    verbose: bool = False
    pid: int = 0


def apply_injection(
    injection: Injection, target: Target, attacher: Attacher | None = None
) -> tuple[tuple[str, str], ...]:
    """Carry an injection out; returns assignments for the container's environment.

    Raises:
        DeviceError: if something that is required cannot be put in place.
    """
    for text in injection.warnings:
        log.warn(text)
    if injection.empty:
        _report(injection.notes, target)
        return ()
    if injection.hooks:
        from enroot_py.gpu.cdi.host_hooks import run_hooks

        run_hooks(injection.hooks, rootfs=target.rootfs, workdir=target.workdir, pid=target.pid)
    facts = observe_rootfs(
        target.rootfs, injection, ephemeral=target.ephemeral, writable=target.writable
    )
    placement = place(
        injection, facts, target.environ, target.arch, library_path=target.library_path
    )
    environ = dict(placement.environ)
    environ.update(visible_devices(target.environ, injection.visible_gpus))
    for text in placement.warnings:
        log.warn(text)
    with Executor(target.kernel, target.rootfs, target.workdir, attacher) as executor:
        _carry_out(executor, placement, injection)
        _report((*injection.notes, *placement.notes, *executor.notes), target)
    return tuple(environ.items())


def _carry_out(executor: Executor, placement: Placement, injection: Injection) -> None:
    if injection.sysfs_classes:
        from enroot_py.gpu.rootfs.sysfs import narrow_classes

        narrow_classes(executor, injection.sysfs_classes)
    if not injection.proc:
        executor.carry_out(placement)
        return
    from enroot_py.gpu.rootfs.proc_files import mask_proc

    executor.carry_out(placement, lambda own: mask_proc(own, injection))


def _report(notes: tuple[str, ...], target: Target) -> None:
    if target.verbose:
        for text in notes:
            log.info(text)
