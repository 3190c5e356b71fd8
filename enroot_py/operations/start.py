"""Start a container: spec → plan → namespaces → mounts → hooks → root switch → exec.

`start` turns this process into the container and never returns. A program with threads, or one that
wants to go on, uses `spawn` (operations/spawn.py).

Source: enroot 4.1.2 src/runtime.sh, runtime::start() and runtime::_start(), for the order of steps.
"""

from __future__ import annotations

import os

from enroot_py.enter.configuration import (
    ENVIRON,
    FSTAB,
    gather_environ_files,
    gather_mount_files,
    read_own_file,
)
from enroot_py.enter.execute import execute
from enroot_py.enter.namespaces import enter_namespaces
from enroot_py.enter.process import close_on_exec, is_open
from enroot_py.enter.rootfs import make_workdir, mount_rootfs, seal_rootfs
from enroot_py.enter.switch_root import switch_root
from enroot_py.hooks.context import HookContext
from enroot_py.hooks.find import find_hooks
from enroot_py.hooks.run import run_hooks
from enroot_py.host import observe_host
from enroot_py.linux.capabilities import drop_privileges
from enroot_py.linux.kernel import Kernel
from enroot_py.operations.start_files import (
    find_rootfs,
    prepare_image,
    read_directives,
    read_rc,
)
from enroot_py.plan.environ import parse_environ
from enroot_py.plan.start import (
    AFTER_HOOKS,
    BEFORE_HOOKS,
    StartPlan,
    host_variables,
    mounts_of_pass,
    plan_mounts,
    plan_start,
)
from enroot_py.settings import load_settings
from enroot_py.store.containers import RootfsLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

    from enroot_py.enter.mounts import Mounter
    from enroot_py.hooks.conf_script import ConfScript
    from enroot_py.hooks.find import Hook
    from enroot_py.plan.spec import StartSpec
    from enroot_py.settings import Settings


def start(
    spec: StartSpec, *, settings: Settings | None = None, kernel: Kernel | None = None
) -> NoReturn:
    """Become the container that `spec` describes.

    The process keeps its id, its standard streams and its terminal; in a new pid namespace its
    child becomes the container and this process waits for it.

    Args:
        spec: what to start.
        settings: the configuration; read, with the directives of `spec.conf`, if None.
        kernel: the way to system calls.

    Raises:
        NotFoundError: if there is no such container or image.
        NamespaceError: if the kernel refuses a namespace; the hint names the switch.
        HookError: if a hook fails.
        CommandError: if the container's command cannot be run (exit code 126 or 127).
        EnrootError: anything else that is wrong with spec, settings, image or machine.
    """
    kernel = kernel or Kernel()
    settings = settings or load_settings(directives=read_directives(spec.conf))
    plan = plan_start(spec, settings, observe_host(), find_rootfs(spec.target, settings))
    hooks = find_hooks(plan.settings)
    rc = read_rc(plan.rc)
    kept = tuple(fd for fd in plan.preserve_fds if is_open(fd))
    make_workdir(plan.workdir, plan.host.euid)
    server, unpack = prepare_image(plan)
    enter_namespaces(kernel, plan.namespaces)
    mounter = mount_rootfs(kernel, plan, server=server, unpack=unpack)
    with RootfsLock(mounter.rootfs):
        environ, own_rc = _set_up(kernel, plan, mounter, hooks)
    seal_rootfs(mounter, writable=plan.writable)
    close_on_exec(kernel, kept)
    switch_root(kernel, mounter.root_fd)
    drop_privileges(kernel, plan.namespaces.uid)
    execute(
        kernel,
        plan.command,
        environ,
        login=plan.settings.login_shell,
        rc=own_rc if rc is None else rc,
        uid=plan.namespaces.uid,
        outside_uid=plan.namespaces.outside_uid,
    )


def _set_up(
    kernel: Kernel, plan: StartPlan, mounter: Mounter, hooks: Iterable[Hook]
) -> tuple[dict[str, str], bytes | None]:
    """Mount, run hooks, mount; return the container's environment and the script's own rc."""
    context = _hook_context(kernel, plan, mounter)
    variables = host_variables(plan, context.rootfs, pid=context.pid)
    environ = context.environ
    own = read_own_file(mounter.root_fd, ENVIRON)
    for _, text in gather_environ_files(plan.settings, own):
        environ.update(parse_environ(text, variables))
    script = _open_script(plan, context)
    if script is not None:
        environ.update(script.environ())
    environ.update(plan.environ)
    own = read_own_file(mounter.root_fd, FSTAB)
    mounts = plan_mounts(gather_mount_files(plan.settings, own), plan, variables)
    mounter.apply(mounts_of_pass(mounts, BEFORE_HOOKS))
    edits = run_hooks(context, hooks, script)
    mounter.apply(edits.mounts)
    mounter.apply(mounts_of_pass(mounts, AFTER_HOOKS))
    if script is None:
        mounter.apply(plan.mounts)
        return dict(edits.environ), None
    with script:
        mounter.apply(script.mounts())
        mounter.apply(plan.mounts)
        return dict(edits.environ), os.fsencode(script.rc()) or None


def _hook_context(kernel: Kernel, plan: StartPlan, mounter: Mounter) -> HookContext:
    return HookContext(
        # In a pid namespace this process is 1; hooks need the number that the host knows it by.
        pid=int(os.readlink("/proc/self")),
        rootfs=mounter.rootfs,
        workdir=plan.workdir,
        settings=plan.settings,
        host=plan.host,
        kernel=kernel,
        environ_file=plan.environ_file,
        mounts_file=plan.mounts_file,
        environ={},
        mount=mounter.apply,
        is_image=plan.rootfs.is_image or plan.rootfs.borrowed,
        gpus=plan.gpus,
        devices=plan.devices,
    )


def _open_script(plan: StartPlan, context: HookContext) -> ConfScript | None:
    if not plan.conf:
        return None
    from enroot_py.hooks.conf_script import ConfScript

    return ConfScript(plan.conf, context)


def dry_run(spec: StartSpec, *, settings: Settings | None = None) -> str:
    """Return what `start` would do, as text; does nothing. See operations/dry_run.py."""
    from enroot_py.operations.dry_run import describe_start

    return describe_start(spec, settings=settings)
