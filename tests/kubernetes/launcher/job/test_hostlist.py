"""Host lists, both ways."""

from __future__ import annotations

import pytest

from pyxis_py.kubernetes.launcher.job.hostlist import (
    LARGEST_LIST,
    HostListError,
    compress_hosts,
    expand_hosts,
    format_counts,
    parse_counts,
    sort_hosts,
)


@pytest.mark.parametrize("text", ["n[1-3", "n1-3]", "n[[1]]", "n[3-1]", "n[a-b]", "n[1-]", "n[]",
                                  f"n[0-{LARGEST_LIST}]", "n[0-999][0-999]", "n[1-999999999]",
                                  "n[1,,2]"])  # fmt: skip
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(HostListError):
        expand_hosts(text)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("job-4-n-0-[0-2]", ["job-4-n-0-0", "job-4-n-0-1", "job-4-n-0-2"]),
        ("a,b", ["a", "b"]),
        ("b,a,b", ["b", "a", "b"]),
        ("n[09-11,7]-ib", ["n09-ib", "n10-ib", "n11-ib", "n7-ib"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("", []),
        ("a b", ["a", "b"]),
    ],
)
def test_a_list_is_expanded(text: str, hosts: list[str]) -> None:
    assert expand_hosts(text) == hosts


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        (["n1", "n2", "n3"], "n[1-3]"),
        (["n1", "n3"], "n[1,3]"),
        (["n3", "n2"], "n[3,2]"),
        (["n9", "n10"], "n[9-10]"),
        (["n09", "n10"], "n[09-10]"),
        (["n9", "n010"], "n[9,010]"),
        (["n99", "n100"], "n[99-100]"),
        (["n01", "n2"], "n[01,2]"),
        (["a", "n1", "n2", "m3"], "a,n[1-2],m3"),
        (["n1-ib", "n2-ib"], "n1-ib,n2-ib"),
        (["n1"], "n1"),
        ([], ""),
    ],
)
def test_a_list_is_compressed_and_expands_to_the_same(hosts: list[str], text: str) -> None:
    assert compress_hosts(hosts) == text
    assert expand_hosts(text) == hosts


def test_hosts_are_ordered_by_their_numbers() -> None:
    assert sort_hosts(["n10", "n9", "m1"]) == ["m1", "n9", "n10"]


@pytest.mark.parametrize(("values", "text"), [([3, 3, 2], "3(x2),2"), ([1], "1"), ([], "")])
def test_counts_are_written_as_slurm_does(values: list[int], text: str) -> None:
    assert format_counts(values) == text
    if text:
        assert parse_counts(text) == values


@pytest.mark.parametrize("text", ["", "x", "3(x)", "3(2)", "-1"])
def test_malformed_counts_are_refused(text: str) -> None:
    with pytest.raises(HostListError):
        parse_counts(text)
