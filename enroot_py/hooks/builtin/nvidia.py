"""Hook `98-nvidia`: accelerators, their driver's files, and CDI devices. The work is done in gpu/.

Source: enroot 4.1.2 conf/hooks/98-nvidia.sh for the variables; no nvidia-container-cli is needed.
"""

from __future__ import annotations

from enroot_py.gpu.rootfs.leftover import restore_cache
from enroot_py.hooks.context import NO_EDITS, Edits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enroot_py.gpu.driver_root import DriverRoot
    from enroot_py.gpu.injection import Injection
    from enroot_py.hooks.context import HookContext

_NAME = "NVIDIA_VISIBLE_DEVICES"
_OTHERS = (
    "AMD_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "INTEL_VISIBLE_DEVICES",
    "HABANA_VISIBLE_DEVICES",
)  # fmt: skip


def run(context: HookContext) -> Edits:
    """Inject what flags, environment and configuration ask for; mostly nothing."""
    wanted = _wants_gpus(context)
    if not wanted and not _wants_others(context):
        if not context.is_image:
            restore_cache(context.rootfs)
        return NO_EDITS
    from enroot_py.gpu.driver_root import driver_root
    from enroot_py.gpu.injection import combine
    from enroot_py.gpu.rootfs.apply import Target, apply_injection

    launcher = context.settings.environment
    root = driver_root(launcher)
    parts = []
    if wanted:
        parts.append(_plan_gpus(context, root))
    if _wants_others(context):
        from enroot_py.gpu.drm import plan_accelerators

        parts.append(plan_accelerators(launcher, context.environ, root))
    target = Target(
        kernel=context.kernel,
        rootfs=context.rootfs,
        workdir=context.workdir,
        environ=context.environ,
        arch=context.host.architecture,
        ephemeral=context.is_image,
        writable=context.settings.rootfs_writable,
        library_path="ENROOT_GPU_LIBRARY_PATH" in launcher,
        verbose="NVIDIA_DEBUG_LOG" in launcher,
        pid=context.pid,
    )
    environ = dict(apply_injection(combine(parts), target))
    if context.gpus and _NAME not in environ:
        # A nested engine is to see what was asked for here.
        environ[_NAME] = context.gpus
    return Edits((), tuple(environ.items()))


def _plan_gpus(context: HookContext, root: DriverRoot) -> Injection:
    """Plan NVIDIA's GPUs and CDI devices."""
    from enroot_py.gpu.injection import NO_INJECTION
    from enroot_py.gpu.planning import plan_request
    from enroot_py.gpu.privileges import observe_privileges
    from enroot_py.gpu.request import read_options, read_request
    from enroot_py.gpu.situation import Situation

    launcher = context.settings.environment
    options = read_options(launcher)
    request = read_request(
        launcher, context.environ, options, gpus=context.gpus, devices=context.devices
    )
    if request.devices.nothing and not request.cdi:
        return NO_INJECTION._replace(warnings=request.warnings)
    situation = Situation(
        root=root,
        arch=context.host.architecture,
        launcher=launcher,
        container=context.environ,
        privileges=observe_privileges(context.settings.unshare_ipc),
        rootfs=context.rootfs,
    )
    return plan_request(request, options, situation)


def _wants_gpus(context: HookContext) -> bool:
    """Tell whether anything is asked for, before anything of gpu/ is imported."""
    launcher = context.settings.environment
    if context.gpus or context.devices or "ENROOT_GPU_DEFAULT_DEVICES" in launcher:
        return True
    if "ENROOT_GPU_LEGACY_IMAGES" in launcher and "CUDA_VERSION" in context.environ:
        return True
    visible = launcher.get(_NAME, context.environ.get(_NAME, ""))
    return visible.strip().lower() not in ("", "void")


def _wants_others(context: HookContext) -> bool:
    launcher = context.settings.environment
    return any(name in launcher or name in context.environ for name in _OTHERS)
