"""Hook `98-nvidia`: GPUs, their driver's files, and CDI devices. The work is done in gpu/.

Source: enroot 4.1.2 conf/hooks/98-nvidia.sh for the variables; no nvidia-container-cli is needed.
"""

from __future__ import annotations

from enroot_py.gpu.rootfs.leftover import restore_cache
from enroot_py.hooks.context import NO_EDITS, Edits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enroot_py.hooks.context import HookContext

_NAME = "NVIDIA_VISIBLE_DEVICES"


def run(context: HookContext) -> Edits:
    """Inject what flags, environment and configuration ask for; mostly nothing."""
    launcher = context.settings.environment
    if not _wanted(context):
        if not context.is_image:
            restore_cache(context.rootfs)
        return NO_EDITS
    from enroot_py.gpu.driver_root import driver_root
    from enroot_py.gpu.nvidia.compat import CompatLibrary, find_compat
    from enroot_py.gpu.planning import Situation, plan_request
    from enroot_py.gpu.privileges import observe_privileges
    from enroot_py.gpu.request import read_options, read_request
    from enroot_py.gpu.rootfs.apply import Target, apply_injection

    options = read_options(launcher)
    request = read_request(
        launcher, context.environ, options, gpus=context.gpus, devices=context.devices
    )
    if request.devices.nothing and not request.cdi:
        return NO_EDITS
    compat = CompatLibrary()
    if "compute" in request.capabilities and options.compat != "off":
        compat = find_compat(context.rootfs, options.compat_folder)
    situation = Situation(
        root=driver_root(launcher),
        arch=context.host.architecture,
        launcher=launcher,
        container=context.environ,
        privileges=observe_privileges(context.settings.unshare_ipc),
        compat=compat,
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
    environ = dict(apply_injection(plan_request(request, options, situation), target))
    if context.gpus and _NAME not in environ:
        # A nested engine is to see what was asked for here.
        environ[_NAME] = context.gpus
    return Edits((), tuple(environ.items()))


def _wanted(context: HookContext) -> bool:
    """Tell whether anything is asked for, before anything of gpu/ is imported."""
    launcher = context.settings.environment
    if context.gpus or context.devices or "ENROOT_GPU_DEFAULT_DEVICES" in launcher:
        return True
    if "ENROOT_GPU_LEGACY_IMAGES" in launcher and "CUDA_VERSION" in context.environ:
        return True
    visible = launcher.get(_NAME, context.environ.get(_NAME, ""))
    return visible.strip().lower() not in ("", "void")
