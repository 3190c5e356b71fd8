"""Imports with little memory, and with few or very many descriptors allowed: case C12."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from tests.operations.importing import Workplace
from tests.registry.fake_registry import FakeRegistry
from tests.registry.images import Layer, busybox_layer, file


def add_large_image(registry: FakeRegistry) -> None:
    """Add `t/large:1`: three layers of 60 MiB that do not compress, and 20,000 small files."""
    data = random.Random(1).randbytes(60 << 20)
    layers = [Layer([file(f"data/{at}", data[at:])], "none") for at in range(3)]
    small = Layer([file(f"small/{at % 100}/{at}", str(at)) for at in range(20_000)])
    registry.images.image("t/large", "1", [busybox_layer(), small, *layers])


@pytest.mark.root
def test_little_memory_is_enough(
    registry: FakeRegistry, place: Workplace, memory_group: Path
) -> None:
    add_large_image(registry)
    uri = f"docker://{registry.host}#t/large:1"
    join = f'echo $$ > {memory_group}/cgroup.procs; exec "$@"'
    for words in (
        ("import", "-o", "i.sqsh", uri), ("create", "-n", "made", "i.sqsh"),
        ("load", "-n", "loaded", uri), ("export", "-o", "e.sqsh", "loaded"),
    ):  # fmt: skip
        done = subprocess.run(
            ["sh", "-c", join, "sh", *place.command(*words)],
            cwd=place.out, env={**place.environ, "ENROOT_MAX_PROCESSORS": "64"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.returncode, done.stderr)


@pytest.mark.parametrize("limit", ["256", "$(ulimit -H -n)"])
def test_the_limit_on_open_files_does_not_matter(
    registry: FakeRegistry, place: Workplace, limit: str
) -> None:
    layers = [[file(f"f{at}", str(at))] for at in range(80)]
    registry.images.image("t/deep", "1", [busybox_layer(), *layers])
    uri = f"docker://{registry.host}#t/deep:1"
    script = f'ulimit -n {limit} && exec "$@"'
    for words in (
        ("import", "-o", "i.sqsh", uri), ("load", "-n", "loaded", uri),
        ("create", "-n", "made", "i.sqsh"), ("export", "-o", "e.sqsh", "made"),
    ):  # fmt: skip
        done = subprocess.run(
            ["sh", "-c", script, "sh", *place.command(*words)],
            cwd=place.out, env=place.environ, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
