"""Requests and answers between the plugin's C and its Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from enroot_py import UsageError
from pyxis_py.job import JobFacts
from pyxis_py.protocol.keeper_process import encode_request
from pyxis_py.protocol.records import (
    VERSION,
    Answer,
    decode_answer,
    decode_records,
    encode_answer,
    encode_records,
    is_complete,
)
from pyxis_py.protocol.request import Request
from pyxis_py.protocol.task_environ import EnvironEdits

EDITS = EnvironEdits(("LANG",), (("A", "1=2"), ("B", "two\nlines")), (("C", ""),), (("D", "E"),))
WHOLE = Answer(
    "ok", (), ("line",), ("info",),
    pid=12, join=("user", "mnt"), cwd="/a=b", edits=EDITS, seccomp=True, state="('n', True)",
)  # fmt: skip


@pytest.mark.parametrize(
    "data", [b"no nul", b"key=value", b"novalue\0", b"a=b\0rest"], ids=lambda data: repr(data)
)
def test_broken_records_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="cut off|no key"):
        decode_records(data)


def test_records_keep_order_and_odd_bytes() -> None:
    pairs = [("a", "1"), ("b", "x=y\n\udcff"), ("a", "2"), ("a", "")]
    records = decode_records(encode_records(pairs))
    assert records.all("a") == ["1", "2", ""]
    assert records.first("b") == "x=y\n\udcff"
    assert records.first("none", "default") == "default"
    assert decode_records(b"").all("a") == []


def test_an_answer_survives_the_way() -> None:
    assert decode_answer(encode_answer(WHOLE)) == WHOLE


@pytest.mark.parametrize("length", [0, 1, -1, -2, -5])
def test_an_answer_that_is_cut_off_is_none(length: int) -> None:
    data = encode_answer(WHOLE)[:length]
    assert not is_complete(data)
    with pytest.raises(ValueError, match="incomplete"):
        decode_answer(data)


def test_the_word_end_in_a_value_ends_nothing() -> None:
    data = encode_records([("log", "end=")])
    assert not is_complete(data)


def test_a_request_says_what_was_asked() -> None:
    job = JobFacts(1, 2, 3, 4, tasks=8, local_tasks=2, cwd="/c", environ={"X": "y=z", "E": ""})
    data = encode_request(job, words=["container_scope=job"], options=[(0, "a"), (7, "")])
    request = Request(data)
    assert request.job == job
    assert request.config.container_scope == "job"
    assert (request.arguments.image, request.arguments.remap_root) == ("a", True)


@pytest.mark.parametrize("option", ["999=x", "x=y", "-1=a", ""])
def test_a_flag_of_another_version_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match="Unknown flag number"):
        Request(encode_records([("version", VERSION), ("option", option)]))


@pytest.mark.parametrize("pairs", [[], [("version", "1")], [("version", "x")]])
def test_a_plugin_of_another_version_is_to_be_built_again(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(UsageError, match="not of one version") as caught:
        Request(encode_records(pairs))
    assert "pyxis plugin build" in caught.value.hint


def test_the_plugin_speaks_what_the_keeper_does() -> None:
    header = Path(__file__).parents[3] / "spank_shim/records.h"
    assert f'#define PROTOCOL_VERSION "{VERSION}"\n' in header.read_text()
