"""What test_het_jobs.py shows of the wrappers: the same tests through the plugin."""

from __future__ import annotations

import pytest

from tests.slurm.plugin import PluginRig
from tests.slurm.rig import Rig
from tests.slurm.test_het_jobs import *  # noqa: F403  the tests of that file are those of this one

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("plugin")]


@pytest.fixture(scope="module")
def rig(rig: Rig) -> PluginRig:
    return PluginRig(rig)
