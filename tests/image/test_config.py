"""Image configs: everything absent is empty, everything malformed is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from enroot_py.errors import ManifestError
from enroot_py.image.config import MAX_CONFIG_SIZE, parse_image_config, parse_inspected_config

DIGEST = "sha256:" + "0" * 64


def test_a_config_comes_out_whole() -> None:
    document = {
        "architecture": "arm64",
        "os": "linux",
        "created": "2020-01-01T00:00:00Z",
        "config": {
            "Entrypoint": ["/ep", "a b"],
            "Cmd": ["c", ""],
            "Env": ["PATH=/bin", 'Q=it\'s "$HOME" `id`', "NL=a\nb", "EMPTY=", "BARE"],
            "WorkingDir": "/new dir",
            "User": "1000:evil",
            "Volumes": {"/z": {}, "/a": {}},
            "Labels": {"b": "1\n2", "a": "2", "n": None},
        },
        "rootfs": {"type": "layers", "diff_ids": [DIGEST]},
        "history": [{"created_by": "RUN x", "empty_layer": True}, {"comment": "c", "created": "t"}],
    }
    found = parse_image_config(json.dumps(document).encode())
    assert (found.architecture, found.os) == ("arm64", "linux")
    assert found.entrypoint == ("/ep", "a b") and found.cmd == ("c", "")
    assert found.env == tuple(document["config"]["Env"])  # type: ignore[index]
    assert (found.working_dir, found.user) == ("/new dir", "1000:evil")
    assert found.volumes == ("/a", "/z")
    assert found.labels == (("b", "1\n2"), ("a", "2"), ("n", ""))
    assert [str(one) for one in found.diff_ids] == [DIGEST]
    assert found.history[0].created_by == "RUN x" and found.history[0].empty_layer
    assert found.history[1].comment == "c" and not found.history[1].empty_layer


MEMBERS = ("Entrypoint", "Cmd", "Env", "WorkingDir", "User", "Volumes", "Labels")


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"config": None},
        {"config": {}},
        {"config": dict.fromkeys(MEMBERS)},
        {"architecture": None, "os": None, "rootfs": None, "history": None, "created": None},
        {"rootfs": {"diff_ids": None}},
        {"config": {"Entrypoint": [""], "Cmd": None}},  # enroot#120
    ],
)
def test_what_is_absent_or_null_is_empty(document: Any) -> None:
    found = parse_image_config(json.dumps(document).encode())
    assert found.entrypoint == found.cmd == found.env == found.volumes == ()
    assert found.labels == ()
    assert found.architecture == found.os == found.working_dir == found.user == ""
    assert found.diff_ids == () and found.history == ()


@pytest.mark.parametrize(
    "document",
    [
        [],
        None,
        "x",
        {"config": []},
        {"config": {"Entrypoint": "sh -c x"}},
        {"config": {"Cmd": [1]}},
        {"config": {"Cmd": [None]}},
        {"config": {"Env": {"A": "b"}}},
        {"config": {"Env": ["A=\0"]}},
        {"config": {"WorkingDir": 1}},
        {"config": {"User": ["x"]}},
        {"config": {"User": "a\0b"}},
        {"config": {"Volumes": ["/a"]}},
        {"config": {"Volumes": {"/a\0": {}}}},
        {"config": {"Labels": {"a": 1}}},
        {"config": {"Labels": ["a=b"]}},
        {"architecture": 7},
        {"rootfs": []},
        {"rootfs": {"diff_ids": ["sha256:x"]}},
        {"rootfs": {"diff_ids": "x"}},
        {"history": {}},
        {"history": [1]},
    ],
)
def test_what_is_malformed_is_refused(document: Any) -> None:
    with pytest.raises(ManifestError):
        parse_image_config(json.dumps(document).encode())


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b"[" * 100000, b'{"config": NaN}', b" " * (MAX_CONFIG_SIZE + 1)]
)
def test_bytes_that_are_no_json_are_refused(data: bytes) -> None:
    with pytest.raises(ManifestError):
        parse_image_config(data)


def test_half_surrogates_are_replaced_and_whole_ones_kept() -> None:
    found = parse_image_config(
        b'{"config": {"Env": ["A=\\ud800", "B=\\ud83d\\ude00", "C=\xc3\xa9"]}}'
    )
    assert found.env == ("A=\ufffd", "B=\U0001f600", "C=\u00e9")
    for text in found.env:
        text.encode()


def test_a_megabyte_in_the_environment_comes_through() -> None:
    value = "x" * (1 << 20)
    data = json.dumps({"config": {"Env": [f"A={value}"]}}).encode()
    assert parse_image_config(data).env == (f"A={value}",)


@pytest.mark.parametrize("listed", [True, False])
def test_what_engines_print_is_read_too(listed: bool) -> None:
    document: Any = {
        "Id": DIGEST,
        "Architecture": "amd64",
        "Os": "linux",
        "Created": "2020-01-01T00:00:00Z",
        "Config": {"Env": ["A=b"], "Cmd": None, "Entrypoint": ["/x"], "Volumes": None},
        "RootFS": {"Type": "layers", "Layers": [DIGEST]},
        "History": [{"odd": 1}],
    }
    found = parse_inspected_config(json.dumps([document] if listed else document).encode())
    assert (found.architecture, found.os, found.env) == ("amd64", "linux", ("A=b",))
    assert found.entrypoint == ("/x",) and found.cmd == () and len(found.diff_ids) == 1


@pytest.mark.parametrize("data", [b"[]", b"[{}, {}]", b"1", b""])
def test_what_engines_do_not_print_is_refused(data: bytes) -> None:
    with pytest.raises(ManifestError):
        parse_inspected_config(data)
