"""The table of flags, through Slurm's plugin; and what only the plugin can do."""

from __future__ import annotations

import pytest

from tests.slurm.cases import ALL, Case
from tests.slurm.doors import PLUGIN, check_case, run_case
from tests.slurm.rig import Rig

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("plugin")]


@pytest.mark.parametrize("case", [case for _, case in ALL], ids=[name for name, _ in ALL])
def test_the_plugin_does_what_the_table_says(rig: Rig, case: Case) -> None:
    check_case(rig, case, run_case(rig, PLUGIN, case))


def test_nothing_is_left_of_all_that(rig: Rig) -> None:
    assert rig.remains() == []
