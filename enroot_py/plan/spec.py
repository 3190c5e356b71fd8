"""What a caller asks for: the arguments of a start, as typed data. Pure.

`plan/start.py` turns a spec, the settings and the host's facts into a plan.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from enroot_py.plan.fstab import Mount
else:
    from enroot_py.record import NamedTuple


class StartSpec(NamedTuple):
    """A container to start.

    Attributes:
        target: a container's name, or the path of a squashfs image.
        command: words handed to the command script, or run where there is none; may be empty.
        root: appear as root inside (user 0 stands for the caller, nothing more).
        writable: keep the rootfs writable.
        mounts: mounts from the host, in order: records, or text as `--mount` takes it.
        environ: variables for the container: "NAME=value", or "NAME" for the host's value.
        rc: host path of a command script to run instead of the image's; "" for the image's.
        conf: host path of a configuration script in bash; "" for none.
        unshare_pid, unshare_net, unshare_ipc, unshare_uts: new namespaces of these kinds.
        gpus: GPUs to inject, as NVIDIA_VISIBLE_DEVICES takes them; "" leaves it to the environment.
        devices: CDI device names to inject, e.g. ("nvidia.com/gpu=0",).
        preserve_fds: how many descriptors from 3 on to pass on, beside 0 to 2.
    """

    target: str
    command: tuple[str, ...] = ()
    root: bool = False
    writable: bool = False
    mounts: tuple[Mount | str, ...] = ()
    environ: tuple[str, ...] = ()
    rc: str = ""
    conf: str = ""
    unshare_pid: bool = False
    unshare_net: bool = False
    unshare_ipc: bool = False
    unshare_uts: bool = False
    gpus: str = ""
    devices: tuple[str, ...] = ()
    preserve_fds: int = 0
