"""The names of mount options and what each does to the flags of mount(2): one table.

Pure. Options that are not in the table are the file system's own and go into mount(2)'s data.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# <sys/mount.h>
MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_SYNCHRONOUS = 16
MS_REMOUNT = 32
MS_MANDLOCK = 64
MS_DIRSYNC = 128
MS_NOATIME = 1 << 10
MS_NODIRATIME = 1 << 11
MS_BIND = 1 << 12
MS_MOVE = 1 << 13
MS_REC = 1 << 14
MS_SILENT = 1 << 15
MS_UNBINDABLE = 1 << 17
MS_PRIVATE = 1 << 18
MS_SLAVE = 1 << 19
MS_SHARED = 1 << 20
MS_RELATIME = 1 << 21
MS_I_VERSION = 1 << 23
MS_STRICTATIME = 1 << 24
MS_LAZYTIME = 1 << 25

MS_PROPAGATION = MS_PRIVATE | MS_SLAVE | MS_SHARED | MS_UNBINDABLE

SET_FLAGS = {
    "bind": MS_BIND,
    "dirsync": MS_DIRSYNC,
    "iversion": MS_I_VERSION,
    "lazytime": MS_LAZYTIME,
    "mand": MS_MANDLOCK,
    "noatime": MS_NOATIME,
    "nodev": MS_NODEV,
    "nodiratime": MS_NODIRATIME,
    "noexec": MS_NOEXEC,
    "nosuid": MS_NOSUID,
    "private": MS_PRIVATE,
    "rbind": MS_BIND | MS_REC,
    "relatime": MS_RELATIME,
    "remount": MS_REMOUNT,
    "ro": MS_RDONLY,
    "rprivate": MS_PRIVATE | MS_REC,
    "rshared": MS_SHARED | MS_REC,
    "rslave": MS_SLAVE | MS_REC,
    "runbindable": MS_UNBINDABLE | MS_REC,
    "shared": MS_SHARED,
    "silent": MS_SILENT,
    "slave": MS_SLAVE,
    "strictatime": MS_STRICTATIME,
    "sync": MS_SYNCHRONOUS,
    "unbindable": MS_UNBINDABLE,
    "x-move": MS_MOVE,
}
"""Options that set flags."""

CLEAR_FLAGS = {
    "async": MS_SYNCHRONOUS,
    "atime": MS_NOATIME,
    "dev": MS_NODEV,
    "diratime": MS_NODIRATIME,
    "exec": MS_NOEXEC,
    "loud": MS_SILENT,
    "noiversion": MS_I_VERSION,
    "nolazytime": MS_LAZYTIME,
    "nomand": MS_MANDLOCK,
    "norelatime": MS_RELATIME,
    "nostrictatime": MS_STRICTATIME,
    "rw": MS_RDONLY,
    "suid": MS_NOSUID,
}
"""Options that clear flags set before."""

NO_FLAGS = frozenset(
    {
        "auto", "defaults", "group", "noauto", "nofail", "nogroup", "noowner", "nouser", "nousers",
        "owner", "user", "users", "x-create=auto", "x-create=dir", "x-create=file", "x-detach",
    }
)  # fmt: skip
"""Options that mount(2) is not told about."""


def is_mount_option(word: str) -> bool:
    """Tell whether an fstab field reads as options: a known name, or a list with commas."""
    return "," in word or word in SET_FLAGS or word in CLEAR_FLAGS or word in NO_FLAGS


def mount_flags(options: Iterable[str]) -> tuple[int, str]:
    """Return (flags, data) of mount(2) for options in the order given.

    Source: enroot 4.1.2 bin/enroot-mount.c, parse_mount_opts().
    """
    flags = 0
    data = []
    for option in options:
        if option in SET_FLAGS:
            flags |= SET_FLAGS[option]
        elif option in CLEAR_FLAGS:
            flags &= ~CLEAR_FLAGS[option]
        elif option and option not in NO_FLAGS:
            data.append(option)
    return flags, ",".join(data)
