"""Make a mounted rootfs the root of this process; the host's files are out of reach afterwards.

That includes the standard library: nothing may be imported from here on.
"""

from __future__ import annotations

import errno
import os

from enroot_py.errors import KernelError
from enroot_py.linux.kernel import CLONE_NEWCGROUP, MNT_DETACH, Kernel
from enroot_py.plan.mount_options import MS_MOVE, MS_REC, MS_SLAVE


def switch_root(kernel: Kernel, root_fd: int) -> None:
    """Make the mount behind `root_fd` the root and the working directory.

    The cgroup namespace comes last: hooks still saw the host's control groups.

    Source: pivot_root(2), the section on pivot_root(".", "."); enroot 4.1.2
    bin/enroot-switchroot.c, switch_root().
    """
    old_fd = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fchdir(root_fd)
        try:
            kernel.pivot_root(".", ".")
        except KernelError as error:
            if error.errno != errno.EINVAL:
                raise
            # The initial root of a stateless node (an initramfs) cannot be pivoted away.
            kernel.mount(".", "/", "", MS_MOVE)
            kernel.chroot(".")
        else:
            os.fchdir(old_fd)
            kernel.mount("", ".", "", MS_REC | MS_SLAVE)
            kernel.umount(".", MNT_DETACH)
            os.fchdir(root_fd)
            kernel.chroot(".")
    finally:
        os.close(old_fd)
    try:
        kernel.unshare(CLONE_NEWCGROUP)
    except KernelError as error:
        if error.errno != errno.EINVAL:  # kernels before 4.6 have none
            raise
