"""The cluster, started once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.images import make_image
from tests.slurm.rig import Rig


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    """A running cluster with an image at shared/image.sqsh."""
    rig = Rig()
    try:
        rig.start()
        make_image(rig.shared / "image.sqsh")
        yield rig
    finally:
        rig.stop()
