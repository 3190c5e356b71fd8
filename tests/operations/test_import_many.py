"""Many imports at once, and imports killed at any moment: case C08 and its relatives."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from enroot_py.squashfs.reader import SquashfsImage
from tests.operations.importing import Workplace
from tests.registry.fake_registry import FakeRegistry
from tests.registry.faults import drip, stall
from tests.registry.images import BuiltImage, Layer, busybox_layer, file

KILLS, KILLS_SOAK = 20, 200
CROWD, CROWD_SOAK = 20, 200


def add_image(registry: FakeRegistry, *, layers: int = 4, size: int = 400_000) -> BuiltImage:
    """An image with bytes enough to be caught in the middle."""
    data = random.Random(1).randbytes(size)
    contents = [
        Layer([file(f"data/{at}", data[at:] + bytes([at]))], "none") for at in range(layers)
    ]
    return registry.images.image("t/big", "1", [busybox_layer(), *contents])


def blob_gets(registry: FakeRegistry) -> Counter[str]:
    """How often each blob was asked for."""
    with registry.lock:
        entries = list(registry.log)
    return Counter(entry.path for entry in entries if "/blobs/" in entry.path)


def check_blobs(place: Workplace) -> set[str]:
    """Every blob under its final name is what the name says; returns their names."""
    folder = place.cache / "oci" / "blobs" / "sha256"
    blobs = list(folder.iterdir()) if folder.exists() else []
    for path in blobs:
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    return {path.name for path in blobs}


def check_image(path: Path) -> None:
    with SquashfsImage(str(path)) as image:
        assert len(image.read("data/3", max_size=1 << 20)) == 400_000 - 3 + 1
        assert image.read("etc/passwd").startswith(b"root:")


def kill_imports(registry: FakeRegistry, place: Workplace, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    image = add_image(registry)
    registry.fault("/blobs/", drip(50_000, 0.005))
    started = time.monotonic()
    uri = f"docker://{registry.host}#t/big:1"
    assert place.run("import", "-o", "whole.sqsh", uri).returncode == 0
    usual = time.monotonic() - started
    known = check_blobs(place)
    for at in range(rounds):
        words = ("import", "-o", "i.sqsh", uri) if at % 2 else ("load", "-n", "box", uri)
        if at % 4 == 0:
            for path in place.cache.rglob("*"):
                if path.is_file():
                    path.unlink()
            known = set()
        process = place.start(*words)
        time.sleep(chance.uniform(0, usual * 1.1))
        process.kill()
        process.communicate()
        target = place.out / "i.sqsh" if at % 2 else place.data / "box"
        if process.returncode == 0:
            assert target.exists()
        blobs = check_blobs(place)
        assert known <= blobs
        known = blobs
        for finished in (place.cache / "images").glob("*.sqsh"):
            check_image(finished)
        if target.exists() and at % 2:
            check_image(target)
            target.unlink()
        elif target.exists():
            assert (target / "etc/rc").exists()
            assert len((target / "data/3").read_bytes()) == 400_000 - 3 + 1
            assert place.run("remove", "-f", "box").returncode == 0
    with registry.lock:
        registry.log.clear()
    assert place.run("import", "-o", "last.sqsh", uri).returncode == 0
    assert place.run("load", "-n", "last", uri).returncode == 0
    check_image(place.out / "last.sqsh")
    assert (place.out / "last.sqsh").read_bytes() == (place.out / "whole.sqsh").read_bytes()
    # What was complete is not fetched again.
    for name in known:
        assert not any(path.endswith(name) for path in blob_gets(registry))
    assert check_blobs(place) == {
        entry["digest"].removeprefix("sha256:")
        for entry in (image.manifest, image.config, *image.layers)
    }
    assert place.leftovers() == []
    assert os.listdir(place.data) == ["last"]


def test_imports_killed_at_any_moment_spoil_nothing(
    registry: FakeRegistry, place: Workplace
) -> None:
    kill_imports(registry, place, KILLS, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_hundreds_of_killed_imports_spoil_nothing(registry: FakeRegistry, place: Workplace) -> None:
    kill_imports(registry, place, KILLS_SOAK, seed=2)


def crowd(registry: FakeRegistry, place: Workplace, count: int) -> None:
    add_image(registry)
    registry.fault("/blobs/", drip(200_000, 0.01))
    uri = f"docker://{registry.host}#t/big:1"
    processes = [place.start("import", "-o", f"{at}.sqsh", uri) for at in range(count)]
    made = 0
    for process in processes:
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
        made += "Creating squashfs" in errors
    assert made == 1
    assert set(blob_gets(registry).values()) == {1}
    assert len({hashlib.sha256(path.read_bytes()).digest() for path in place.out.iterdir()}) == 1
    assert len(list(place.out.iterdir())) == count
    check_image(place.out / "0.sqsh")
    assert place.leftovers() == []


def test_concurrent_imports_of_one_image_fetch_each_blob_once(
    registry: FakeRegistry, place: Workplace
) -> None:
    crowd(registry, place, CROWD)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_two_hundred_concurrent_imports_fetch_each_blob_once(
    registry: FakeRegistry, place: Workplace
) -> None:
    crowd(registry, place, CROWD_SOAK)


def test_concurrent_imports_with_different_options_share_the_downloads(
    registry: FakeRegistry, place: Workplace
) -> None:
    add_image(registry)
    registry.fault("/blobs/", drip(200_000, 0.01))
    uri = f"docker://{registry.host}#t/big:1"
    options = ["-comp zstd", "-comp gzip", "-comp xz", "-noD", "-comp lz4"]
    processes = [
        place.start("import", "-o", f"{at}.sqsh", uri, ENROOT_SQUASH_OPTIONS=text)
        for at, text in enumerate(options)
    ] + [place.start("load", "-n", f"box{at}", uri) for at in range(3)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert set(blob_gets(registry).values()) == {1}
    for at in range(len(options)):
        check_image(place.out / f"{at}.sqsh")
    assert sorted(os.listdir(place.data)) == ["box0", "box1", "box2"]


@pytest.mark.parametrize("command", ["import", "load"])
def test_of_concurrent_imports_to_one_name_one_wins(
    registry: FakeRegistry, place: Workplace, command: str
) -> None:
    add_image(registry)
    uri = f"docker://{registry.host}#t/big:1"
    option = ("-o", "i.sqsh") if command == "import" else ("-n", "box")
    processes = [place.start(command, *option, uri) for _ in range(8)]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    statuses = [process.returncode for process in processes]
    assert sorted(statuses) == [0] + [1] * 7, errors
    for status, text in zip(statuses, errors, strict=True):
        assert status == 0 or "already exists" in text
    assert place.leftovers() == []
    if command == "import":
        check_image(place.out / "i.sqsh")
        assert os.listdir(place.out) == ["i.sqsh"]
    else:
        assert os.listdir(place.data) == ["box"]
        assert len((place.data / "box/data/3").read_bytes()) == 400_000 - 3 + 1


def test_a_killed_download_is_continued_where_it_broke(
    registry: FakeRegistry, place: Workplace
) -> None:
    image = add_image(registry, layers=1, size=3_000_000)
    layer = image.layers[1]["digest"]
    registry.fault(layer, stall(2_000_000), times=1)
    uri = f"docker://{registry.host}#t/big:1"
    process = place.start("import", "-o", "i.sqsh", uri)
    partial = place.cache / "partial" / layer.replace(":", "-")
    deadline = time.monotonic() + 120
    while not (partial.exists() and partial.stat().st_size >= 2_000_000):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert place.run("import", "-o", "i.sqsh", uri).returncode == 0
    with registry.lock:
        asked = [entry for entry in registry.log if entry.path.endswith(layer)]
    assert [entry.headers.get("range", "") for entry in asked] == ["", "bytes=2000000-"]
    assert place.leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_import_that_is_told_to_end_leaves_nothing(
    registry: FakeRegistry, place: Workplace, number: signal.Signals
) -> None:
    image = add_image(registry, layers=1)
    registry.fault(image.layers[1]["digest"], stall(1000), times=1)
    uri = f"docker://{registry.host}#t/big:1"
    process = place.start("load", "-n", "box", uri)
    partial = place.cache / "partial" / image.layers[1]["digest"].replace(":", "-")
    deadline = time.monotonic() + 120
    while not (partial.exists() and partial.stat().st_size >= 1000):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert any(name.startswith(".enroot.") for name in os.listdir(place.data))
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert "Traceback" not in errors
    assert os.listdir(place.data) == []
    assert place.run("load", "-n", "box", uri).returncode == 0
    assert place.leftovers() == []


def test_an_ignored_signal_stays_ignored(registry: FakeRegistry, place: Workplace) -> None:
    image = add_image(registry)
    registry.fault(image.layers[1]["digest"], drip(20_000, 0.02), times=1)
    uri = f"docker://{registry.host}#t/big:1"
    command = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *place.command("import", uri)]
    with subprocess.Popen(command, cwd=place.out, env=place.environ) as process:
        deadline = time.monotonic() + 120
        while not list((place.cache / "partial").glob("*")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=120) == 0
    check_image(place.out / "t+big+1.sqsh")
