"""Hook `10-devices`: a minimal `/dev` (ENROOT_RESTRICT_DEV, or an IPC namespace of its own).

Source: enroot 4.1.2 conf/hooks/10-devices.sh.
"""

from __future__ import annotations

import os

from enroot_py.hooks.context import NO_EDITS
from enroot_py.hooks.rootfs_files import RootfsFiles
from enroot_py.plan.fstab import Mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enroot_py.hooks.context import Edits, HookContext

_NODES = ("zero", "null", "full", "urandom", "random", "tty")
_LINKS = (
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/ptmx", "/dev/pts/ptmx"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
)
_NODE = ("x-create=file", "bind", "rw", "nosuid", "noexec", "private")
_TMPFS = ("x-create=dir", "rw", "nosuid", "noexec", "slave", "mode=755")
_DEVPTS = (
    "x-create=dir", "rw", "nosuid", "noexec", "slave", "newinstance", "ptmxmode=0666", "mode=620",
)  # fmt: skip
_FOLDER = ("x-create=dir", "bind", "rw", "nosuid", "noexec", "nodev", "rslave")
_LOG = ("x-create=file", "bind", "rw", "nosuid", "noexec", "nodev", "private")
_SHM = ("x-create=dir", "rw", "nosuid", "noexec", "nodev", "private", "mode=1777")
_MQUEUE = ("x-create=dir", "rw", "nosuid", "noexec", "nodev", "private", "nofail", "silent")
_DETACH = ("x-create=dir", "x-detach", "nofail", "silent")


def run(context: HookContext) -> Edits:
    """Put a tmpfs with a few nodes on `/dev`; at once, because later hooks add devices to it.

    Nodes that the host lacks are left out (the original fails where there is no /dev/log).
    """
    settings = context.settings
    if not settings.restrict_dev and not settings.unshare_ipc:
        return NO_EDITS
    mounts = [
        Mount("none", "/dev", "none", ("x-detach", "nofail", "silent")),
        Mount("tmpfs", "/dev", "tmpfs", _TMPFS),
    ]
    mounts += [_bind(f"/dev/{name}", _NODE) for name in _NODES]
    mounts.append(Mount("devpts", "/dev/pts", "devpts", _DEVPTS))
    if settings.unshare_ipc:
        # Those of the host belong to the namespace that was left.
        mounts += [
            Mount("none", "/dev/shm", "none", _DETACH),
            Mount("tmpfs", "/dev/shm", "tmpfs", _SHM),
            Mount("none", "/dev/mqueue", "none", _DETACH),
            Mount("mqueue", "/dev/mqueue", "mqueue", _MQUEUE),
        ]
    else:
        mounts += [_bind("/dev/shm", _FOLDER), _bind("/dev/mqueue", _FOLDER)]
    mounts += [_bind("/dev/hugepages", _FOLDER), _bind("/dev/log", _LOG)]
    console = _terminal(context)
    if console:
        mounts.append(Mount(console, "/dev/console", "none", _NODE))
    context.mount(tuple(mount for mount in mounts if _exists(mount)))
    with RootfsFiles(context.rootfs) as files:
        for path, target in _LINKS:
            files.replace_with_link(path, target)
    return NO_EDITS


def _bind(path: str, options: tuple[str, ...]) -> Mount:
    return Mount(path, path, "none", options)


def _exists(mount: Mount) -> bool:
    return not mount.source.startswith("/") or os.path.exists(mount.source)


def _terminal(context: HookContext) -> str:
    """Return the path of the terminal on standard input; "" if there is none."""
    if not context.host.terminal:
        return ""
    try:
        return os.readlink("/proc/self/fd/0")
    except OSError:
        return ""
