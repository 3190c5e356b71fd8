"""The form in which the plugin's C and its Python talk: `KEY=VALUE` records that end in NUL. Pure.

spank_shim/README.md has the keys. Text that is not UTF-8 travels as lone surrogates.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple

    from pyxis_py.protocol.task_environ import EnvironEdits
else:
    from enroot_py import NamedTuple

VERSION = "2"
"""What both sides speak; spank_shim/records.h has it too."""

_END = b"end=\0"


class Records:
    """Records by key: what a request or an answer says."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._values: dict[str, list[str]] = {}
        for key, value in pairs:
            self._values.setdefault(key, []).append(value)

    def all(self, key: str) -> list[str]:
        """Return every value of a key, in order."""
        return self._values.get(key, [])

    def first(self, key: str, default: str = "") -> str:
        """Return the first value of a key."""
        return self._values.get(key, (default,))[0]

    def number(self, key: str, default: int = 0) -> int:
        """Return the first value of a key as a number.

        Raises:
            ValueError: if it is none.
        """
        return int(self.first(key, str(default)))

    def mapping(self, key: str) -> dict[str, str]:
        """Return the `NAME=VALUE` values of a key; those without an equals sign are left out."""
        found = {}
        for text in self.all(key):
            name, equals, value = text.partition("=")
            if equals:
                found[name] = value
        return found


class Answer(NamedTuple):
    """What `start` answers, for doors that are written in Python.

    Attributes:
        status: "ok", "none" or "error".
        errors, logs, infos: lines for the user and for the daemon's log.
        pid: whose namespaces are to be joined; 0 without a container.
        join: names of its namespaces, in order.
        cwd: folder to change to after joining; a relative one counts from the root.
        edits: what becomes of a task's environment.
        seccomp: whether tasks are to be filtered.
        state: opaque, for `finish`; "" if there is nothing to finish.
    """

    status: str
    errors: tuple[str, ...]
    logs: tuple[str, ...]
    infos: tuple[str, ...]
    pid: int = 0
    join: tuple[str, ...] = ()
    cwd: str = ""
    edits: EnvironEdits | None = None
    seccomp: bool = False
    state: str = ""


def encode_records(pairs: Iterable[tuple[str, str]], *, end: bool = False) -> bytes:
    """Return records as bytes; with `end` as a complete answer."""
    data = b"".join(f"{key}={value}\0".encode("utf-8", "surrogateescape") for key, value in pairs)
    return data + _END if end else data


def decode_records(data: bytes) -> Records:
    """Read records.

    Raises:
        ValueError: if the last one is not ended, or one has no key.
    """
    if data and not data.endswith(b"\0"):
        raise ValueError("the last record is cut off")
    pairs = []
    for item in data.split(b"\0")[:-1]:
        key, equals, value = item.decode("utf-8", "surrogateescape").partition("=")
        if not equals:
            raise ValueError(f"no key in {key[:60]!r}")
        pairs.append((key, value))
    return Records(pairs)


def is_complete(data: bytes) -> bool:
    """Tell whether an answer was written to its end."""
    return data == _END or data.endswith(b"\0" + _END)


def encode_answer(answer: Answer) -> bytes:
    """Return an answer as records."""
    pairs = [("status", answer.status)]
    for key, lines in (("error", answer.errors), ("log", answer.logs), ("info", answer.infos)):
        pairs += [(key, line) for line in lines]
    if answer.pid:
        pairs.append(("pid", str(answer.pid)))
    pairs += [("join", name) for name in answer.join]
    if answer.edits is not None:
        edits = answer.edits
        pairs += [("unset", name) for name in edits.unset]
        pairs += [("env", f"{name}={value}") for name, value in edits.env]
        pairs += [("default", f"{name}={value}") for name, value in edits.default]
        pairs += [("copy", f"{name}={value}") for name, value in edits.copy]
    for key, value in (
        ("cwd", answer.cwd),
        ("seccomp", "1" if answer.seccomp else ""),
        ("state", answer.state),
        ("finish", "1" if answer.state else ""),
    ):
        if value:
            pairs.append((key, value))
    return encode_records(pairs, end=True)


def decode_answer(data: bytes) -> Answer:
    """Read an answer.

    Raises:
        ValueError: if it is incomplete or no answer at all.
    """
    from pyxis_py.protocol.task_environ import EnvironEdits

    if not is_complete(data):
        raise ValueError("the answer is incomplete")
    records = decode_records(data)
    return Answer(
        status=records.first("status"),
        errors=tuple(records.all("error")),
        logs=tuple(records.all("log")),
        infos=tuple(records.all("info")),
        pid=records.number("pid"),
        join=tuple(records.all("join")),
        cwd=records.first("cwd"),
        edits=EnvironEdits(
            tuple(records.all("unset")),
            tuple(records.mapping("env").items()),
            tuple(records.mapping("default").items()),
            tuple(records.mapping("copy").items()),
        ),
        seccomp=records.first("seccomp") == "1",
        state=records.first("state"),
    )
