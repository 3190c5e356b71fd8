"""Many at once of one registry image: pulled once a node, and nothing left of those cancelled.

The registry is Debian's docker-registry, whose log counts; to be caught in the middle of an import
the crowd that is cancelled pulls from one that is slow.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.registry.docker_registry import docker_registry
from tests.registry.fake_registry import FakeRegistry
from tests.registry.faults import drip
from tests.registry.images import ImageStore, busybox_layer, file
from tests.slurm.doors import PLUGIN, WRAPPER, Door
from tests.slurm.rig import NODES, Rig

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("plugin")]

_BLOB = re.compile(r'"GET /v2/t/crowd/blobs/(sha256:\S+) HTTP/1.1" 20[06]')
_TAG = re.compile(r'"(?:GET|HEAD) /v2/t/crowd/manifests/1 HTTP/1.1" 200')
SIZES = [(20, 4), pytest.param(200, 20, marks=pytest.mark.soak)]
"""Tasks of the array, and concurrent steps on all nodes."""


@pytest.fixture(params=[PLUGIN, WRAPPER], ids=lambda door: door.name)
def door(request: pytest.FixtureRequest) -> Door:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def images() -> ImageStore:
    images = ImageStore()
    big = [file("etc/mark", "crowd\n"), file("big", os.urandom(4 << 20))]
    images.image("t/crowd", "1", [busybox_layer(), big])
    return images


@pytest.fixture(autouse=True)
def empty_caches(rig: Rig) -> Iterator[None]:
    yield
    rig.run("srun", f"-N{NODES}", "rm", "-rf", f"{rig.base}/local/cache-{rig.user.pw_name}")


def begin(
    rig: Rig, door: Door, host: str, tasks: int, steps: int, *, seconds: float
) -> tuple[str, list[subprocess.Popen[str]]]:
    """Submit an array and start steps; return the array's id and the steps."""
    image = f"--container-image={host}/t/crowd:1"
    script = rig.shared / "crowd.sh"
    script.write_text(f"#!/bin/sh\nsleep {seconds}\ncat /etc/mark\n")
    log = rig.folder("crowd")
    sbatch = "sbatch" if door is PLUGIN else "pyxis-sbatch"
    done = rig.run(sbatch, "--parsable", f"--array=1-{tasks}", "-n1", f"--output={log}/%a", image,
                   str(script))  # fmt: skip
    assert done.returncode == 0, done.stderr
    running = [
        rig.popen(*door.srun, "-J", f"crowd{number}", f"-N{NODES}", image, "sh", "-c",
                  f"sleep {seconds}; cat /etc/mark")
        for number in range(steps)
    ]  # fmt: skip
    return done.stdout.strip(), running


def cached(rig: Rig, number: int) -> list[Path]:
    return sorted(rig.node(number).glob("cache-*/**/images/*.sqsh"))


@pytest.mark.parametrize(("tasks", "steps"), SIZES)
def test_an_image_is_pulled_once_a_node(
    rig: Rig, door: Door, images: ImageStore, tmp_path: Path, tasks: int, steps: int
) -> None:
    with docker_registry(tmp_path) as host:
        images.push(host, "t/crowd", "1")
        log = tmp_path / "registry.log"
        pushed = log.stat().st_size
        array, running = begin(rig, door, host, tasks, steps, seconds=0.1)
        outputs = [step.communicate(timeout=300) for step in running]
        assert [out for out, _ in outputs] == ["crowd\n" * NODES] * steps, outputs
        assert rig.wait_for_job(array, timeout=300) == "COMPLETED"
        text = log.read_text()[pushed:]
    for path in (rig.shared / "crowd").iterdir():
        assert path.read_text().splitlines()[-1] == "crowd", path.read_text()
    # Two layers and the configuration, by each node; the tag by each submission.
    assert list(Counter(_BLOB.findall(text)).values()) == [NODES] * 3
    assert len(_TAG.findall(text)) == 1 + steps
    assert [len(cached(rig, number)) for number in range(1, NODES + 1)] == [1] * NODES
    assert rig.remains() == []


@pytest.mark.parametrize(("tasks", "steps"), SIZES)
def test_those_that_are_cancelled_leave_nothing(
    rig: Rig, door: Door, images: ImageStore, tasks: int, steps: int
) -> None:
    chance = random.Random(11)
    with FakeRegistry(images) as registry:
        registry.fault("/blobs/", drip(1 << 18, 0.1))  # the large layer takes two seconds
        host = registry.url.removeprefix("http://")
        array, running = begin(rig, door, host, tasks, steps, seconds=1)
        deadline = time.monotonic() + (4 if tasks < 100 else 25)
        while time.monotonic() < deadline:
            rig.run("scancel", f"{array}_{chance.randint(1, tasks)}")
            rig.run("scancel", "--name", f"crowd{chance.randrange(steps)}")
            time.sleep(chance.random() / 4)
        rig.run("scancel", array)
        for number, step in enumerate(running):
            rig.run("scancel", "--name", f"crowd{number}")
            step.communicate(timeout=200)
        rig.wait_for_job(array, timeout=120)
        rig.wait_until_idle()
        assert rig.remains() == []
        for number in range(1, NODES + 1):
            assert list(rig.node(number).rglob(".enroot.*")) == []
            for path in cached(rig, number):
                read = subprocess.run(["unsquashfs", "-cat", path, "etc/mark"], capture_output=True)
                assert (read.returncode, read.stdout) == (0, b"crowd\n"), read
        words = (f"-N{NODES}", f"--container-image={host}/t/crowd:1", "cat", "/etc/mark")
        done = rig.run(*door.srun, *words)
        assert done.stdout == "crowd\n" * NODES, done.stderr
