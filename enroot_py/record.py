"""Immutable records for the start path: `typing.NamedTuple` without importing `typing`.

`typing` costs 4 ms and `dataclasses` 12 ms, which is more than a whole container start takes, and
`collections.namedtuple` still 2 ms. Modules on the start path write

    TYPE_CHECKING = False
    if TYPE_CHECKING:
        from typing import NamedTuple
    else:
        from enroot_py.record import NamedTuple

so that type checkers see the standard class. Such a module must have
`from __future__ import annotations`: the field annotations are then text and are never evaluated.
"""

from __future__ import annotations

from _collections import _tuplegetter  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_NOT_METHODS = ("__slots__", "__orig_bases__", "__classcell__", "__static_attributes__")


class _RecordType(type):
    """Turn a class body of annotated fields into a tuple class, as typing.NamedTuple does."""

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, object]) -> type:
        if not bases:
            return super().__new__(mcs, name, bases, body)
        annotations = _annotations(body)
        fields = tuple(annotations)
        defaults = {field: body.pop(field) for field in fields if field in body}
        if tuple(defaults) != fields[len(fields) - len(defaults) :]:
            raise TypeError(f"{name}: a field without a default follows one that has one")
        methods = {key: value for key, value in body.items() if key not in _NOT_METHODS}
        for key in methods:
            if key in _RECORD_METHODS:
                raise AttributeError(f"{name}: {key} is taken")
        getters = {
            field: _tuplegetter(index, f"Field {index}") for index, field in enumerate(fields)
        }
        namespace = {
            **_RECORD_METHODS,
            **getters,
            **methods,
            "__slots__": (),
            "__annotations__": annotations,
            "__match_args__": fields,
            "__new__": _constructor(fields, defaults),
            "_fields": fields,
            "_field_defaults": defaults,
        }
        return type(name, (tuple,), namespace)


def _annotations(body: dict[str, object]) -> dict[str, str]:
    """The annotations of a class body."""
    found = body.pop("__annotations__", {})
    assert isinstance(found, dict)
    return found


def _constructor(fields: tuple[str, ...], defaults: dict[str, object]) -> object:
    """Compile `__new__` with the fields as parameters: the only fast way to get the signature."""
    parameters = ", ".join(fields)
    source = f"lambda _class, {parameters}: _new(_class, ({parameters}{',' if fields else ''}))"
    new = eval(source, {"_new": tuple.__new__, "__builtins__": {}})
    new.__name__ = "__new__"
    new.__defaults__ = tuple(defaults.values())
    return new


def _make(cls: type, values: Iterable[object]) -> tuple[object, ...]:
    """Build a record from an iterable of all its values."""
    made: tuple[object, ...] = cls(*values)
    return made


def _replace(self: tuple[object, ...], **changes: object) -> tuple[object, ...]:
    """Return a copy with some fields changed."""
    fields: tuple[str, ...] = self._fields  # type: ignore[attr-defined]
    values = [changes.pop(field, value) for field, value in zip(fields, self)]  # noqa: B905
    if changes:
        raise ValueError(f"Got unexpected field names: {list(changes)!r}")
    return _make(type(self), values)


def _asdict(self: tuple[object, ...]) -> dict[str, object]:
    """Return the fields and their values, in order."""
    return dict(zip(self._fields, self))  # type: ignore[attr-defined]  # noqa: B905


def _repr(self: tuple[object, ...]) -> str:
    pairs = ", ".join(f"{field}={value!r}" for field, value in _asdict(self).items())
    return f"{type(self).__name__}({pairs})"


def _getnewargs(self: tuple[object, ...]) -> tuple[object, ...]:
    """The values as a plain tuple: what copy and pickle hand to `__new__`."""
    return tuple(self)


_RECORD_METHODS: dict[str, object] = {
    "_make": classmethod(_make),
    "_replace": _replace,
    "_asdict": _asdict,
    "__repr__": _repr,
    "__getnewargs__": _getnewargs,
}


class NamedTuple(metaclass=_RecordType):
    """Base of records; see the module's docstring. Fields with defaults come last."""
