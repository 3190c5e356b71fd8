"""A pull from a registry that testcontainers runs, on podman's Docker-compatible socket.

The registry's image is made here, of Debian's docker-registry and the libraries it is linked to.
"""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path

import pytest

from tests.registry.docker_registry import PROGRAM, free_port, wait_until_open
from tests.registry.images import ImageStore, Layer, directory, file
from tests.registry.podman_engine import Podman
from tests.registry.pulling import Pull, make_settings

pytestmark = [pytest.mark.podman, pytest.mark.root]

NAME = "localhost/pyxis-enroot-test-registry"


def registry_image() -> bytes:
    """A docker archive whose only image runs docker-registry, configured by its environment."""
    program = f"/usr/bin/{PROGRAM}"
    linked = subprocess.run(["ldd", program], stdout=subprocess.PIPE, check=True, text=True)
    paths = [program, *re.findall(r"(/\S+) \(0x", linked.stdout)]
    folders = sorted({parent for path in paths for parent in _parents(path)} | {"etc", "tmp"})
    entries = [directory(path) for path in folders]
    entries += [file(path[1:], Path(path).read_bytes(), 0o755) for path in paths]
    entries.append(file("etc/registry.yml", "version: 0.1\n"))
    store = ImageStore()
    config = {"Entrypoint": [program, "serve", "/etc/registry.yml"]}
    store.image(NAME, "1", [Layer(entries, "none")], config=config)
    return store.docker_archive(NAME, "1")


def _parents(path: str) -> list[str]:
    names = path.strip("/").split("/")[:-1]
    return ["/".join(names[:count]) for count in range(1, len(names) + 1)]


def test_a_pull_from_a_containerised_registry(
    tmp_path_factory: pytest.TempPathFactory, store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("podman")
    podman = Podman(folder)
    with podman.service() as url:
        monkeypatch.setenv("DOCKER_HOST", url)
        monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
        from docker.types import Ulimit  # type: ignore[import-untyped]
        from testcontainers.core.container import DockerContainer

        port = free_port()
        # podman's own defaults are more than a container in a container may ask for.
        limits = [Ulimit(name=name, soft=1024, hard=1024) for name in ("nofile", "nproc")]
        container = DockerContainer(f"{NAME}:1", network_mode="host", ulimits=limits)
        container.get_docker_client().client.images.load(io.BytesIO(registry_image()))
        container.with_env("REGISTRY_HTTP_ADDR", f"127.0.0.1:{port}")
        container.with_env("REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY", "/tmp/data")
        container.with_env("OTEL_TRACES_EXPORTER", "none")
        with container:
            wait_until_open(port)
            host = f"127.0.0.1:{port}"
            store.push(host, "t/one", "1")
            image = Pull(make_settings(folder)).run(f"docker://{host}/t/one:1")
            assert str(image.manifest_digest) == store.tags["t/one", "1"][0]
    podman.reset()
