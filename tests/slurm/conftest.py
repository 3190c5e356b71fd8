"""The cluster, started once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyxis_py.plugin.build import LIBRARY, build
from tests.slurm.images import make_image
from tests.slurm.plugin import plugin_line
from tests.slurm.rig import Rig


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    """A running cluster with an image at shared/image.sqsh.

    Its slurmds have started with the plugin, whose epilog they otherwise would not run; steps have
    it with the fixture `plugin`.
    """
    rig = Rig()
    try:
        build(rig.base / LIBRARY)
        rig.start(plugstack=plugin_line(rig))
        make_image(rig.shared / "image.sqsh")
        yield rig
    finally:
        rig.stop()
    assert rig.survivors() == []


@pytest.fixture(scope="module")
def plugin(rig: Rig) -> Iterator[None]:
    """The plugin is in plugstack.conf while the tests of a module run."""
    with rig.plugstack(plugin_line(rig)):
        yield


@pytest.fixture
def image(rig: Rig) -> str:
    """The flag for the image at shared/image.sqsh."""
    return f"--container-image={rig.shared}/image.sqsh"


@pytest.fixture
def other(rig: Rig) -> str:
    """The flag for another image, whose /etc/mark says so."""
    path = rig.shared / "other.sqsh"
    if not path.exists():
        make_image(path, mark="other")
    return f"--container-image={path}"
