"""Show a plan as text, one fact a line, in the order in which it is carried out. Pure."""

from __future__ import annotations

from enroot_py.log import printable
from enroot_py.plan.command import SCRIPT
from enroot_py.plan.start import AFTER_HOOKS, BEFORE_HOOKS, StartPlan, mounts_of_pass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from enroot_py.plan.fstab import Mount


def print_plan(
    plan: StartPlan,
    *,
    mounts: tuple[Mount, ...],
    hooks: Iterable[str],
    environ: Iterable[tuple[str, str]],
) -> str:
    """Return the text for a plan; it ends in a line feed.

    Args:
        plan: what is decided beforehand.
        mounts: those of the configuration files.
        hooks: names of the hooks to run, in order.
        environ: the container's variables as far as they are known before the hooks.
    """
    lines = [f"rootfs: {_rootfs(plan)}", f"namespaces: {_namespaces(plan)}"]
    lines += [f"mount: {_mount(mount)}" for mount in mounts_of_pass(mounts, BEFORE_HOOKS)]
    lines += [f"hook: {name}" for name in hooks]
    if plan.conf:
        lines.append(f"configuration script: {plan.conf} (not run: what it adds is not shown)")
    for request in filter(None, (plan.gpus, *plan.devices)):
        lines.append(f"device: {request}")
    later = mounts_of_pass(mounts, AFTER_HOOKS) + plan.mounts
    lines += [f"mount: {_mount(mount)}" for mount in later]
    lines += [f"environment: {name}={value}" for name, value in environ]
    lines.append(f"command script: {plan.rc or SCRIPT + ' of the image, if it has one'}")
    if plan.settings.login_shell:
        lines.append("login: yes")
    if plan.preserve_fds:
        lines.append(f"descriptors passed on: 0-2 {' '.join(map(str, plan.preserve_fds))}")
    lines += [f"word: {word}" for word in plan.command]
    return "".join(f"{printable(line)}\n" for line in lines)


def _rootfs(plan: StartPlan) -> str:
    kind = "image" if plan.rootfs.is_image else "folder"
    if plan.rootfs.is_image or plan.rootfs.borrowed:
        kind += " under a layer in memory"
    state = "writable" if plan.writable else "read-only"
    return f"{plan.rootfs.path} ({kind}, {state}, at {plan.mounted_rootfs})"


def _namespaces(plan: StartPlan) -> str:
    wanted = plan.namespaces
    kinds = ["mount", "cgroup"]
    if wanted.user:
        who = f"{wanted.outside_uid}:{wanted.outside_gid} is {wanted.uid}:{wanted.gid}"
        kinds.insert(0, f"user ({who})")
    kinds += [kind for kind in ("pid", "net", "ipc", "uts") if getattr(wanted, kind)]
    return ", ".join(kinds)


def _mount(mount: Mount) -> str:
    options = ",".join(mount.options) or "defaults"
    return f"{mount.source} on {mount.target} type {mount.fstype} ({options})"
