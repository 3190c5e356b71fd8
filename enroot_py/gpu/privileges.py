"""What this process may do with devices: observed, so that planning stays pure."""

from __future__ import annotations

import os

from enroot_py.gpu.nvidia.plan import Privileges

_WHOLE = ["0", "0", "4294967295"]


def observe_privileges(unshare_ipc: bool) -> Privileges:
    """Return the launcher's privileges.

    Args:
        unshare_ipc: the container gets an IPC namespace of its own.
    """
    real_root = os.geteuid() == 0 and _in_first_namespace()
    return Privileges(real_root=real_root, shared_ipc=not unshare_ipc)


def memory_lock_limit() -> int:
    """Return the bytes that this process may lock in memory, -1 for no limit."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return -1 if soft == resource.RLIM_INFINITY else soft


def _in_first_namespace() -> bool:
    """Tell whether this is no user namespace: there every id stands for itself."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            return file.read().split() == _WHOLE
    except OSError:
        return False
