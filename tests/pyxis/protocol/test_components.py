"""Components of a heterogeneous step: which of them a node runs, and with which flags."""

from __future__ import annotations

import pytest

from enroot_py import UsageError
from pyxis_py.command_lines.components import split_components
from pyxis_py.command_lines.slurm_options import built_in_options
from pyxis_py.protocol.components import GROUPS, component_flags, expand_groups, find_groups

HET = {"SLURM_JOB_ID": "5", "SLURM_HET_SIZE": "3"}


@pytest.mark.parametrize(
    ("line", "environ", "groups"),
    [
        ("-n1 a : -n1 b", {}, "0 1"),
        ("-n1 a : -n1 b", HET, "0 1"),
        ("--het-group=1 a : --het-group 0 b", HET, "1 0"),
        ("--het-group=0,2 a : b", HET, "0 1 0"),
        ("--het-group=[1-2] a : --het-group=4 b", HET, "- 0 0 - 1"),
        ("-n1 a --het-group=7 : -n1 b", HET, "0 1"),  # the command's own word
        ("-n1 a", HET, ""),
        # A job that is not heterogeneous: its components have one id.
        ("-n1 a : -n1 b", {"SLURM_JOB_ID": "5"}, ""),
    ],
)
def test_a_command_line_says_which_component_goes_where(
    line: str, environ: dict[str, str], groups: str
) -> None:
    components = split_components(line.split(), built_in_options("srun"))
    assert find_groups(components, environ) == groups


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "3-1", "0,,1", "0-999999999"])
def test_a_list_of_groups_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="--het-group"):
        expand_groups(text)


FLAGS = {
    "SLURM_PYXIS_COMPONENT_0": "0=/a.sqsh\03611=",
    "SLURM_PYXIS_COMPONENT_1": "",
    GROUPS: "1 0",
    "SLURM_JOB_ID": "5",
}


@pytest.mark.parametrize(
    ("environ", "job", "flags"),
    [
        ({"SLURM_JOB_ID": "5"}, 5, None),
        (FLAGS, 5, []),
        (FLAGS, 6, ["0=/a.sqsh", "11="]),
        # Where Slurm names the ids they count, in whatever order.
        (
            {**FLAGS, "SLURM_JOB_ID_HET_GROUP_0": "9", "SLURM_JOB_ID_HET_GROUP_1": "5"},
            5,
            ["0=/a.sqsh", "11="],
        ),
    ],
)
def test_a_node_finds_its_components_flags(
    environ: dict[str, str], job: int, flags: list[str] | None
) -> None:
    assert component_flags(environ, job) == flags


@pytest.mark.parametrize(
    "environ",
    [
        {**FLAGS, GROUPS: "0 -"},
        {**FLAGS, GROUPS: "0"},
        {**FLAGS, GROUPS: ""},
        {**FLAGS, GROUPS: "0 7"},
        {**FLAGS, GROUPS: "0 ../../x"},
        {**FLAGS, "SLURM_JOB_ID": "many"},
        {**FLAGS, "SLURM_JOB_ID": "77"},
    ],
)
def test_a_node_that_cannot_tell_refuses(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="which component"):
        component_flags(environ, 6)
