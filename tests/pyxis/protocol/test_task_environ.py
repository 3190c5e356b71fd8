"""Whose variables win."""

from __future__ import annotations

import pytest

from pyxis_py.protocol.task_environ import apply_edits, plan_task_environ


@pytest.mark.parametrize(
    ("container", "task", "keep", "overrides", "expected"),
    [
        ({"A": "image"}, {"A": "job"}, (), (), {"A": "image"}),
        ({"A": "image"}, {"A": "job"}, ("A",), (), {"A": "job"}),
        ({"A": "image"}, {}, ("A",), (), {"A": "image"}),
        ({}, {"B": "job"}, (), (), {"B": "job"}),
        ({}, {"LANG": "de", "LC_ALL": "de", "LANGUAGE": "de"}, (), (), {}),
        ({"LANG": "C"}, {"LANG": "de"}, (), (), {"LANG": "C"}),
        ({"LANG": "C"}, {"LANG": "de"}, ("LANG",), (), {"LANG": "de"}),
        ({"A": "image"}, {"A": "job"}, ("A",), (("A", "file"),), {"A": "file"}),
        ({"A": "image"}, {"A": "job"}, (), (("A", ""),), {}),
        ({"E": ""}, {"E": "job"}, (), (), {"E": ""}),
        (
            {"PYTORCH_VERSION": "2"}, {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "RANK": "0"},
            (), (),
            {"PYTORCH_VERSION": "2", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "RANK": "5",
             "LOCAL_RANK": "1"},
        ),
        ({"PYTORCH_VERSION": "2"}, {"RANK": "7"}, (), (), {"PYTORCH_VERSION": "2", "RANK": "7"}),
    ],
)  # fmt: skip
def test_a_tasks_environment(
    container: dict[str, str],
    task: dict[str, str],
    keep: tuple[str, ...],
    overrides: tuple[tuple[str, str], ...],
    expected: dict[str, str],
) -> None:
    environ = dict(task)
    apply_edits(plan_task_environ(container, task, keep, overrides=overrides), environ)
    assert environ == expected
