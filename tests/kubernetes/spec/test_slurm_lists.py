"""Host lists, arrays, dependencies and constraints as sbatch takes them."""

from __future__ import annotations

import pytest

from enroot_py import UsageError
from pyxis_py.kubernetes.spec.slurm_lists import (
    Array,
    ConstraintError,
    Dependencies,
    Dependency,
    format_counts,
    parse_array,
    parse_constraint,
    parse_dependency,
    parse_hostlist,
)


@pytest.mark.parametrize(("text", "array"), [
    ("0-3", Array((0, 1, 2, 3))), ("1-7:2%2", Array((1, 3, 5, 7), 2)), ("5", Array((5,))),
    ("9,1-2", Array((1, 2, 9))), ("1,1", Array((1,))), ("0-1%0", Array((0, 1), 0)),
])  # fmt: skip
def test_arrays(text: str, array: Array) -> None:
    assert parse_array(text) == array


@pytest.mark.parametrize(
    "text", ["", "x", "3-1", "1-3:0", "1%x", "1%", "-1", "0-999999999", "1,,2", "1-2-3", "%5"]
)
def test_malformed_arrays_are_errors(text: str) -> None:
    with pytest.raises(UsageError):
        parse_array(text)


@pytest.mark.parametrize(("text", "hosts"), [
    ("n1", ("n1",)), ("a,b", ("a", "b")), ("n[1-3]", ("n1", "n2", "n3")),
    ("n[08-10]", ("n08", "n09", "n10")), ("n[1,3]-ib", ("n1-ib", "n3-ib")),
    ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")), ("n[1-2],n1", ("n1", "n2")),
])  # fmt: skip
def test_host_lists(text: str, hosts: tuple[str, ...]) -> None:
    assert parse_hostlist(text) == hosts


@pytest.mark.parametrize("text", [
    "", "n[", "n]", "n[1", "n[[1]]", "n[3-1]", "n[]", "n[a]", "a,,b", "a b", "n[1-999999999]",
    "n[1-1000]m[1-1000]", "-a", "a_b",
])  # fmt: skip
def test_malformed_host_lists_are_errors(text: str) -> None:
    with pytest.raises(UsageError):
        parse_hostlist(text)


def test_counts_of_nodes_are_written_as_runs() -> None:
    assert format_counts([3, 3, 2]) == "3(x2),2"
    assert format_counts([1] * 64) == "1(x64)"
    assert format_counts([]) == ""


@pytest.mark.parametrize(("text", "found"), [
    ("afterok:12", Dependencies((Dependency("afterok", ("12",)),))),
    ("after:12+5:13", Dependencies((Dependency("after", ("12+5", "13")),))),
    ("aftercorr:1_2?singleton",
     Dependencies((Dependency("aftercorr", ("1_2",)), Dependency("singleton", ())), True)),
])  # fmt: skip
def test_dependencies(text: str, found: Dependencies) -> None:
    assert parse_dependency(text) == found


@pytest.mark.parametrize(
    "text", ["", "afterok", "afterok:", "afterok:x", "later:1", "afterok:1,singleton?after:2"]
)
def test_malformed_dependencies_are_errors(text: str) -> None:
    with pytest.raises(UsageError):
        parse_dependency(text)


@pytest.mark.parametrize(("text", "found"), [
    ("a", (("a",),)), ("a&b", (("a", "b"),)), ("a,b", (("a", "b"),)),
    ("a|b&c", (("a",), ("b", "c"))),
    ("a&a|a", (("a",),)),
])  # fmt: skip
def test_constraints(text: str, found: tuple[tuple[str, ...], ...]) -> None:
    assert parse_constraint(text) == found


@pytest.mark.parametrize(("text", "code"), [
    ("[a|b]", "constraint-matching-or"), ("a*2", "constraint-count"),
    ("(a|b)", "constraint-nested"),
])  # fmt: skip
def test_constraints_without_an_equal_say_why(text: str, code: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        parse_constraint(text)
    assert caught.value.code == code


@pytest.mark.parametrize("text", ["", "&", "a|", "a b", "a&&b", "!"])
def test_malformed_constraints_are_errors(text: str) -> None:
    with pytest.raises(UsageError):
        parse_constraint(text)
