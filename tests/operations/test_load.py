"""Loading: the tree of import and create, by the shorter way; cases C01 and C02."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from enroot_py import log
from enroot_py.errors import BusyError, EnrootError, ExistsError, InvalidNameError
from enroot_py.operations.create import create
from enroot_py.operations.import_image import import_image
from enroot_py.operations.load import load
from enroot_py.operations.remove import remove
from enroot_py.store.containers import RootfsLock, list_names
from tests.operations.importing import CASES, Workplace, describe_tree
from tests.registry.fake_registry import FakeRegistry
from tests.registry.images import Layer, file


@pytest.fixture(scope="module")
def cases(case_images: object) -> Iterator[FakeRegistry]:
    """A registry with the case images."""
    with FakeRegistry(case_images) as server:  # type: ignore[arg-type]
        yield server


def uri(registry: FakeRegistry, name: str) -> str:
    return f"docker://{registry.host}#t/{name}:1"


def made_three_ways(cases: FakeRegistry, place: Workplace, name: str) -> dict[str, Path]:
    """Containers of one image: imported and created, loaded cold, and loaded from the cache."""
    settings = place.settings()
    cold = settings._replace(cache_path=str(place.path / "other-cache"))
    image = import_image(uri(cases, name), str(place.out / "i.sqsh"), settings=settings)
    create(image, "created", settings=settings)
    load(uri(cases, name), "loaded", settings=cold)
    load(uri(cases, name), "cached", settings=settings)
    assert list_names(settings) == ("cached", "created", "loaded")
    return {key: place.data / key for key in list_names(settings)}


@pytest.mark.parametrize("name", CASES)
def test_load_equals_import_and_create(cases: FakeRegistry, place: Workplace, name: str) -> None:
    rootfs = made_three_ways(cases, place, name)
    if os.geteuid():
        # What an ordinary user cannot read is described all the same: everything is his own.
        for path in rootfs.values():
            for found in [path, *path.rglob("*")]:
                if not found.is_symlink() and found.stat().st_mode & 0o700 not in (0o600, 0o700):
                    mode = stat.S_IMODE(found.stat().st_mode)
                    found.chmod(mode | 0o700 if found.is_dir() else mode | 0o400)
    trees = {key: describe_tree(path) for key, path in rootfs.items()}
    assert trees["loaded"] == trees["created"]
    assert trees["cached"] == trees["created"]
    for path, (mode, *_) in trees["created"].items():
        assert not os.path.basename(path).startswith(".wh.")
        assert not stat.S_ISCHR(int(str(mode), 8))
    assert place.leftovers() == []


def test_layers_hide_what_they_should_and_nothing_else(
    cases: FakeRegistry, place: Workplace
) -> None:
    settings = place.settings()
    found = {name: Path(load(uri(cases, name), settings=settings)) for name in CASES}
    assert sorted(found["opq"].joinpath("srv").rglob("*")) == [
        found["opq"] / "srv" / name for name in ("a", "a/keepname", "a/new", "b", "b/new")
    ]
    assert (found["opq"] / "srv/a/keepname").read_text() == "upper"
    assert (found["wh"] / "x/dir").read_text() == "now a file"
    assert os.listdir(found["wh"] / "x/file") == ["in"]
    assert sorted(os.listdir(found["wh"] / "x")) == ["dir", "file"]
    for kept in ("notes.wh.txt", "usr/share/dev/x", "opt/proc/y"):
        assert (found["names"] / kept).read_text() == "keep"
    assert (found["dup"] / "one").read_text() == "1"
    assert (found["many"] / "last").read_text() == "139"
    assert len(os.listdir(found["many"] / "n")) == 140


def test_odd_modes_and_kinds_survive(cases: FakeRegistry, place: Workplace) -> None:
    lines: list[str] = []
    log.set_sink(lambda level, text: lines.append(f"{level} {text}"))
    try:
        odd = Path(load(uri(cases, "odd"), settings=place.settings()))
    finally:
        log.set_sink(None)
    perm = Path(load(uri(cases, "perm"), settings=place.settings()))
    assert os.path.samefile(odd / "h1", odd / "h2")
    # An ordinary user's file would lend his identity to whoever can reach it.
    kept = 0o4755 if os.geteuid() == 0 else 0o755
    assert (odd / "suid").stat().st_mode & 0o7777 == kept
    assert stat.S_ISFIFO((odd / "fifo").stat().st_mode)
    assert os.getxattr(odd / "cap", "user.note") == b"hello"
    assert os.listdir(odd / "dev") == []
    assert not (odd / "opt/nul").exists()
    assert sum("device" in line for line in lines) == 1
    modes = {
        name: (perm / name).stat().st_mode & 0o777 for name in ("ro", "ro/sub", "void", "secret")
    }
    assert modes == {"ro": 0o755, "ro/sub": 0o700, "void": 0o711, "secret": 0o400}
    for name in ("ro/a", "ro/c", "ro/sub/b"):
        assert (perm / name).exists()


def test_names_are_the_images_and_are_checked_before_anything_is_asked(
    registry: FakeRegistry, place: Workplace
) -> None:
    registry.images.image("t/one", "1", [[file("a", "1")]])
    settings = place.settings()
    for wrong in ("a/b", "..", "-x", "%s", "x" * 300):
        with pytest.raises(InvalidNameError):
            load(uri(registry, "one"), wrong, settings=settings)
    assert registry.log == []
    assert load(uri(registry, "one"), settings=settings) == str(place.data / "t+one+1")
    asked = len(registry.log)
    with pytest.raises(ExistsError, match="already exists"):
        load(uri(registry, "one"), settings=settings)
    assert len(registry.log) == asked


@pytest.mark.parametrize("variable", [True, False])
def test_force_replaces_a_container_when_the_new_one_is_complete(
    registry: FakeRegistry, place: Workplace, variable: bool
) -> None:
    registry.images.image("t/one", "1", [[file("a", "1")]])
    registry.images.image("t/bad", "1", [Layer(b"junk" * 200, "none")])
    settings = place.settings(FORCE_OVERRIDE="y") if variable else place.settings()
    path = Path(load(uri(registry, "one"), "box", settings=place.settings()))
    (path / "mine").touch()
    with pytest.raises(EnrootError, match="not a tar archive"):
        load(uri(registry, "bad"), "box", settings=settings, force=not variable)
    assert (path / "mine").exists()
    with RootfsLock(str(path)), pytest.raises(BusyError):
        load(uri(registry, "one"), "box", settings=settings, force=not variable)
    assert (path / "mine").exists()
    load(uri(registry, "one"), "box", settings=settings, force=not variable)
    assert not (path / "mine").exists()
    assert (path / "a").read_text() == "1"
    assert place.leftovers() == []


def test_a_failed_load_leaves_no_container(registry: FakeRegistry, place: Workplace) -> None:
    layers = [Layer(b"junk" * 200, "none"), [file("etc/a", "x" * 100_000)]]
    registry.images.image("t/bad", "1", layers)
    with pytest.raises(EnrootError, match="not a tar archive"):
        load(uri(registry, "bad"), settings=place.settings())
    assert os.listdir(place.data) == []
    assert place.leftovers() == []


def test_a_container_made_unreadable_can_be_removed_and_made_again(
    cases: FakeRegistry, place: Workplace
) -> None:
    settings = place.settings()
    for name in ("perm", "odd"):
        path = Path(load(uri(cases, name), name, settings=settings))
        for found in sorted(path.rglob("*"), reverse=True):
            if not found.is_symlink():
                found.chmod(0)
        path.chmod(0)
        remove(name, settings=settings)
        assert list_names(settings) == ()
        load(uri(cases, name), name, settings=settings)
        remove(name, settings=settings)
    assert place.leftovers() == []


def test_source_date_epoch_holds_for_containers_too(
    registry: FakeRegistry, place: Workplace
) -> None:
    registry.images.image("t/one", "1", [[file("a", "1")]])
    place.environ["SOURCE_DATE_EPOCH"] = "1700000000"
    rootfs = made_three_ways(registry, place, "one")
    for path in rootfs.values():
        assert (path / "a").stat().st_mtime == 1700000000
        assert (path / "etc/rc").stat().st_mtime == 1700000000
