"""Run the hooks of a start, built in or executed, and collect what they answer."""

from __future__ import annotations

from enroot_py.hooks.answers import Answers
from enroot_py.hooks.context import Edits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from enroot_py.hooks.conf_script import ConfScript
    from enroot_py.hooks.context import HookContext
    from enroot_py.hooks.find import Hook

_PACKAGE = "enroot_py.hooks.builtin."
_ACCELERATORS = (
    "NVIDIA_VISIBLE_DEVICES", "AMD_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
    "INTEL_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES",
)  # fmt: skip


def run_hooks(
    context: HookContext, hooks: Iterable[Hook], script: ConfScript | None = None
) -> Edits:
    """Run `hooks` in order, then the `hooks` function of a configuration script.

    Args:
        context: the container; its `environ` is not changed.
        hooks: what `find_hooks` returned, before the namespaces were entered.
        script: the script given by `--conf`, or None.

    Returns:
        The mounts that hooks asked for, and the container's whole environment.

    Raises:
        HookError: naming the hook that failed.
    """
    answers = Answers(context)
    environ: dict[str, str] = {}
    for hook in hooks:
        if hook.builtin:
            if is_wanted(context, hook.builtin, answers.environ):
                answers.add(run_builtin(context._replace(environ=answers.environ), hook.builtin))
            continue
        from enroot_py.hooks.execute import hook_environment, run_program

        environ = environ or hook_environment(context)
        answers.write()
        run_program(hook.path, environ, timeout=context.settings.hook_timeout)
        answers.read(hook.path)
    if script is not None:
        script.run_function("hooks", answers)
    return Edits(answers.mounts, tuple(answers.environ.items()))


def is_wanted(context: HookContext, name: str, environ: dict[str, str]) -> bool:
    """Tell whether a built-in hook has anything to do, without importing it."""
    settings, host = context.settings, context.settings.environment
    if name == "devices":
        return settings.restrict_dev or settings.unshare_ipc
    if name == "home":
        return settings.mount_home
    if name == "aptfix":
        return settings.remap_root
    if name in ("slurm-pmi", "slurm-pytorch"):
        return "SLURM_JOB_ID" in host
    if name == "mellanox" and ("RDMA_VISIBLE_DEVICES" in host or "RDMA_VISIBLE_DEVICES" in environ):
        return True
    if name in ("mellanox", "sharp"):
        return "MELLANOX_VISIBLE_DEVICES" in host or "MELLANOX_VISIBLE_DEVICES" in environ
    if name in ("nvidia", "mig-config") and (context.gpus or context.devices):
        return True
    if name == "nvidia":
        names = _ACCELERATORS
        return any(n in host or n in environ for n in names) or _wants_gpus_by_setting(context)
    if name == "mig-config":
        return "NVIDIA_VISIBLE_DEVICES" in host or "NVIDIA_VISIBLE_DEVICES" in environ
    return True


def _wants_gpus_by_setting(context: HookContext) -> bool:
    """Tell whether settings ask for GPUs, or a former start left traces that have to go."""
    host = context.settings.environment
    if "ENROOT_GPU_DEFAULT_DEVICES" in host or "ENROOT_GPU_LEGACY_IMAGES" in host:
        return True
    if context.is_image:
        return False
    from enroot_py.gpu.rootfs.leftover import has_leftover

    return has_leftover(context.rootfs)


def run_builtin(context: HookContext, name: str) -> Edits:
    """Run one built-in hook, importing it. Raises HookError if it fails."""
    module = __import__(_PACKAGE + name.replace("-", "_"), fromlist=("run",))
    run: Callable[[HookContext], Edits] = module.run
    return run(context)
