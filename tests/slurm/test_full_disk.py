"""Disks that are really full, on one node: the user reads which, nothing is left, the node stays.

Each folder in turn is a small file system of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.registry.fake_registry import FakeRegistry
from tests.registry.images import ImageStore, busybox_layer, file
from tests.slurm.doors import PLUGIN, WRAPPER, Door
from tests.slurm.images import make_image
from tests.slurm.rig import Rig

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("plugin")]

NODE = 2
SMALL = "2m"


@pytest.fixture(params=[PLUGIN, WRAPPER], ids=lambda door: door.name)
def door(request: pytest.FixtureRequest) -> Door:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def nothing_left(rig: Rig) -> Iterator[None]:
    yield
    rig.wait_until_idle()
    rig.as_root(NODE, "rm", "-rf", f"{rig.base}/local/cache-{rig.user.pw_name}")
    assert rig.remains() == []


@pytest.fixture(scope="module")
def big(rig: Rig) -> str:
    path = make_image(rig.shared / "big.sqsh", more={"srv/data": os.urandom(8 << 20)})
    return f"--container-image={path}"


def files(rig: Rig, path: Path) -> list[str]:
    return rig.as_root(NODE, "find", str(path), "-type", "f").stdout.split()


def fill(rig: Rig, path: Path) -> None:
    """Leave no block free."""
    script = f"cat /dev/zero > {path}/filling 2> /dev/null; chown {rig.user.pw_uid} {path}/filling"
    rig.as_root(NODE, "sh", "-c", script)


def step(rig: Rig, door: Door, *words: str, **environ: str) -> tuple[int, str, str]:
    done = rig.run(*door.srun, "-w", f"node{NODE}", *words, **environ)
    rig.wait_until_idle()  # which the node would not be if its daemons had died
    return done.returncode, done.stdout, done.stderr


def test_a_cache_that_cannot_hold_the_image(rig: Rig, door: Door) -> None:
    images = ImageStore()
    images.image("t/big", "1", [busybox_layer(), [file("data", os.urandom(8 << 20))]])
    cache = rig.base / "local" / f"cache-{rig.user.pw_name}"
    with FakeRegistry(images) as registry:
        image = f"--container-image={registry.host}/t/big:1"
        with rig.small_disk(NODE, cache, SMALL):
            status, _, err = step(rig, door, image, "true")
            assert status != 0
            assert "Not enough space left" in err and str(cache) in err, err
            assert "ENROOT_CACHE_PATH" in err
            kept = [path for path in files(rig, cache) if path.endswith(".sqsh")]
            assert kept == []
        status, _, err = step(rig, door, image, "true")
        assert status == 0, err


def test_a_data_folder_that_cannot_hold_the_container(rig: Rig, door: Door, big: str) -> None:
    data = rig.base / "local" / f"data-{rig.user.pw_name}"
    with rig.small_disk(NODE, data, SMALL):
        status, _, err = step(rig, door, big, "--container-name=toobig", "true")
        assert status != 0
        assert "No space left" in err and str(data) in err and "ENROOT_DATA_PATH" in err, err
        assert rig.as_root(NODE, "ls", "-A", str(data)).stdout == ""


def test_a_folder_that_cannot_hold_the_saved_image(rig: Rig, door: Door, big: str) -> None:
    place = rig.base / "local/saved"
    with rig.small_disk(NODE, place, SMALL):
        status, out, err = step(
            rig, door, big, f"--container-save={place}/x.sqsh", "sh", "-c", "echo ran"
        )
        assert (status, out) == (0, "ran\n"), err  # the command's own work is done
        assert "cannot save" in err and "No space left" in err and str(place) in err, err
        assert rig.as_root(NODE, "ls", "-A", str(place)).stdout == ""


def test_a_runtime_folder_without_a_free_block(rig: Rig, door: Door) -> None:
    """enroot's own: a container has a file system in memory there, so that none is needed."""
    folder = rig.base / "local" / f"run-{rig.user.pw_name}"
    with rig.small_disk(NODE, folder, "64k"):
        fill(rig, folder)
        image = f"--container-image={rig.shared}/image.sqsh"
        status, out, err = step(rig, door, image, "--container-writable", "cat", "/etc/mark")
        assert (status, out) == (0, "image\n"), err
        assert files(rig, folder) == [f"{folder}/filling"]


def test_a_runtime_folder_of_the_plugins_without_a_free_block(rig: Rig, door: Door) -> None:
    folder = rig.base / "local/pyxis" / str(rig.user.pw_uid)
    rig.as_root(NODE, "rm", "-rf", str(folder))
    with rig.small_disk(NODE, folder, "64k"):
        fill(rig, folder)
        image = f"--container-image={rig.shared}/image.sqsh"
        site = f"runtime_path={rig.base}/local/pyxis"  # which the wrapper does not know
        status, _, err = step(rig, door, image, "true", PYXIS_PLUGIN_OPTIONS=site)
        assert status != 0
        assert "Traceback" not in err
        assert "No space left on device" in err and str(folder) in err, err
        assert files(rig, folder) == [f"{folder}/filling"]
