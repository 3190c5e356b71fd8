"""What the registry's tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from enroot_py import log
from enroot_py.settings import Settings
from tests.registry.images import ImageStore, directory, file, whiteout
from tests.registry.pulling import Pull, make_settings


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Forget what earlier tests warned about, and send messages nowhere afterwards."""
    log._warned.clear()
    yield
    log.set_sink(None)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of a user with empty folders."""
    return make_settings(tmp_path)


@pytest.fixture
def pull(settings: Settings) -> Pull:
    """A pull with those settings."""
    return Pull(settings)


@pytest.fixture
def store() -> ImageStore:
    """`t/one:1` (two layers), `solo:1`, and `t/idx:1` for amd64, arm64 and an attestation."""
    images = ImageStore()
    layers = [[directory("etc"), file("etc/a", "one" * 5000)], [whiteout("etc/a"), file("b", "x")]]
    images.image("t/one", "1", layers, config={"Cmd": ["/bin/sh"]})
    images.image("solo", "1", [[file("solo")]])
    entries = [images.attestation("t/idx")]
    for architecture in ("arm64", "amd64"):
        built = images.image(
            "t/idx", "", [[file("etc/ARCH", architecture)]], architecture=architecture
        )
        entries.append((built.manifest, f"linux/{architecture}"))
    images.index("t/idx", "1", entries)
    return images
