"""Pulls from Debian's docker-registry, of images pushed by hand and by Debian's skopeo."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from enroot_py.errors import NotFoundError
from enroot_py.image.platform import parse_platform
from enroot_py.operations.digest import digest
from tests.registry.docker_registry import docker_registry
from tests.registry.images import DOCKER, ImageStore, Layer, directory, file
from tests.registry.pulling import HashedTarget, Pull, make_settings

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with docker_registry(tmp_path_factory.mktemp("registry")) as name:
        yield name


@pytest.mark.parametrize("style", ["oci", DOCKER])
@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
def test_pulls(tmp_path: Path, host: str, style: str, compression: str) -> None:
    store = ImageStore()
    layers = [Layer([directory("etc"), file("etc/a", os.urandom(100_000))], compression)] * 2
    built = store.image("t/one", "1", layers, style=style)
    store.push(host, "t/one", "1")
    for reference in ("t/one:1", f"t/one@{built.digest}"):
        pull = Pull(make_settings(tmp_path))
        image = pull.run(f"docker://{host}#{reference}")
        assert str(image.manifest_digest) == built.digest
        assert pull.layers == [layer.stored() for layer in layers]


def test_an_index(tmp_path: Path, host: str, store: ImageStore) -> None:
    store.push(host, "t/idx", "1")
    settings = make_settings(tmp_path)
    for arch in ("amd64", "arm64"):
        found = digest(f"docker://{host}/t/idx:1", settings=settings, arch=arch)
        config = json.loads(store.blobs[found])["config"]["digest"]
        assert json.loads(store.blobs[config])["architecture"] == arch


def test_ranges_are_taken_up(tmp_path: Path, host: str) -> None:
    data = os.urandom(1 << 20)
    store = ImageStore()
    store.image("t/big", "1", [Layer(data, "none")])
    store.push(host, "t/big", "1")
    with Pull(make_settings(tmp_path)).open(f"docker://{host}/t/big:1") as client:
        layer = client.get_manifest(parse_platform("amd64")).manifest.layers[0]
        target = HashedTarget(data, data[:1000])
        seen: list[int] = []
        client.download_blob(layer, target, seen.append)
    assert target.data == data
    assert seen[0] > 1000 and target.restarts == 0


def test_many_threads_share_a_client(tmp_path: Path, host: str) -> None:
    contents = [os.urandom(50_000 + number) for number in range(40)]
    store = ImageStore()
    store.image("t/many", "1", [Layer(data, "none") for data in contents])
    store.push(host, "t/many", "1")
    with Pull(make_settings(tmp_path)).open(f"docker://{host}/t/many:1") as client:
        layers = client.get_manifest(parse_platform("amd64")).manifest.layers
        with ThreadPoolExecutor(10) as pool:
            assert list(pool.map(client.read_blob, layers)) == contents


def test_an_image_pushed_by_skopeo(tmp_path: Path, host: str, store: ImageStore) -> None:
    layout = tmp_path / "layout"
    store.write_layout(layout, "t/one", "1")
    subprocess.run(
        ["skopeo", "copy", "-q", "--preserve-digests", "--dest-tls-verify=false"]
        + [f"oci:{layout}:1", f"docker://{host}/by/skopeo:1"],
        # For its logins: /run/containers may be root's, since root used skopeo.
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        check=True,
    )
    image = Pull(make_settings(tmp_path)).run(f"docker://{host}/by/skopeo:1")
    assert str(image.manifest_digest) == store.tags["t/one", "1"][0]


def test_a_missing_tag_lists_the_others(tmp_path: Path, host: str, store: ImageStore) -> None:
    store.push(host, "solo", "1")
    with pytest.raises(NotFoundError, match="No such tag: 2 of .*solo; similar ones: 1"):
        Pull(make_settings(tmp_path)).run(f"docker://{host}#solo:2")
