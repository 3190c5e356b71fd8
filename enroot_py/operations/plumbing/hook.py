"""Run a built-in hook by itself: the `enroot-hook` command, which our `hooks.d` files call.

`enroot start` never needs it. It is for scripts that call a hook file by its path, and for other
programs that run the files of `hooks.d` as enroot does.
"""

from __future__ import annotations

import os

from enroot_py.enter.mounts import Mounter
from enroot_py.errors import UsageError
from enroot_py.hooks.answers import format_fstab
from enroot_py.hooks.context import HookContext
from enroot_py.hooks.find import BUILTINS
from enroot_py.hooks.run import is_wanted, run_builtin
from enroot_py.host import observe_host
from enroot_py.linux.kernel import Kernel
from enroot_py.linux.path import read_file
from enroot_py.operations.plumbing.mount import in_user_namespace
from enroot_py.plan.environ import format_environ, parse_environ
from enroot_py.settings import load_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from enroot_py.hooks.context import Edits

_LARGEST_ENVIRON = 16 << 20
_NEEDED = ("ENROOT_ROOTFS", "ENROOT_ENVIRON", "ENROOT_MOUNTS")


def run_hook(name: str, environ: Mapping[str, str]) -> None:
    """Run the built-in hook `name` for the container that the environment describes.

    Its answers are appended to the files of ENROOT_ENVIRON and ENROOT_MOUNTS.

    Raises:
        UsageError: if there is no such hook, or not in a hook's environment.
        HookError: if the hook fails.
    """
    if name not in BUILTINS:
        raise UsageError(f"No such built-in hook: {name}", hint=f"there are: {', '.join(BUILTINS)}")
    missing = [key for key in _NEEDED if not environ.get(key)]
    if missing:
        raise UsageError(
            f"{missing[0]} is not set", hint="built-in hooks run while a container is being started"
        )
    kernel = Kernel()
    with Mounter(kernel, environ["ENROOT_ROOTFS"], locked=in_user_namespace()) as mounter:
        context = _context(environ, kernel, mounter)
        if is_wanted(context, name, context.environ):
            _append(context, run_builtin(context, name))


def _context(environ: Mapping[str, str], kernel: Kernel, mounter: Mounter) -> HookContext:
    text = os.fsdecode(read_file(environ["ENROOT_ENVIRON"], limit=_LARGEST_ENVIRON))
    host = observe_host()
    uid, gid = _outside("uid", host.euid), _outside("gid", host.egid)
    return HookContext(
        pid=int(environ.get("ENROOT_PID") or os.getpid()),
        rootfs=environ["ENROOT_ROOTFS"],
        workdir=environ.get("ENROOT_WORKDIR") or os.path.dirname(environ["ENROOT_MOUNTS"]),
        settings=load_settings(environ),
        host=host._replace(euid=uid, egid=gid),
        kernel=kernel,
        environ_file=environ["ENROOT_ENVIRON"],
        mounts_file=environ["ENROOT_MOUNTS"],
        environ=dict(parse_environ(text, None)),
        mount=mounter.apply,
        is_image=False,
    )


def _outside(kind: str, inside: int) -> int:
    """Return who a user or group of this namespace is on the host."""
    with open(f"/proc/self/{kind}_map", "rb") as file:
        for line in file:
            first, outside, count = map(int, line.split())
            if first <= inside < first + count:
                return outside + inside - first
    return inside


def _append(context: HookContext, edits: Edits) -> None:
    for path, text in (
        (context.environ_file, format_environ(edits.environ)),
        (context.mounts_file, format_fstab(edits.mounts)),
    ):
        if text:
            with open(path, "ab") as file:
                file.write(os.fsencode(text))
