"""Records: what typing.NamedTuple promises, kept without loading typing."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import NamedTuple as StandardNamedTuple

import pytest

from enroot_py.record import NamedTuple


class Point(NamedTuple):
    """A point."""

    x: int
    y: int = 2
    name: str = "p"

    @property
    def sum(self) -> int:
        return self.x + self.y

    def shifted(self, by: int) -> Point:
        return self._replace(x=self.x + by)


class Standard(StandardNamedTuple):
    x: int
    y: int = 2
    name: str = "p"


class Empty(NamedTuple):
    """No fields."""


@pytest.mark.parametrize(
    "arguments, options",
    [((1,), {}), ((1, 3), {}), ((1, 3, "q"), {}), ((1,), {"name": "q"}), ((), {"x": 1, "y": 5})],
)
def test_a_record_is_built_as_the_standard_one(
    arguments: tuple[object, ...], options: dict[str, object]
) -> None:
    ours, theirs = Point(*arguments, **options), Standard(*arguments, **options)  # type: ignore[arg-type]
    assert tuple(ours) == tuple(theirs)
    assert ours._asdict() == theirs._asdict()
    assert repr(ours).removeprefix("Point") == repr(theirs).removeprefix("Standard")


@pytest.mark.parametrize("arguments", [(), (1, 2, "a", "b")])
def test_wrong_arguments_are_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises(TypeError):
        Point(*arguments)  # type: ignore[arg-type]


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError):
        Point(1, z=3)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="z"):
        Point(1)._replace(z=3)


def test_fields_cannot_be_changed() -> None:
    point = Point(1)
    with pytest.raises(AttributeError):
        point.x = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        point.other = 3  # type: ignore[attr-defined]


def test_methods_and_docstring_survive() -> None:
    assert Point(1).sum == 3
    assert Point(1).shifted(4) == Point(5)
    assert Point.__doc__ == "A point."
    assert Point.__module__ == __name__
    assert Point._fields == ("x", "y", "name")
    assert Point._field_defaults == {"y": 2, "name": "p"}
    assert Point.__match_args__ == ("x", "y", "name")


def test_a_record_is_a_tuple() -> None:
    assert isinstance(Point(1), tuple)
    assert Point(1) == (1, 2, "p")
    assert hash(Point(1)) == hash((1, 2, "p"))
    assert Point(1) < Point(2)
    assert Point._make([1, 3, "q"]) == Point(1, 3, "q")
    assert Empty() == ()


def test_a_record_is_copied_and_pickled() -> None:
    for other in (
        copy.copy(Point(7)),
        copy.deepcopy(Point(7)),
        pickle.loads(pickle.dumps(Point(7))),  # noqa: S301 - its own bytes
    ):
        assert type(other) is Point
        assert other == Point(7)


def test_patterns_match_by_position() -> None:
    match Point(4, 5):
        case Point(x, y, _):
            assert (x, y) == (4, 5)
        case _:
            pytest.fail("no match")


def test_a_default_before_a_field_without_one_is_refused() -> None:
    body = {"__annotations__": {"a": "int", "b": "int"}, "a": 1}
    with pytest.raises(TypeError, match="default"):
        type(NamedTuple)("Wrong", (NamedTuple,), body)


def test_a_field_cannot_shadow_what_records_have() -> None:
    body = {"__annotations__": {"a": "int"}, "_replace": lambda self: self}
    with pytest.raises(AttributeError, match="_replace"):
        type(NamedTuple)("Wrong", (NamedTuple,), body)


def test_records_load_neither_typing_nor_collections() -> None:
    script = (
        "import sys; before = set(sys.modules)\n"
        "import enroot_py.record\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"typing", "collections", "dataclasses", "re", "enum", "functools"}
