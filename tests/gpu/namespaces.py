"""Run a function in user and mount namespaces of its own, in a forked child."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable
from typing import TypeVar

from enroot_py.linux.kernel import CLONE_NEWNS, CLONE_NEWUSER, Kernel

Result = TypeVar("Result")


def in_namespaces(function: Callable[[Kernel], Result]) -> Result:
    """Return what `function(kernel)` returns, called as root of new namespaces."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            answer = pickle.dumps((True, function(_enter())))
        except BaseException:  # noqa: BLE001  (whatever it is, the parent reports it)
            answer = pickle.dumps((False, traceback.format_exc()))
        with open(writer, "wb") as file:
            file.write(answer)
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    good, value = pickle.loads(data)  # noqa: S301  (our own child's)
    assert good, value
    return value  # type: ignore[no-any-return]


def _enter() -> Kernel:
    kernel = Kernel()
    uid, gid = os.getuid(), os.getgid()
    kernel.unshare(CLONE_NEWUSER | CLONE_NEWNS)
    maps = {"setgroups": "deny", "uid_map": f"0 {uid} 1", "gid_map": f"0 {gid} 1"}
    for name, text in maps.items():
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    kernel.mount("", "/", "", 0x4000 | 1 << 18)
    return kernel
