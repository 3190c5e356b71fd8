"""The two dialects in which programs of MPI libraries talk to what started them: PMI-1 and PMI-2.

Both begin alike; PMI-2 puts a length in front of each message, semicolons between its words, and
two where one is meant.

Pure. Source: MPICH, "PMI wire protocol"; Slurm 22.05, src/plugins/mpi/pmi2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LONGEST_MESSAGE = 64 * 1024
"""Bytes; values have at most 1024."""

_LENGTH = 6


class PmiError(Exception):
    """A message that is neither of the dialects."""


def take_messages(data: bytearray, version: int) -> list[dict[str, str]]:
    """Take complete messages off the front of `data`.

    Raises:
        PmiError: if what is there is no message.
    """
    found: list[dict[str, str]] = []
    while True:
        text = _take_sized(data) if version == 2 else _take_line(data)
        if text is None:
            return found
        found.append(_parse(text, ";" if version == 2 else " "))
        if found[-1].get("cmd") == "init":
            # The dialect may change with it.
            return found


def _take_line(data: bytearray) -> str | None:
    end = data.find(b"\n")
    if end < 0:
        if len(data) > LONGEST_MESSAGE:
            raise PmiError("a line without an end")
        return None
    line = bytes(data[:end])
    del data[: end + 1]
    return line.decode("utf-8", "surrogateescape")


def _take_sized(data: bytearray) -> str | None:
    if len(data) < _LENGTH:
        return None
    try:
        size = int(data[:_LENGTH])
    except ValueError as error:
        raise PmiError("a message without its length") from error
    if not 0 <= size <= LONGEST_MESSAGE:
        raise PmiError(f"a message of {size} bytes")
    if len(data) < _LENGTH + size:
        return None
    text = bytes(data[_LENGTH : _LENGTH + size])
    del data[: _LENGTH + size]
    return text.decode("utf-8", "surrogateescape")


def _parse(text: str, separator: str) -> dict[str, str]:
    words: dict[str, str] = {}
    for part in text.strip().replace(";;", "\0").split(separator):
        name, equals, value = part.partition("=")
        if equals:
            words[name] = value.replace("\0", ";")
    if "cmd" not in words and "mcmd" not in words:
        raise PmiError("a message without a command")
    return words


def format_message(words: Mapping[str, str], version: int) -> bytes:
    """Return a message as bytes."""
    if version == 1:
        return " ".join(f"{name}={value}" for name, value in words.items()).encode(
            "utf-8", "surrogateescape"
        ) + b"\n"  # fmt: skip
    text = "".join(f"{name}={value.replace(';', ';;')};" for name, value in words.items())
    data = text.encode("utf-8", "surrogateescape")
    return b"%6d" % len(data) + data


def process_mapping(places: Sequence[int]) -> str:
    """Return where ranks are, as MPICH reads it: `(vector,(first node,nodes,ranks of each),…)`.

    Args:
        places: the number of the node of each rank.
    """
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and runs[-1][0] == place:
            runs[-1] = place, runs[-1][1] + 1
        else:
            runs.append((place, 1))
    blocks: list[tuple[int, int, int]] = []
    for place, count in runs:
        if blocks and place == blocks[-1][0] + blocks[-1][1] and count == blocks[-1][2]:
            first, nodes, _ = blocks[-1]
            blocks[-1] = first, nodes + 1, count
        else:
            blocks.append((place, 1, count))
    return "(vector," + ",".join("({},{},{})".format(*block) for block in blocks) + ")"
