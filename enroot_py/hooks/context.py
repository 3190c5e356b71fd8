"""What a hook is given and what it answers: the same for built-in and for executed hooks.

A built-in hook is a function `run(context) -> Edits`. An executed hook gets the same facts in its
environment and answers by appending to two files. Not for running them: see `hooks/run.py`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NamedTuple

    from enroot_py.host import HostFacts
    from enroot_py.linux.kernel import Kernel
    from enroot_py.plan.fstab import Mount
    from enroot_py.settings import Settings
else:
    from enroot_py.record import NamedTuple


class HookContext(NamedTuple):
    """The container as a hook sees it: namespaces entered, root not yet switched.

    Attributes:
        pid: the container's process, as hooks get it in ENROOT_PID.
        rootfs: absolute host path of the mounted root filesystem.
        workdir: absolute host path of a private folder (a tmpfs) for files of this start; hooks get
            it in ENROOT_WORKDIR.
        settings: the configuration. `settings.environment` is the host's environment, which is what
            hooks run with; the image's variables are in `environ` alone.
        host: facts about the user and the machine, observed before the namespaces were entered.
        kernel: the way to system calls.
        environ_file: path of the file that executed hooks get in ENROOT_ENVIRON. It need not
            exist: it is written before the first executed hook runs.
        mounts_file: likewise for ENROOT_MOUNTS.
        environ: the container's environment so far.
        mount: performs mounts now, beneath the rootfs.
        is_image: whether the container was started from an image, so that what is written to the
            rootfs vanishes with it.
        gpus: the GPUs asked for explicitly (`--gpus`), "" where nobody did; it wins over
            NVIDIA_VISIBLE_DEVICES.
        devices: qualified CDI device names asked for explicitly (`--device`).
    """

    pid: int
    rootfs: str
    workdir: str
    settings: Settings
    host: HostFacts
    kernel: Kernel
    environ_file: str
    mounts_file: str
    environ: dict[str, str]
    mount: Callable[[tuple[Mount, ...]], None]
    is_image: bool
    gpus: str = ""
    devices: tuple[str, ...] = ()


class Edits(NamedTuple):
    """What a hook wants changed.

    Attributes:
        mounts: mounts to perform beneath the rootfs once all hooks have run.
        environ: from one built-in hook, assignments to add; from `run_hooks`, the container's whole
            environment afterwards (an executed hook may have removed lines).
    """

    mounts: tuple[Mount, ...] = ()
    environ: tuple[tuple[str, str], ...] = ()


NO_EDITS = Edits()
"""The answer of a hook that has nothing to ask for."""
