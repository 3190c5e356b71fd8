"""Ours beside the facts recorded from NVIDIA's enroot 4.1.2, command line by command line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parity.command_lines import SCENARIOS
from tests.parity.differences import DIFFERENCES, Difference
from tests.parity.record import Recorder
from tests.parity.step import Scenario
from tests.parity.world import clear

FACTS: dict[str, dict[str, dict[str, Any]]] = json.loads(
    Path(__file__).with_name("facts.json").read_text(encoding="utf-8")
)
DECLARED = {(entry.scenario, entry.step): entry for entry in DIFFERENCES}


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    """Ours, with no configuration of the machine's, as an ordinary user."""
    assert os.getuid() != 0, "the facts are those of an ordinary user"
    enroot = Path(sys.executable).with_name("enroot")
    root = tmp_path_factory.mktemp("parity")
    with Recorder(enroot, root, {"ENROOT_SYSCONF_PATH": str(root / "no-etc")}) as made:
        yield made
    clear(root)


@pytest.mark.parity
@pytest.mark.kernel
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario.name))
def test_facts_are_the_originals(recorder: Recorder, scenario: Scenario) -> None:
    ours = recorder.scenario(scenario)
    wrong = {}
    for name, facts in ours.items():
        declared = DECLARED.get((scenario.name, name))
        expected, found = compared(FACTS[scenario.name][name], facts, declared)
        if expected != found:
            wrong[name] = {"expected": expected, "found": found}
    assert not wrong


def test_the_facts_are_of_these_command_lines() -> None:
    table = {scenario.name: [step.name for step in scenario.steps] for scenario in SCENARIOS}
    assert table == {name: list(steps) for name, steps in FACTS.items()}


@pytest.mark.parametrize("declared", DIFFERENCES, ids=lambda one: f"{one.scenario}: {one.step}")
def test_a_declared_difference_is_one_and_has_a_reason(declared: Difference) -> None:
    facts = FACTS[declared.scenario][declared.step]
    expected, original = compared(facts, facts, declared)
    assert expected != original
    assert len(declared.reason.split()) > 3


def test_no_step_is_declared_twice() -> None:
    assert len(DECLARED) == len(DIFFERENCES)


def compared(
    original: dict[str, Any], ours: dict[str, Any], declared: Difference | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What must be equal: facts as they are, or with a declared difference's lines sorted."""
    if declared is None:
        return original, ours
    found = {
        key: sorted(value) if isinstance(value, list) else value for key, value in ours.items()
    }
    return declared.apply(original), found
