"""Set a mounted container up: its variables, its mounts, its hooks.

Part of `start`, in a module of its own so that it can be loaded while an image's server starts.

Source: enroot 4.1.2 src/runtime.sh, _do_environ() to _do_mounts_fini().
"""

from __future__ import annotations

import os

from enroot_py.enter.configuration import (
    ENVIRON,
    FSTAB,
    gather_environ_files,
    own_file,
    read_own_file,
)
from enroot_py.hooks.context import HookContext
from enroot_py.hooks.run import run_hooks
from enroot_py.linux.kernel import Kernel
from enroot_py.plan.environ import parse_environ
from enroot_py.plan.start import (
    AFTER_HOOKS,
    BEFORE_HOOKS,
    StartPlan,
    host_variables,
    mounts_of_pass,
    plan_mounts,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from enroot_py.enter.mounts import Mounter
    from enroot_py.hooks.conf_script import ConfScript
    from enroot_py.hooks.find import Hook


def set_up(
    kernel: Kernel,
    plan: StartPlan,
    mounter: Mounter,
    hooks: Iterable[Hook],
    fstabs: Iterable[tuple[str, str]],
) -> tuple[dict[str, str], bytes | None]:
    """Mount, run hooks, mount.

    Args:
        kernel: the way to system calls.
        plan: says what.
        mounter: performs mounts.
        hooks: to be run.
        fstabs: (name, text) of the host's fstab files.

    Returns:
        The container's environment, and the command script of the configuration script, if any.
    """
    context = _hook_context(kernel, plan, mounter)
    variables = host_variables(plan, context.rootfs, pid=context.pid)
    environ = context.environ
    variable_file = read_own_file(mounter.root_fd, ENVIRON)
    for _, text in gather_environ_files(plan.settings, variable_file):
        environ.update(parse_environ(text, variables))
    script = _open_script(plan, context)
    if script is not None:
        environ.update(script.environ())
    environ.update(plan.environ)
    own = own_file(read_own_file(mounter.root_fd, FSTAB), FSTAB)
    mounts = plan_mounts((*own, *fstabs), plan, variables)
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
