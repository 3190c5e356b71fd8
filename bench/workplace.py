"""Where a benchmark works: data folders of its own, and a registry on loopback that it starts."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import measure


class Workplace:
    """Folders for one benchmark, and the environment that points the commands at them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data, self.cache, self.temp = folder / "data", folder / "cache", folder / "temp"
        for path in (self.data, self.cache, self.temp, folder / "run", folder / "config"):
            path.mkdir(parents=True, exist_ok=True)
        self.environ = {
            **os.environ,
            "HOME": str(folder),
            "ENROOT_DATA_PATH": str(self.data),
            "ENROOT_CACHE_PATH": str(self.cache),
            "ENROOT_TEMP_PATH": str(self.temp),
            "ENROOT_RUNTIME_PATH": str(folder / "run"),
            "ENROOT_CONFIG_PATH": str(folder / "config"),
            "ENROOT_SYSCONF_PATH": str(folder / "config"),
            "ENROOT_ALLOW_HTTP": "yes",
        }

    def clear(self, *paths: Path) -> None:
        """Empty folders, whatever modes the trees in them have."""
        for path in paths:
            if path.is_dir():
                subprocess.run(["chmod", "-R", "u+rwX", str(path)], check=False)
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def registry(folder: Path, layout: Path, name: str) -> Iterator[str]:
    """Serve `layout` as repository `name`; yields `127.0.0.1:PORT`.

    Uses Debian's docker-registry and skopeo where they are installed, so that peers see what they
    know; without them, the demo's own server.
    """
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    if measure.program("docker-registry") and measure.program("skopeo"):
        config = folder / "registry.yml"
        config.write_text(
            "version: 0.1\nlog: {level: error}\n"
            f"storage: {{filesystem: {{rootdirectory: {folder}/storage}}}}\n"
            f"http: {{addr: 127.0.0.1:{port}}}\n"
        )
        command = ["docker-registry", "serve", str(config)]
    else:
        server = Path(__file__).resolve().parents[1] / "examples" / "demo" / "serve_layout.py"
        command = [sys.executable, str(server), str(layout), str(port)]
    process = subprocess.Popen(
        command,
        env={**os.environ, "OTEL_TRACES_EXPORTER": "none"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait_for(f"http://127.0.0.1:{port}/v2/")
        if command[0] == "docker-registry":
            target = f"docker://127.0.0.1:{port}/{name}:latest"
            copy = ["skopeo", "copy", "-q", "--preserve-digests", "--dest-tls-verify=false"]
            measure.run_once([*copy, f"oci:{layout}:latest", target])
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def tls_registry(folder: Path) -> Iterator[str]:
    """Serve once more what `registry` keeps in `folder`, with TLS and a certificate of nobody's."""
    port = free_port()
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    make += ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(make, check=True, stderr=subprocess.DEVNULL)
    config = folder / "tls.yml"
    config.write_text(
        "version: 0.1\nlog: {level: error}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/storage}}}}\n"
        f"http: {{addr: 127.0.0.1:{port}, tls: {{certificate: {certificate}, key: {key}}}}}\n"
    )
    process = subprocess.Popen(
        ["docker-registry", "serve", str(config)],
        env={**os.environ, "OTEL_TRACES_EXPORTER": "none"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait_for(f"https://127.0.0.1:{port}/v2/")
        yield f"localhost:{port}"
    finally:
        process.terminate()
        process.wait()


def _wait_for(url: str) -> None:
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    for _ in range(100):
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=5, context=unchecked).close()
            return
        time.sleep(0.1)
    raise RuntimeError(f"{url} does not answer")
