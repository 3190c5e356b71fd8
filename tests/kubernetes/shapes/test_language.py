"""The small language for shapes: what each of its words refuses."""

from __future__ import annotations

from typing import Any

import pytest

from pyxis_py.kubernetes.shapes.language import (
    ListOf,
    MapOf,
    Number,
    Record,
    Shape,
    Switch,
    Text,
    check,
)

PAIR = Record({"a": Number(0, 9), "b": Text()}, required=("a",))


@pytest.mark.parametrize(("value", "shape", "problems"), [
    ({"a": 1}, PAIR, []),
    ({"a": 1, "c": 2}, PAIR, ["c: unknown field"]),
    ({"b": "x"}, PAIR, ["a: missing"]),
    ({"a": True}, PAIR, ["a: not an integer: True"]),
    ({"a": 1.0}, PAIR, ["a: not an integer: 1.0"]),
    ({"a": 10}, PAIR, ["a: not between 0 and 9: 10"]),
    ({"a": None}, PAIR, ["a: not an integer: None"]),
    ([], PAIR, ["(document): not an object"]),
    ({"a": 1, "b": 2}, Record(PAIR.fields, one_of=("a", "b")),
     ["b: not a string: 2", "(document): exactly one of a, b has to be there"]),
    ({}, Record(PAIR.fields, one_of=("a", "b")),
     ["(document): exactly one of a, b has to be there"]),
    ([{"a": 1}, {"a": 1}], ListOf(PAIR, key=("a",)), ["[1]: a second one with a 1"]),
    ([], ListOf(PAIR, least=1), ["(document): fewer than 1 items"]),
    ([{"a": 1}] * 3, ListOf(PAIR, most=2), ["(document): more than 2 items"]),
    ("x", ListOf(PAIR), ["(document): not a list"]),
    ({"x": 1}, MapOf(Number(), "[a-z]"), []),
    ({"X": 1}, MapOf(Number(), "[a-z]"), ["(document): not a valid key: 'X'"]),
    ({1: 1}, MapOf(Number()), ["(document): not a valid key: 1"]),
    ({"x": "1"}, MapOf(Number()), ["[x]: not an integer: '1'"]),
    (5, MapOf(Number()), ["(document): not an object"]),
    ("ab", Text("[a-z]", what="a letter"), ["(document): not a letter: 'ab'"]),
    ("a\n", Text("[a-z]"), ["(document): not a string: 'a\\n'"]),
    ("x", Text(choices=("a", "b")), ["(document): 'x' is none of a, b"]),
    ("xxx", Text(longest=2), ["(document): longer than 2 characters"]),
    (1, Switch(), ["(document): neither true nor false: 1"]),
    (False, Switch(), []),
])  # fmt: skip
def test_problems(value: Any, shape: Shape, problems: list[str]) -> None:
    assert list(check(value, shape)) == problems
