"""A process that owns a network of its own and the namespaces of pods on it: no root needed.

Run as `python -m tests.kubernetes.emulator.switch`. It reads requests from standard input, one line
of JSON each, and answers with one line; when its input ends, everything it made is gone.

The namespaces belong to a user namespace in which this user has all capabilities. Its one identity
is mapped to itself, so that whoever joins stays who he was, and has no capabilities after execve.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any

from enroot_py.linux.kernel import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    Kernel,
)

BRIDGE = "pods"
_MS_REC, _MS_PRIVATE, _MS_NOSUID, _MS_NODEV = 0x4000, 0x40000, 2, 4
_PR_SET_PDEATHSIG, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 1, 47, 2


def main() -> None:
    """Serve until the input ends."""
    kernel = Kernel()
    _enter_user_namespace(kernel)
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("link", "set", BRIDGE, "up")
    pods: dict[str, int] = {}
    print(json.dumps({"pid": os.getpid()}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(_serve(kernel, pods, request)), flush=True)
    for pid in pods.values():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _serve(kernel: Kernel, pods: dict[str, int], request: dict[str, Any]) -> dict[str, Any]:
    name = request["name"]
    try:
        if request["do"] == "add":
            pods[name] = _add(kernel, request)
            return {"pid": pods[name]}
        if request["do"] == "cut":
            # The far ends hear nothing: no reset, no end of the stream.
            _ip("link", "set", _port(name), "down")
        else:
            pid = pods.pop(name)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    except (OSError, subprocess.CalledProcessError) as error:
        return {"error": str(error)}
    return {}


def _enter_user_namespace(kernel: Kernel) -> None:
    uid, gid = os.getuid(), os.getgid()
    kernel.unshare(CLONE_NEWUSER | CLONE_NEWNET)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"),
                       ("gid_map", f"{gid} {gid} 1")):  # fmt: skip
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    # For `ip`, which an ordinary user would run without any.
    sets = kernel.capget()
    kernel.capset(sets._replace(inheritable=sets.permitted))
    for capability in range(sets.permitted.bit_length()):
        kernel.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability)


def _port(name: str) -> str:
    return f"p{name}"


def _add(kernel: Kernel, request: dict[str, Any]) -> int:
    """Make a pod's namespaces; return the process that keeps them."""
    ready, go = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        _become_keeper(kernel, request, ready[1], go)
    os.close(ready[1])
    os.close(go[0])
    with open(ready[0], "rb") as told, open(go[1], "wb") as tell:
        if told.read(1) != b"1":
            os.waitpid(pid, 0)
            raise OSError(f"no namespaces for {request['hostname']}")
        port = _port(request["name"])
        _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        _ip("link", "set", port, "master", BRIDGE, "up")
        tell.write(b"1")
        tell.flush()
        if told.read(1) != b"2":
            os.waitpid(pid, 0)
            raise OSError(f"no network for {request['hostname']}")
    return pid


def _become_keeper(
    kernel: Kernel, request: dict[str, Any], ready: int, go: tuple[int, int]
) -> None:
    """The child: make the namespaces, set them up, and keep them until it is killed."""
    try:
        kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.unshare(CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNS)
        socket.sethostname(request["hostname"])
        kernel.mount("", "/", "", _MS_REC | _MS_PRIVATE)
        for folder, size in request["memory"]:
            options = "mode=1777" + (f",size={size}" if size else "")
            kernel.mount("tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
        os.write(ready, b"1")
        os.close(go[1])
        os.read(go[0], 1)
        kernel.bring_loopback_up()
        _ip("addr", "add", request["address"], "dev", "eth0")
        _ip("link", "set", "eth0", "up")
        os.write(ready, b"2")
        os.close(ready)
        for stream in (0, 1):
            os.close(stream)
        while True:
            signal.pause()
    finally:
        os._exit(1)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
