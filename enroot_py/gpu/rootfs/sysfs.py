"""Narrow folders of /sys/class to the devices that were selected.

Programs look for RDMA devices there and fail on those that they may not open. Only done for a
strict subset: a mount below /sys forbids nested containers a sysfs of their own.
"""

from __future__ import annotations

import os

from enroot_py.errors import KernelError
from enroot_py.gpu.rootfs.executor import Executor
from enroot_py.linux.path import read_beneath, resolve
from enroot_py.plan.mount_options import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REMOUNT,
)

_SAFE = MS_NOSUID | MS_NODEV | MS_NOEXEC


def narrow_classes(
    executor: Executor, classes: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
) -> None:
    """Put a tmpfs on each class folder, with links to what stays visible.

    Args:
        classes: folder in the container, and (name, path that the link says) for each device.
    """
    for folder, links in classes:
        version = read_beneath(executor.root_fd, f"{folder}/abi_version", limit=4096)
        try:
            place = resolve(executor.root_fd, folder)
        except KernelError:
            continue  # a class that this container's /sys does not have
        with place:
            executor.kernel.mount("tmpfs", place.path, "tmpfs", _SAFE, "mode=755")
            place.reopen()
            executor.kernel.mount("", place.path, "", MS_PRIVATE)
            for name, target in links:
                os.symlink(target, f"{place.path}/{name}")
            if version is not None:
                with open(f"{place.path}/abi_version", "wb") as file:
                    file.write(version)
            executor.kernel.mount("", place.path, "", MS_REMOUNT | MS_BIND | MS_RDONLY | _SAFE)
