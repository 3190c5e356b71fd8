"""Execute hooks of CDI specifications that are not understood here, if the configuration says so.

They get what an OCI runtime gives them: the container's state on standard input, naming a bundle
whose config.json names the root file system; an environment of their own and nothing else. The
image's variables never reach them.

Source: OCI runtime specification, "Hooks" and "State".
"""

from __future__ import annotations

import json
import os
import subprocess

from enroot_py.errors import HookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from enroot_py.gpu.injection import HostHook

_OCI_VERSION = "1.1.0"


def run_hooks(hooks: Iterable[HostHook], *, rootfs: str, workdir: str, pid: int) -> None:
    """Run hooks in order.

    Args:
        rootfs: absolute host path of the mounted root filesystem.
        workdir: absolute host path of a folder in memory, for the bundle.
        pid: the container's process.

    Raises:
        HookError: naming the hook that failed or took too long.
    """
    bundle = os.path.join(workdir, "cdi-bundle")
    os.makedirs(bundle, mode=0o700, exist_ok=True)
    config = {"ociVersion": _OCI_VERSION, "root": {"path": rootfs}, "hostname": os.uname().nodename}
    with open(os.path.join(bundle, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    state = {
        "ociVersion": _OCI_VERSION,
        "id": f"enroot-{pid}",
        "status": "creating",
        "pid": pid,
        "bundle": bundle,
    }
    for hook in hooks:
        _run(hook, json.dumps(state))


def _run(hook: HostHook, state: str) -> None:
    environ = dict(text.split("=", 1) for text in hook.environ)
    try:
        done = subprocess.run(
            list(hook.arguments),
            executable=hook.path,
            env=environ,
            input=state.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=hook.timeout or None,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HookError(
            f"cdi: hook {hook.path} took longer than its {hook.timeout} s", path=hook.path
        ) from error
    except OSError as error:
        raise HookError(
            f"cdi: cannot run hook {hook.path}: {error.strerror}", path=hook.path
        ) from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        tail = f": {said[-1]}" if said else ""
        raise HookError(
            f"cdi: hook {hook.path} ended with status {done.returncode}{tail}",
            path=hook.path,
            status=done.returncode,
        )
