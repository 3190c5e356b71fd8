"""Debian's docker-registry on a free loopback port: the real thing, for tests marked `network`.

with docker_registry(tmp_path) as host:
    store.push(host, "t/one", "1")
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = "docker-registry"


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on at the moment.

    Below those that the kernel hands out itself: one of those could be another connection's by the
    time that a server takes it.
    """
    for port in random.SystemRandom().sample(range(30000, 32768), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


def write_config(folder: Path, port: int, *, storage: str) -> Path:
    """Write the registry's configuration file into `folder`."""
    path = folder / "registry.yml"
    path.write_text(
        "version: 0.1\n"
        "log: {level: error}\n"
        f"storage: {{filesystem: {{rootdirectory: {storage}}}, delete: {{enabled: true}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    return path


def wait_until_open(port: int, process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait until something listens on a port; fails after two minutes."""
    for _ in range(2400):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            assert process is None or process.poll() is None, "the server has ended"
            time.sleep(0.05)
    raise AssertionError(f"nothing listens on port {port}")


@contextmanager
def docker_registry(folder: Path) -> Iterator[str]:
    """Run a registry that keeps its data below `folder`; gives its "127.0.0.1:PORT"."""
    port = free_port()
    config = write_config(folder, port, storage=str(folder / "registry-data"))
    with open(folder / "registry.log", "wb") as log:
        process = subprocess.Popen(
            [PROGRAM, "serve", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PATH": os.environ["PATH"], "OTEL_TRACES_EXPORTER": "none"},
        )
    try:
        wait_until_open(port, process)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=60)
