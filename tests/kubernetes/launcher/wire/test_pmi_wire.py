"""The two dialects of PMI."""

from __future__ import annotations

import pytest

from pyxis_py.kubernetes.launcher.wire.pmi_wire import (
    LONGEST_MESSAGE,
    PmiError,
    format_message,
    process_mapping,
    take_messages,
)


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (b"hello\n", 1),
        (b"x" * (LONGEST_MESSAGE + 1), 1),
        (b"abcdefcmd=x;", 2),
        (b"999999", 2),
        (b"    -1x", 2),
        (b"     3x=y", 2),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, version: int) -> None:
    with pytest.raises(PmiError):
        take_messages(bytearray(data), version)


def test_lines_are_taken_when_they_are_complete() -> None:
    data = bytearray(b"cmd=get_maxes\ncmd=put kvsname=a key=b value=c=d\ncmd=ba")
    assert take_messages(data, 1) == [
        {"cmd": "get_maxes"},
        {"cmd": "put", "kvsname": "a", "key": "b", "value": "c=d"},
    ]
    assert data == b"cmd=ba"


def test_nothing_is_taken_behind_init_which_may_change_the_dialect() -> None:
    data = bytearray(b"cmd=init pmi_version=2 pmi_subversion=0\n    14cmd=job-getid;")
    assert take_messages(data, 1) == [{"cmd": "init", "pmi_version": "2", "pmi_subversion": "0"}]
    assert take_messages(data, 2) == [{"cmd": "job-getid"}]
    assert data == b""


@pytest.mark.parametrize("version", [1, 2])
def test_messages_survive_their_journey(version: int) -> None:
    words = {"cmd": "kvs-put", "key": "k", "value": "a=b,c" if version == 1 else "a=b;c;;d"}
    data = bytearray(format_message(words, version))
    assert take_messages(bytearray(data[:-1]), version) == []
    assert take_messages(data, version) == [words]


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ([0, 0, 1, 1], "(vector,(0,2,2))"),
        ([0, 1, 0, 1], "(vector,(0,2,1),(0,2,1))"),
        ([0, 0, 0, 1, 1], "(vector,(0,1,3),(1,1,2))"),
        ([0], "(vector,(0,1,1))"),
        ([1, 0], "(vector,(1,1,1),(0,1,1))"),
    ],
)
def test_where_ranks_are(places: list[int], text: str) -> None:
    assert process_mapping(places) == text
