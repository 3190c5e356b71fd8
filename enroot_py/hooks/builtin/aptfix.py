"""Hook `10-aptfix`: let apt work where root is the only user there is.

apt drops its privileges to a user of its own, which a user namespace of one mapped user refuses.

Source: enroot 4.1.2 conf/hooks/10-aptfix.sh; apt.conf(5), APT::Sandbox::User.
"""

from __future__ import annotations

import stat

from enroot_py import log
from enroot_py.hooks.context import NO_EDITS
from enroot_py.hooks.rootfs_files import RootfsFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enroot_py.hooks.context import Edits, HookContext

_PATH = "/etc/apt/apt.conf.d/enroot"
_TEXT = b'APT::Sandbox::User "root";\n'


def run(context: HookContext) -> Edits:
    """Configure apt in Debian's descendants when the user is remapped to root."""
    if not context.settings.remap_root:
        return NO_EDITS
    try:
        with RootfsFiles(context.rootfs) as files:
            debian = files.stat("/etc/debian_version")
            if debian is None or not stat.S_ISREG(debian.st_mode):
                return NO_EDITS
            present = files.stat(_PATH)
            if present is None or present.st_size != len(_TEXT):
                files.replace(_PATH, _TEXT, mode=0o644)
    except OSError as error:
        log.warn(f"Cannot write {_PATH} in the container: {error.strerror}")
    return NO_EDITS
