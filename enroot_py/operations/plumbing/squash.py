"""Write the union of several folders into one squashfs image: `enroot-mksquashovlfs`.

The folders, whiteouts as overlayfs has them, are mounted over one another in a mount namespace of
this process's own. mksquashfs does the rest where it is installed; else our own writer does, which
leaves out what an import leaves out (device nodes below /dev among it).

Source: enroot 4.1.2 bin/enroot-mksquashovlfs.c.
"""

from __future__ import annotations

import os

from enroot_py.enter.namespaces import enter_namespaces
from enroot_py.errors import KernelError, StoreError, UsageError
from enroot_py.host import observe_host
from enroot_py.linux.kernel import PR_SET_NO_NEW_PRIVS, Kernel
from enroot_py.operations.plumbing.mount import in_user_namespace
from enroot_py.plan.mount_options import MS_BIND
from enroot_py.plan.start import NamespacePlan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def squash_overlay(
    folders: str,
    image: str,
    options: Sequence[str],
    *,
    mount_point: str = "/mnt",
    kernel: Kernel | None = None,
) -> None:
    """Mount an overlay and write it; returns only where mksquashfs is not installed.

    Args:
        folders: "DIR[:DIR…]", the topmost first, in overlayfs's own syntax.
        image: the image to write.
        options: words for mksquashfs.
        mount_point: an existing folder, absolute; hidden in this process alone.
        kernel: the way to system calls.

    Raises:
        UsageError: if `mount_point` is not absolute.
        NamespaceError: if the kernel refuses the namespaces.
        StoreError: if the folders cannot be mounted.
    """
    if not mount_point.startswith("/"):
        raise UsageError(f"Invalid MOUNTPOINT: {mount_point}", hint="expected an absolute path")
    kernel = kernel or Kernel()
    host = observe_host()
    plan = NamespacePlan(
        user=host.euid != 0,
        uid=0,
        gid=0,
        outside_uid=host.euid,
        outside_gid=host.egid,
        pid=False,
        net=False,
        ipc=False,
        uts=False,
        machine=host.architecture,
    )
    enter_namespaces(kernel, plan)
    try:
        if ":" in folders:
            # Trusted attributes, which mark opaque folders, mean nothing in a user namespace.
            data = f"lowerdir={folders}" + (",userxattr" if in_user_namespace() else "")
            kernel.mount("overlay", mount_point, "overlay", 0, data)
        else:
            kernel.mount(folders, mount_point, "", MS_BIND)
    except KernelError as error:
        raise StoreError(
            f"Cannot mount {folders} at {mount_point}: {error.strerror}",
            hint="the folders and the mount point must exist; see dmesg for what overlayfs says",
        ) from error
    kernel.prctl(PR_SET_NO_NEW_PRIVS, 1)
    _write(mount_point, image, options)


def _write(folder: str, image: str, options: Sequence[str]) -> None:
    words = ["mksquashfs", folder, image, *options]
    try:
        os.execvpe(words[0], words, {"PATH": _STANDARD_PATH})
    except (FileNotFoundError, PermissionError):
        pass  # not installed
    from enroot_py.layers.scan import scan_directory
    from enroot_py.squashfs.options import parse_squash_options
    from enroot_py.squashfs.writer import SquashfsWriter

    parsed = parse_squash_options(" ".join(options))
    with open(image, "wb") as file:
        processors = len(os.sched_getaffinity(0))
        with SquashfsWriter(file, parsed, processors=processors, mkfs_time=0) as writer:
            writer.finish(scan_directory(folder, writer, ()))
