"""Hook `10-localtime`: give the container the host's time zone.

Source: enroot 4.1.2 conf/hooks/10-localtime.sh; localtime(5).
"""

from __future__ import annotations

import os

from enroot_py import log
from enroot_py.hooks.context import NO_EDITS, Edits
from enroot_py.hooks.rootfs_files import UNWRITABLE, RootfsFiles
from enroot_py.plan.fstab import Mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enroot_py.hooks.context import HookContext

_PATH = "/etc/localtime"
_LARGEST_ZONE = 1 << 20
_OPTIONS = ("bind", "ro", "nosuid", "nodev", "noexec", "private", "nofail", "silent")


def run(context: HookContext) -> Edits:
    """Copy the host's link, and the zone it names unless the image has it.

    A host whose `/etc/localtime` is no link says nothing about its zone's name: nothing is done.
    """
    try:
        link = os.readlink(_PATH)
    except OSError:
        return NO_EDITS
    zone = os.path.realpath(_PATH)
    try:
        with RootfsFiles(context.rootfs) as files:
            if files.read_link(_PATH) != link:
                files.replace_with_link(_PATH, link)
            if files.stat(zone) is None:
                files.replace(zone, _read_zone(zone), mode=0o644)
    except OSError as error:
        if error.errno in UNWRITABLE:
            return Edits((Mount(zone, _PATH, "none", _OPTIONS),))
        log.warn(f"Cannot set the time zone of the container: {error.strerror}")
    return NO_EDITS


def _read_zone(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(_LARGEST_ZONE)
