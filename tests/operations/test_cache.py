"""The cache as a whole: what imports leave in it, and trimming it while they run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from enroot_py.operations.cache import limit_cache, list_cache, prune_cache
from enroot_py.operations.import_image import import_image
from tests.operations.importing import Workplace
from tests.registry.fake_registry import FakeRegistry
from tests.registry.images import file

DAY = 24 * 3600.0


@pytest.fixture(autouse=True)
def here(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.out)


def uri(registry: FakeRegistry, name: str) -> str:
    return f"docker://{registry.host}#t/{name}:1"


def add_images(registry: FakeRegistry) -> None:
    """Two images that share their lower layer."""
    shared = [file("shared", os.urandom(50_000))]
    for name in ("old", "new"):
        registry.images.image(f"t/{name}", "1", [shared, [file(name, os.urandom(30_000))]])


def test_an_empty_cache_is_empty_and_is_not_made(place: Workplace) -> None:
    assert list_cache(settings=place.settings()) == []
    assert prune_cache(settings=place.settings()) == []
    assert limit_cache(0, settings=place.settings()) == []
    assert limit_cache(settings=place.settings()) == []
    assert not place.cache.exists()


def test_entries_know_the_images_that_they_belong_to(
    registry: FakeRegistry, place: Workplace
) -> None:
    add_images(registry)
    settings = place.settings()
    for name in ("old", "new"):
        import_image(uri(registry, name), settings=settings)
    entries = list_cache(settings=settings)
    names = {name: f"{registry.host}/t/{name}:1" for name in ("old", "new")}
    both = tuple(sorted(names.values()))
    kinds = sorted((entry.kind, entry.references) for entry in entries)
    expected = [("blob", (name,)) for name in names.values() for _ in range(3)]
    expected += [("blob", both)] + [("image", (name,)) for name in names.values()]
    assert kinds == sorted(expected)
    assert sum(entry.size for entry in entries) > 200_000


def test_the_longest_unused_image_goes_first_and_shared_layers_stay_usable(
    registry: FakeRegistry, place: Workplace
) -> None:
    add_images(registry)
    settings = place.settings()
    import_image(uri(registry, "old"), settings=settings)
    for entry in list_cache(settings=settings):
        then = time.time() - DAY
        os.utime(entry.path, (then, then))
    import_image(uri(registry, "new"), settings=settings)
    total = sum(entry.size for entry in list_cache(settings=settings))
    removed = limit_cache(total - 40_000, settings=settings)
    old = f"{registry.host}/t/old:1"
    assert removed
    assert all(entry.references == (old,) for entry in removed)
    kept = {name for entry in list_cache(settings=settings) for name in entry.references}
    assert f"{registry.host}/t/new:1" in kept
    with registry.lock:
        registry.log.clear()
    import_image(uri(registry, "new"), "again.sqsh", settings=settings)
    assert not [entry for entry in registry.log if "/blobs/" in entry.path]
    import_image(uri(registry, "old"), "old-again.sqsh", settings=settings)
    assert Path("old-again.sqsh").read_bytes() == Path("t+old+1.sqsh").read_bytes()


def test_trimming_while_imports_run_harms_none_of_them(
    registry: FakeRegistry, place: Workplace
) -> None:
    add_images(registry)
    processes = [
        place.start("import", "-o", f"{at}.sqsh", uri(registry, ("old", "new")[at % 2]))
        for at in range(8)
    ]
    while any(process.poll() is None for process in processes):
        limit_cache(0, settings=place.settings())
        prune_cache(settings=place.settings())
        time.sleep(0.005)
    for process in processes:
        assert process.returncode == 0, process.communicate()[1]
    files = {path.read_bytes() for path in place.out.iterdir()}
    assert len(files) == 2
    limit_cache(0, settings=place.settings())
    assert list_cache(settings=place.settings()) == []


def test_the_originals_files_in_the_cache_are_left_alone(
    registry: FakeRegistry, place: Workplace
) -> None:
    place.cache.mkdir()
    theirs = place.cache / ("0" * 64)
    theirs.write_bytes(b"a layer of NVIDIA's enroot")
    (place.cache / ".tokens.1000").mkdir()
    add_images(registry)
    import_image(uri(registry, "old"), settings=place.settings())
    limit_cache(0, settings=place.settings())
    prune_cache(settings=place.settings())
    assert theirs.read_bytes() == b"a layer of NVIDIA's enroot"
    assert (place.cache / ".tokens.1000").is_dir()
