"""Immutable records for the start path: `typing.NamedTuple` without importing `typing`.

`typing` costs 4 ms and `dataclasses` 12 ms, which is more than a whole container start takes.
Modules on the start path write

    TYPE_CHECKING = False
    if TYPE_CHECKING:
        from typing import NamedTuple
    else:
        from enroot_py.record import NamedTuple

so that type checkers see the standard class. Such a module must have
`from __future__ import annotations`: the field annotations are then text and are never evaluated.
"""

from __future__ import annotations

from collections import namedtuple


class _RecordType(type):
    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, object]) -> type:
        if not bases:
            return super().__new__(mcs, name, bases, namespace)
        fields = namespace.pop("__annotations__", {})
        assert isinstance(fields, dict)
        defaults = [namespace.pop(field) for field in fields if field in namespace]
        record = namedtuple(name, list(fields), defaults=defaults)  # type: ignore[misc]
        for key, value in namespace.items():
            if key not in ("__slots__", "__orig_bases__"):
                setattr(record, key, value)
        record.__annotations__ = fields
        return record


class NamedTuple(metaclass=_RecordType):
    """Base of records; see the module's docstring. Fields with defaults come last."""
