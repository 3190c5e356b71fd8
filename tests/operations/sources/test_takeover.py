"""Layers that NVIDIA's Enroot has in the cache folder: used when they are what they should be."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

from enroot_py import log
from enroot_py.errors import LimitError
from enroot_py.image.config import parse_image_config
from enroot_py.image.digest import digest_of, parse_digest
from enroot_py.image.manifest import Descriptor, Manifest, parse_manifest
from enroot_py.operations.cache import limit_cache, list_cache, prune_cache
from enroot_py.operations.import_image import import_image
from enroot_py.operations.load import load
from enroot_py.operations.sources.takeover import find_diff_ids
from enroot_py.store.cache_folders import open_cache
from enroot_py.store.recompressed import open_recompressed
from tests.operations.importing import Workplace
from tests.registry.docker_registry import docker_registry
from tests.registry.fake_registry import FakeRegistry
from tests.registry.images import DOCKER, BuiltImage, ImageStore, Layer, directory, file, tar_bytes
from tests.registry.nvidia_cache import fill_cache, recompress

LAYERS = [
    [directory("etc"), file("etc/base", "base"), file("etc/gone", "x")],
    [file("etc/.wh.gone"), file("srv/data", b"data" * 50_000)],
    Layer([file("etc/top", "top")], "zstd"),
    Layer([file("etc/plain", "plain")], "none"),
]


@pytest.fixture(autouse=True)
def here(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.out)


@pytest.fixture
def messages() -> Iterator[list[str]]:
    lines: list[str] = []
    log.set_sink(lambda level, text: lines.append(f"[{level}] {text}"))
    yield lines
    log.set_sink(None)


@pytest.fixture
def image(registry: FakeRegistry) -> BuiltImage:
    return registry.images.image("t/one", "1", LAYERS, config={"Env": ["A=1"]})


def uri(registry: FakeRegistry) -> str:
    return f"docker://{registry.host}#t/one:1"


def fetched(registry: FakeRegistry) -> list[str]:
    """Digests of the blobs that the registry was asked for."""
    with registry.lock:
        return [entry.path.rpartition("/")[2] for entry in registry.log if "/blobs/" in entry.path]


def expected(registry: FakeRegistry, place: Workplace) -> bytes:
    """The image as it is made without NVIDIA's files."""
    path = import_image(
        uri(registry), "expected.sqsh", settings=place.settings(CACHE_PATH=str(place.path / "own"))
    )
    with registry.lock:
        registry.log.clear()
    return Path(path).read_bytes()


def test_a_whole_cache_of_nvidias_makes_an_image_without_a_blob_from_the_registry(
    registry: FakeRegistry, place: Workplace, image: BuiltImage, messages: list[str]
) -> None:
    wanted = expected(registry, place)
    theirs = fill_cache(place.cache, registry.images, image)
    before = {path: (path.read_bytes(), path.stat().st_mtime) for path in theirs}
    messages.clear()
    path = import_image(uri(registry), settings=place.settings())
    assert Path(path).read_bytes() == wanted
    assert fetched(registry) == []
    assert not [line for line in messages if "WARN" in line or "Downloaded" in line]
    assert "Verifying 4 of 4 layers" in "\n".join(messages)
    assert {path: (path.read_bytes(), path.stat().st_mtime) for path in theirs} == before
    assert place.leftovers() == []


def test_a_container_is_loaded_from_them_too(
    registry: FakeRegistry, place: Workplace, image: BuiltImage
) -> None:
    fill_cache(place.cache, registry.images, image)
    path = load(uri(registry), "box", settings=place.settings())
    assert (Path(path) / "srv/data").read_bytes() == b"data" * 50_000
    assert fetched(registry) == []


@pytest.mark.parametrize("without", [{0}, {1, 2}, {0, 1, 2, 3}, {4}])
def test_only_what_is_missing_is_fetched(
    registry: FakeRegistry, place: Workplace, image: BuiltImage, without: set[int]
) -> None:
    wanted = expected(registry, place)
    fill_cache(place.cache, registry.images, image, without=without)
    path = import_image(uri(registry), settings=place.settings())
    assert Path(path).read_bytes() == wanted
    blobs = [*image.layers, image.config]
    assert sorted(fetched(registry)) == sorted(blobs[number]["digest"] for number in without)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 3)


def alter(path: Path) -> None:
    """Other contents in a sound zstd file."""
    path.write_bytes(zstandard.compress(zstandard.decompress(path.read_bytes()) + b"\0" * 512))


def exchange(path: Path) -> None:
    """A sound layer, but another one."""
    path.write_bytes(recompress(tar_bytes([file("etc/evil", "x")])))


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def link(path: Path) -> None:
    """A link to the right file."""
    kept = path.with_name("kept")
    path.rename(kept)
    path.symlink_to(kept)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "spoil",
    [truncate, alter, exchange, damage, empty, link, make_folder, make_fifo],
    ids=lambda spoil: str(spoil.__name__),
)
def test_what_is_not_the_layer_is_not_used(
    registry: FakeRegistry, place: Workplace, image: BuiltImage, spoil: Callable[[Path], None]
) -> None:
    wanted = expected(registry, place)
    spoil(fill_cache(place.cache, registry.images, image)[1])
    path = import_image(uri(registry), settings=place.settings())
    assert Path(path).read_bytes() == wanted
    assert fetched(registry) == [image.layers[1]["digest"]]
    again = import_image(uri(registry), "again.sqsh", settings=place.settings())
    assert Path(again).read_bytes() == wanted
    assert len(fetched(registry)) == 1


def test_the_warning_names_the_file_and_what_is_done(
    registry: FakeRegistry, place: Workplace, image: BuiltImage, messages: list[str]
) -> None:
    paths = fill_cache(place.cache, registry.images, image)
    truncate(paths[0])
    alter(paths[1])
    import_image(uri(registry), settings=place.settings())
    warnings = sorted(line for line in messages if line.startswith("[WARN]"))
    assert len(warnings) == 2
    for path in paths[:2]:
        assert len([line for line in warnings if str(path) in line]) == 1
    assert all("fetched from the registry" in line for line in warnings)


def test_a_config_of_nvidias_is_used_only_if_it_is_the_config(
    registry: FakeRegistry, place: Workplace, image: BuiltImage
) -> None:
    wanted = expected(registry, place)
    fill_cache(place.cache, registry.images, image)
    config = place.cache / image.config["digest"].removeprefix("sha256:")
    other = json.loads(registry.images.blobs[image.config["digest"]])
    other["config"]["Env"] = ["A=2"]
    config.write_bytes(zstandard.compress(json.dumps(other).encode()))
    path = import_image(uri(registry), settings=place.settings())
    assert Path(path).read_bytes() == wanted
    assert fetched(registry) == [image.config["digest"]]


@pytest.mark.parametrize(
    "diff_ids",
    [[], ["sha256:" + "0" * 64] * 4, None],
    ids=["none", "others", "null"],
)
def test_a_config_that_does_not_tell_makes_them_useless(
    registry: FakeRegistry, place: Workplace, diff_ids: list[str] | None
) -> None:
    rootfs = {"type": "layers", "diff_ids": diff_ids}
    image = registry.images.image("t/one", "1", LAYERS, rootfs=rootfs)
    wanted = expected(registry, place)
    fill_cache(place.cache, registry.images, image)
    path = import_image(uri(registry), settings=place.settings())
    assert Path(path).read_bytes() == wanted
    assert len(fetched(registry)) == 4


def test_layers_that_are_there_twice_have_to_be_called_the_same_twice() -> None:
    layers = [{"digest": str(digest_of(b"%d" % at)), "size": 1} for at in (0, 0, 1)]
    document = {"schemaVersion": 2, "config": layers[0], "layers": layers}
    manifest = parse_manifest(
        json.dumps(document).encode(), "application/vnd.oci.image.manifest.v1+json"
    )
    ids = [str(digest_of(name)) for name in (b"a", b"b", b"c")]

    assert isinstance(manifest, Manifest)

    def found(*diff_ids: str) -> dict[str, str]:
        config = parse_image_config(json.dumps({"rootfs": {"diff_ids": diff_ids}}).encode())
        return {str(key): str(value) for key, value in find_diff_ids(manifest, config).items()}

    assert found(ids[0], ids[0], ids[2]) == {
        layers[0]["digest"]: ids[0],
        layers[2]["digest"]: ids[2],
    }
    assert found(ids[0], ids[1], ids[2]) == {layers[2]["digest"]: ids[2]}
    assert found(ids[0], ids[0]) == {}


def test_limits_hold_for_them_as_for_others(
    registry: FakeRegistry, place: Workplace, image: BuiltImage
) -> None:
    fill_cache(place.cache, registry.images, image)
    with pytest.raises(LimitError):
        import_image(uri(registry), settings=place.settings(MAX_IMAGE_SIZE="100000"))
    assert os.listdir(place.out) == []
    assert place.leftovers() == []


def test_an_image_by_digest_needs_no_registry_when_its_layers_are_theirs(
    registry: FakeRegistry, place: Workplace, image: BuiltImage
) -> None:
    settings = place.settings()
    pinned = f"docker://{registry.host}#t/one@{image.digest}"
    wanted = Path(import_image(pinned, "one.sqsh", settings=settings)).read_bytes()
    paths = fill_cache(place.cache, registry.images, image)
    for path in paths:
        (place.cache / "oci/blobs/sha256" / path.name).unlink()
    for finished in (place.cache / "images").iterdir():
        finished.unlink()
    with registry.lock:
        registry.log.clear()
    assert Path(import_image(pinned, "two.sqsh", settings=settings)).read_bytes() == wanted
    assert registry.log == []
    for finished in (place.cache / "images").iterdir():
        finished.unlink()
    truncate(paths[0])
    assert Path(import_image(pinned, "three.sqsh", settings=settings)).read_bytes() == wanted
    assert fetched(registry) == [image.layers[0]["digest"]]


def test_they_are_listed_and_go_when_that_is_asked_for(
    registry: FakeRegistry, place: Workplace, image: BuiltImage
) -> None:
    paths = fill_cache(place.cache, registry.images, image)
    other = place.cache / ("0" * 64)
    other.write_bytes(b"of no image")
    on_its_way = place.cache / f"{'1' * 64}.aB3dE6gH9j"
    on_its_way.write_bytes(b"x")
    settings = place.settings()
    import_image(uri(registry), settings=settings)
    own = [entry for entry in list_cache(settings=settings) if entry.kind != "nvidia"]
    theirs = {entry.name: entry for entry in list_cache(settings=settings)}
    name = f"{registry.host}/t/one:1"
    assert {theirs[f"sha256:{path.name}"].references for path in paths} == {(name,)}
    assert theirs[f"sha256:{other.name}"].references == ()
    assert theirs[on_its_way.name].kind == "nvidia"
    # Neither counted nor removed: what is ours has this size exactly.
    assert limit_cache(sum(entry.size for entry in own), settings=settings) == []
    prune_cache(settings=settings)
    limit_cache(0, settings=settings)
    assert all(path.exists() for path in (*paths, other, on_its_way))
    held = open_recompressed(
        open_cache(str(place.cache)), _descriptor(registry.images, image.layers[0])
    )
    assert held is not None
    with held:
        removed = prune_cache(nvidia=True, settings=settings)
        assert {entry.kind for entry in removed} == {"nvidia"}
        assert paths[0].exists()
    assert [path for path in (*paths, other, on_its_way) if path.exists()] == [paths[0]]
    prune_cache(nvidia=True, settings=settings)
    assert list_cache(settings=settings) == []


def _descriptor(store: ImageStore, layer: dict[str, object]) -> Descriptor:
    digest = parse_digest(str(layer["digest"]))
    return Descriptor(str(layer["mediaType"]), digest, len(store.blobs[str(digest)]))


@pytest.mark.network
def test_a_real_registry_serves_the_manifest_and_nothing_else(
    place: Workplace, tmp_path: Path
) -> None:
    store = ImageStore()
    image = store.image("t/one", "1", LAYERS[:2], style=DOCKER)
    folder = tmp_path / "registry"
    folder.mkdir()
    with docker_registry(folder) as host:
        store.push(host, "t/one", "1")
        fill_cache(place.cache, store, image)
        blobs = folder / "registry-data/docker/registry/v2/blobs/sha256"
        for layer in (*image.layers, image.config):
            digits = layer["digest"].removeprefix("sha256:")
            (blobs / digits[:2] / digits / "data").unlink()
        path = import_image(f"docker://{host}#t/one:1", settings=place.settings())
        log = (folder / "registry.log").read_text()
    assert Path(path).stat().st_size > 0
    asked = [line for line in log.splitlines() if '"GET /v2/t/one/' in line]
    assert len(asked) == 1
    assert "/manifests/1 " in asked[0]
