"""Hook `99-mellanox`: InfiniBand, RoCE and EFA devices. The work is done in gpu/rdma.py.

Source: enroot 4.1.2 conf/hooks/99-mellanox.sh.
"""

from __future__ import annotations

from enroot_py.gpu.rdma import find_rdma_devices, plan_rdma, visible_list
from enroot_py.hooks.context import NO_EDITS, Edits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enroot_py.hooks.context import HookContext


def run(context: HookContext) -> Edits:
    """Inject the RDMA devices that the environment names."""
    launcher = context.settings.environment
    text, variable = visible_list(launcher, context.environ)
    if text.strip().lower() in ("", "void", "none"):
        return NO_EDITS
    from enroot_py.gpu.driver_root import driver_root
    from enroot_py.gpu.privileges import memory_lock_limit, observe_privileges
    from enroot_py.gpu.rootfs.apply import Target, apply_injection

    root = driver_root(launcher)
    injection = plan_rdma(
        text,
        variable,
        find_rdma_devices(root),
        root,
        real_root=observe_privileges(context.settings.unshare_ipc).real_root,
        memlock=memory_lock_limit(),
    )
    target = Target(
        kernel=context.kernel,
        rootfs=context.rootfs,
        workdir=context.workdir,
        environ=context.environ,
        arch=context.host.architecture,
        ephemeral=context.is_image,
        writable=context.settings.rootfs_writable,
        verbose="NVIDIA_DEBUG_LOG" in launcher,
        pid=context.pid,
    )
    return Edits((), apply_injection(injection, target))
