"""A small language for the shape of YAML documents, and the check of a document against it.

The site profile and every rendered manifest are checked with it: unknown fields, missing fields and
wrong types are errors with a path. Booleans are no integers here.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Text:
    """A string, of the given pattern (whole) and length where they are set."""

    pattern: str = ""
    choices: tuple[str, ...] = ()
    longest: int = 0
    what: str = "a string"


@dataclass(frozen=True, slots=True)
class Number:
    """An integer in a range."""

    least: int = -(2**31)
    most: int = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Switch:
    """A boolean."""


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; `key` names the fields whose values must be unique among the items."""

    item: Shape
    key: tuple[str, ...] = ()
    least: int = 0
    most: int = 0


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object with free keys of the given pattern."""

    value: Shape
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """An object with known fields."""

    fields: Mapping[str, Shape]
    required: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()


Shape = Text | Number | Switch | ListOf | MapOf | Record


def check(value: Any, shape: Shape, path: str = "") -> Iterator[str]:
    """Yield one line for each place where a value does not have a shape: `PATH: what is wrong`."""
    where = path or "(document)"
    if isinstance(shape, Record):
        yield from _check_record(value, shape, path, where)
    elif isinstance(shape, MapOf):
        if not isinstance(value, dict):
            yield f"{where}: not an object"
            return
        for key, item in value.items():
            if not isinstance(key, str) or (shape.pattern and not re.fullmatch(shape.pattern, key)):
                yield f"{where}: not a valid key: {key!r}"
            else:
                yield from check(item, shape.value, f"{path}[{key}]")
    elif isinstance(shape, ListOf):
        yield from _check_list(value, shape, path, where)
    elif isinstance(shape, Text):
        yield from _check_text(value, shape, where)
    elif isinstance(shape, Number):
        if isinstance(value, bool) or not isinstance(value, int):
            yield f"{where}: not an integer: {value!r}"
        elif not shape.least <= value <= shape.most:
            yield f"{where}: not between {shape.least} and {shape.most}: {value}"
    elif not isinstance(value, bool):
        yield f"{where}: neither true nor false: {value!r}"


def _check_record(value: Any, shape: Record, path: str, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: not an object"
        return
    prefix = f"{path}." if path else ""
    for key, item in value.items():
        if key not in shape.fields:
            yield f"{prefix}{key}: unknown field"
        else:
            yield from check(item, shape.fields[key], f"{prefix}{key}")
    for key in shape.required:
        if key not in value:
            yield f"{prefix}{key}: missing"
    if shape.one_of:
        present = [key for key in shape.one_of if key in value]
        if len(present) != 1:
            yield f"{where}: exactly one of {', '.join(shape.one_of)} has to be there"


def _check_list(value: Any, shape: ListOf, path: str, where: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{where}: not a list"
        return
    if len(value) < shape.least:
        yield f"{where}: fewer than {shape.least} items"
    if shape.most and len(value) > shape.most:
        yield f"{where}: more than {shape.most} items"
    seen = set()
    for number, item in enumerate(value):
        yield from check(item, shape.item, f"{path}[{number}]")
        if shape.key and isinstance(item, dict):
            key = tuple(str(item.get(name)) for name in shape.key)
            if key in seen:
                yield f"{path}[{number}]: a second one with {', '.join(shape.key)} {', '.join(key)}"
            seen.add(key)


def _check_text(value: Any, shape: Text, where: str) -> Iterator[str]:
    if not isinstance(value, str):
        yield f"{where}: not a string: {value!r}"
    elif shape.choices and value not in shape.choices:
        yield f"{where}: {value!r} is none of {', '.join(shape.choices)}"
    elif shape.longest and len(value) > shape.longest:
        yield f"{where}: longer than {shape.longest} characters"
    elif shape.pattern and not re.fullmatch(shape.pattern, value, re.ASCII):
        yield f"{where}: not {shape.what}: {value!r}"
