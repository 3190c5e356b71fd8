"""Specification files: folders, priorities, conflicts, damage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from enroot_py.errors import DeviceSpecError, NotFoundError
from enroot_py.gpu.cdi.registry import load_registry, read_spec
from tests.gpu.cdi.specs import MINIMAL, changed, write


def spec(value: str, *names: str, kind: str = "v.com/d", common: str = "") -> dict[str, object]:
    document: dict[str, object] = {
        "cdiVersion": "0.5.0",
        "kind": kind,
        "devices": [{"name": n, "containerEdits": {"env": [f"{n}={value}"]}} for n in names],
    }
    if common:
        document["containerEdits"] = {"env": [f"COMMON={common}"]}
    return document


def env(tmp_path: Path, *names: str) -> list[str]:
    registry = load_registry([str(tmp_path / "etc"), str(tmp_path / "run")])
    return [text for _, edits in registry.resolve(names) for text in edits.env]


def test_yaml_and_json_in_both_folders(tmp_path: Path) -> None:
    write(tmp_path / "etc/a.yaml", spec("1", "x"))
    write(tmp_path / "etc/b.json", spec("2", "y"))
    write(tmp_path / "run/c.yaml", spec("3", "z"))
    assert env(tmp_path, "v.com/d=z", "v.com/d=x", "v.com/d=y") == ["z=3", "x=1", "y=2"]


def test_other_names_and_folders_below_are_passed_over(tmp_path: Path) -> None:
    for name in ("etc/a.yml", "etc/b.txt", "etc/below/c.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("junk: [")
    (tmp_path / "etc/d.yaml").mkdir()
    registry = load_registry([str(tmp_path / "etc"), str(tmp_path / "missing")])
    assert registry.specs == () and registry.errors == ()


def test_the_higher_folder_wins_silently(tmp_path: Path) -> None:
    write(tmp_path / "etc/a.yaml", spec("low", "x", "y"))
    write(tmp_path / "run/a.yaml", spec("high", "x"))
    assert env(tmp_path, "v.com/d=x", "v.com/d=y") == ["x=high", "y=low"]


def test_two_files_of_one_folder_make_a_device_unresolvable(tmp_path: Path) -> None:
    write(tmp_path / "etc/a.yaml", spec("1", "x", "y"))
    write(tmp_path / "etc/b.yaml", spec("2", "x"))
    assert env(tmp_path, "v.com/d=y") == ["y=1"]
    with pytest.raises(NotFoundError) as caught:
        env(tmp_path, "v.com/d=x")
    message = str(caught.value)
    assert f"{tmp_path}/etc/a.yaml" in message and f"{tmp_path}/etc/b.yaml" in message
    write(tmp_path / "run/c.yaml", spec("3", "x"))
    assert env(tmp_path, "v.com/d=x") == ["x=3"]


def test_a_files_own_edits_come_once_before_its_first_device(tmp_path: Path) -> None:
    write(tmp_path / "etc/a.yaml", spec("1", "x", "y", common="a"))
    write(tmp_path / "etc/b.yaml", spec("2", "z", kind="v.com/e", common="b"))
    names = ("v.com/d=y", "v.com/e=z", "v.com/d=x")
    assert env(tmp_path, *names) == ["COMMON=a", "y=1", "COMMON=b", "z=2", "x=1"]


def test_all_names_must_resolve_or_nothing_does(tmp_path: Path) -> None:
    write(tmp_path / "etc/a.yaml", spec("1", "x"))
    (tmp_path / "etc/broken.yaml").write_text("kind: [")
    with pytest.raises(NotFoundError) as caught:
        env(tmp_path, "v.com/d=x", "v.com/d=nine", "w/e=1")
    message = str(caught.value)
    assert "unresolvable CDI devices v.com/d=nine, w/e=1" in message
    assert "v.com/d=x" in message
    assert "broken.yaml" in message


def test_malformed_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeviceSpecError):
        env(tmp_path, "v.com/d=x,y")


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a.yaml", "kind: [", "line 2"),
        ("a.yaml", "kind: a/b\nx: y\nkind: a/c\n", 'line 3: the key "kind" stands twice'),
        ("a.yaml", "1: x\n", "is not text"),
        ("a.yaml", "!!python/object/apply:os.system ['true']\n", "could not determine"),
        ("a.yaml", "", "expected an object"),
        ("a.yaml", "a: &a [*a]\n", ""),
        ("a.yaml", "[" * 5000, ""),
        ("a.yaml", b"\xff\xfe\x00", ""),
        ("a.json", "{", "Expecting"),
        ("a.json", '{"kind": "a/b", "kind": "a/c"}', 'the key "kind" stands twice'),
        ("a.json", b"\xff", ""),
        ("a.json", "[" * 50000, "nested"),
    ],
)  # fmt: skip
def test_damaged_files_are_reported_and_the_others_count(
    tmp_path: Path, name: str, text: str | bytes, what: str
) -> None:
    write(tmp_path / "etc/good.yaml", spec("1", "x"))
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "etc" / name).write_bytes(data)
    registry = load_registry([str(tmp_path / "etc")])
    (error,) = registry.errors
    assert name in error and what in error
    assert registry.names() == ("v.com/d=x",)


def test_numbers_that_should_be_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", changed(MINIMAL, "devices", 0, "name", value=0))
    with pytest.raises(DeviceSpecError, match=r"devices\[0\]\.name: expected text"):
        read_spec(str(path))


def test_pipes_and_missing_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    for name in ("a.json", "missing.json"):
        with pytest.raises(DeviceSpecError):
            read_spec(str(tmp_path / name))


def test_where_no_specification_is_the_folders_are_named(tmp_path: Path) -> None:
    folders = [str(tmp_path), "/nonexistent"]
    with pytest.raises(NotFoundError, match="v.com/d=all") as caught:
        load_registry(folders).resolve(["v.com/d=all"])
    assert f"{tmp_path} or /nonexistent" in caught.value.hint
