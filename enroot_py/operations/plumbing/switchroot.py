"""Make a folder the root and start a program in it: the `enroot-switchroot` command.

It is called in a mount namespace where the folder is a mount point.

Source: enroot 4.1.2 bin/enroot-switchroot.c.
"""

from __future__ import annotations

import os

from enroot_py.enter.execute import execute
from enroot_py.enter.process import close_on_exec
from enroot_py.enter.switch_root import switch_root
from enroot_py.errors import NotFoundError
from enroot_py.linux.capabilities import drop_privileges
from enroot_py.linux.kernel import Kernel
from enroot_py.linux.path import read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_LARGEST_SCRIPT = 16 << 20


def run_in_root(
    rootfs: str,
    command: tuple[str, ...],
    environ: dict[str, str],
    *,
    login: bool = False,
    use_rc: bool = True,
    rc: str = "",
    workdir: str = "",
    kernel: Kernel | None = None,
) -> NoReturn:
    """Become the program that starts in `rootfs`: its command script, `command` or a shell.

    Args:
        rootfs: the mount point to make the root.
        command: words for the command script, or the command.
        environ: the program's environment.
        login: complete the environment as a login does and use a login shell.
        use_rc: whether a command script counts at all.
        rc: host path of a command script to use instead of the image's; "" for the image's.
        workdir: a folder inside to go to; "" to stay where the login leads.
        kernel: the way to system calls.

    Raises:
        NotFoundError: if the folder or the script cannot be read.
        KernelError: if the kernel refuses: the folder is no mount point, say.
        CommandError: if nothing can be started (exit code 126 or 127).
    """
    kernel = kernel or Kernel()
    try:
        script = read_file(rc, limit=_LARGEST_SCRIPT) if rc else None
        root = os.open(rootfs, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise NotFoundError(f"Cannot open {error.filename}: {error.strerror}") from error
    uid = os.geteuid()
    outside_uid = _mapped_user()
    close_on_exec(kernel, ())
    switch_root(kernel, root)
    drop_privileges(kernel, uid)
    execute(
        kernel,
        command,
        environ,
        login=login,
        rc=script,
        uid=uid,
        outside_uid=outside_uid,
        use_rc=use_rc,
        workdir=workdir,
    )


def _mapped_user() -> int:
    """Return who the first user of this namespace is outside. Source: user_namespaces(7)."""
    with open("/proc/self/uid_map", "rb") as file:
        first, outside, count = map(int, file.readline().split())
    return os.geteuid() if count == 2**32 - 1 else outside
