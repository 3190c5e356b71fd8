"""Hook `10-home`: mount the user's home folder (ENROOT_MOUNT_HOME) and set HOME.

Source: enroot 4.1.2 conf/hooks/10-home.sh.
"""

from __future__ import annotations

from enroot_py import log
from enroot_py.config_file import home_folder
from enroot_py.hooks.context import NO_EDITS, Edits
from enroot_py.plan.fstab import Mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enroot_py.hooks.context import HookContext

_OPTIONS = ("x-create=dir", "bind", "rw", "nosuid")


def run(context: HookContext) -> Edits:
    """Ask for the home folder at its own path, or at /root where the user is remapped to root."""
    if not context.settings.mount_home:
        return NO_EDITS
    home = home_folder(context.settings.environment)
    if not home.startswith("/") or not home.strip("/"):
        # Users without a home have "/": mounted, it would hide the container's own root.
        log.warn(f"The home folder is not mounted: {home} is no folder of its own")
        return NO_EDITS
    target = "/root" if context.settings.remap_root else home
    return Edits((Mount(home, target, "none", _OPTIONS),), (("HOME", target),))
