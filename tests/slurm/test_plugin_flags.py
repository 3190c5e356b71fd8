"""The table of flags, through Slurm's plugin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.cases import ALL
from tests.slurm.doors import PLUGIN, Outcomes, check_case, run_selected
from tests.slurm.rig import Rig

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("plugin")]


@pytest.fixture(scope="module")
def outcomes(rig: Rig, plugin: None, request: pytest.FixtureRequest) -> Iterator[Outcomes]:
    yield from run_selected(rig, PLUGIN, request, "test_the_plugin_does_what_the_table_says")


@pytest.mark.parametrize("name", [name for name, _ in ALL])
def test_the_plugin_does_what_the_table_says(rig: Rig, outcomes: Outcomes, name: str) -> None:
    check_case(rig, dict(ALL)[name], outcomes[name].result())


def test_nothing_is_left_of_all_that(rig: Rig, outcomes: Outcomes) -> None:
    for outcome in outcomes.values():
        outcome.result()
    assert rig.remains() == []
