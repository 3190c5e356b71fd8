"""Hook `10-cgroups`: show the container its own cgroups, read-only, as if they were the roots.

Source: enroot 4.1.2 conf/hooks/10-cgroups.sh; cgroups(7), proc_pid_mountinfo(5).
"""

from __future__ import annotations

import os

from enroot_py.hooks.context import Edits
from enroot_py.plan.fstab import Mount, unescape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from enroot_py.hooks.context import HookContext

_FOLDER = "/sys/fs/cgroup"
_BIND = ("x-create=dir", "rbind", "nosuid", "noexec", "nodev", "ro")
_SEAL = ("rbind", "remount", "nosuid", "noexec", "nodev", "ro", "rslave", "nofail", "silent")
_TMPFS = ("rw", "nosuid", "noexec", "nodev", "mode=755")


def run(context: HookContext) -> Edits:
    """Ask for a bind mount of each hierarchy's own subtree over the hierarchy's root."""
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        memberships = file.read()
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        hierarchies = find_hierarchies(file.read())
    in_step = bool(context.settings.environment.get("SLURM_STEP_ID"))
    mounts = plan_cgroups(memberships, hierarchies, in_step=in_step)
    mounts = tuple(mount for mount in mounts if os.path.isdir(mount.source))
    if context.settings.unshare_net and any(mount.target != _FOLDER for mount in mounts):
        # A network namespace comes with a sysfs of its own, in which nothing can be created: the
        # mount points of version 1 hierarchies need a folder that is ours.
        mounts = (Mount("tmpfs", _FOLDER, "tmpfs", _TMPFS), *mounts)
    return Edits((*mounts, Mount("none", _FOLDER, "none", _SEAL)))


def find_hierarchies(mountinfo: str) -> dict[str, tuple[str, str]]:
    """Return controller (or "name=…", or "" for version 2) → (root, mount point), first mount wins.

    Args:
        mountinfo: the text of /proc/self/mountinfo.
    """
    found: dict[str, tuple[str, str]] = {}
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        if not separator or not after.startswith("cgroup"):
            continue
        fields = before.split()
        root, target = unescape(fields[3]), unescape(fields[4])
        fstype, _, rest = after.partition(" ")
        if fstype == "cgroup2":
            found.setdefault("", (root, target))
        elif fstype == "cgroup":
            for option in rest.split(" ")[-1].split(","):
                found.setdefault(option, (root, target))
    return found


def plan_cgroups(
    memberships: str, hierarchies: dict[str, tuple[str, str]], *, in_step: bool
) -> tuple[Mount, ...]:
    """Return one bind mount for each hierarchy that is mounted.

    Args:
        memberships: the text of /proc/self/cgroup.
        hierarchies: what `find_hierarchies` returned.
        in_step: whether this is a Slurm step. Its tasks have a cgroup each, but the step's limits
            are those of the folder above.
    """
    mounts = []
    for line in memberships.splitlines():
        _, _, rest = line.partition(":")
        controllers, separator, path = rest.partition(":")
        found = _first(hierarchies, controllers.split(","))
        if not separator or found is None:
            continue
        root, target = found
        inner = path[len(root) :] if root != "/" and path.startswith(root) else path
        parts = [part for part in inner.split("/") if part]
        if ".." in parts:
            # A cgroup outside of the namespace's root cannot be reached from its mounts.
            parts = []
        if in_step and parts and parts[-1].startswith("task_"):
            parts.pop()
        mounts.append(Mount("/".join([target, *parts]), target, "none", _BIND))
    return tuple(mounts)


def _first(
    hierarchies: dict[str, tuple[str, str]], controllers: Iterable[str]
) -> tuple[str, str] | None:
    for controller in controllers:
        if controller in hierarchies:
            return hierarchies[controller]
    return None
