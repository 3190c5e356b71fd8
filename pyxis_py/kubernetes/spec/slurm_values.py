"""The values that sbatch's options take: times, sizes, counts, signals, GPUs.

Pure. Source: sbatch(1) of Slurm 22.05; src/common/parse_time.c, src/common/slurm_opt.c.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from enroot_py import UsageError

LARGEST_COUNT = 1_000_000
"""More nodes, tasks or CPUs than any cluster has: a typing error."""

_TIME = re.compile(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?\Z", re.ASCII)
_SIZE = re.compile(r"(\d{1,15})([KMGTP]?)B?\Z", re.ASCII | re.IGNORECASE)
_TO_MIB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_COUNT = re.compile(r"(\d{1,12})([KkMm]?)\Z", re.ASCII)
_SIGNALS = {
    1: "HUP", 2: "INT", 3: "QUIT", 9: "KILL", 10: "USR1", 12: "USR2", 13: "PIPE", 14: "ALRM",
    15: "TERM", 18: "CONT", 19: "STOP", 20: "TSTP", 21: "TTIN", 22: "TTOU", 23: "URG", 6: "ABRT",
    24: "XCPU", 25: "XFSZ",
}  # fmt: skip
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Signal:
    """`--signal`: what to send, how many seconds before the limit, and to whom.

    Attributes:
        name: without "SIG".
        seconds: lead time.
        batch_only: to the batch script alone (`B:`).
    """

    name: str
    seconds: int
    batch_only: bool = False


@dataclass(frozen=True, slots=True)
class Gres:
    """One generic resource: `gpu:h100:8`; `type` may be "". `count` is for each node."""

    name: str
    type: str
    count: int


@dataclass(frozen=True, slots=True)
class Switches:
    """`--switches=COUNT[@TIME]`; `wait` is in seconds, None for ever."""

    count: int
    wait: int | None


def check_text(text: str) -> str:
    """Return a text that a manifest can have: without control characters, and UTF-8.

    Raises:
        UsageError: if it is none.
    """
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise UsageError(f"a control character in {text!r}")
    if not is_utf8(text):
        raise UsageError(f"not UTF-8: {text!r}")
    return text


def is_utf8(text: str) -> bool:
    """Whether a text from the command line or the environment came from UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def parse_time(text: str) -> int | None:
    """Return a time limit in seconds, rounded up to minutes as Slurm does; None for no limit.

    Formats: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S, and 0, UNLIMITED, INFINITE.

    Raises:
        UsageError: for anything else.
    """
    if text.upper() in ("UNLIMITED", "INFINITE", "-1"):
        return None
    match = _TIME.match(text)
    if match is None:
        raise UsageError(f"not a time limit: {text!r}", hint="M, H:M:S, D-H, D-H:M or D-H:M:S")
    days, first, second, third = (int(part or 0) for part in match.groups())
    if match[1] is not None:
        seconds = days * 86400 + first * 3600 + second * 60 + third
    elif match[4] is not None:
        seconds = first * 3600 + second * 60 + third
    else:
        seconds = first * 60 + second
    if seconds > 366 * 86400 * 10:
        raise UsageError(f"more than ten years: {text!r}")
    return -(-seconds // 60) * 60 or None


def parse_size(text: str) -> int:
    """Return an amount of memory in MiB, rounded up; without a suffix it is MiB already.

    Raises:
        UsageError: if it is none.
    """
    match = _SIZE.match(text)
    if match is None:
        raise UsageError(f"not an amount of memory: {text!r}", hint="a number with K, M, G or T")
    mib = int(match[1]) * _TO_MIB[match[2].upper()]
    if mib > 2**40:
        raise UsageError(f"more memory than there is: {text!r}")
    return -int(-mib // 1)


def parse_count(text: str, *, least: int = 1) -> int:
    """Return a count; `K` and `M` stand for 1024 and 1024².

    Raises:
        UsageError: if it is none, or too small or too large.
    """
    match = _COUNT.match(text)
    if match is None:
        raise UsageError(f"not a count: {text!r}")
    value = int(match[1]) * {"": 1, "k": 1024, "m": 1024**2}[match[2].lower()]
    if not least <= value <= LARGEST_COUNT:
        raise UsageError(f"out of range: {text!r}", hint=f"{least} to {LARGEST_COUNT}")
    return value


def parse_nodes(text: str) -> tuple[int, int]:
    """Return the least and the largest number of nodes of `N` or `MIN-MAX`.

    Raises:
        UsageError: if it is neither.
    """
    low, dash, high = text.partition("-")
    least = parse_count(low)
    most = parse_count(high) if dash else least
    if most < least:
        raise UsageError(f"the maximum is below the minimum: {text!r}")
    return least, most


def parse_gres(text: str) -> tuple[Gres, ...]:
    """Return the resources of `--gres`: `NAME[:TYPE][:COUNT],…`, or none for `none`.

    Raises:
        UsageError: naming the item that is malformed.
    """
    if text.lower() == "none":
        return ()
    found = []
    for item in text.split(","):
        parts = item.removeprefix("gres/").removeprefix("gres:").split(":")
        if len(parts) > 1 and parts[-1][:1].isdigit() and _COUNT.match(parts[-1]):
            count = parse_count(parts.pop(), least=0)
        else:
            count = 1
        if len(parts) > 2 or not all(_TYPE.match(part) for part in parts):
            raise UsageError(f"not a generic resource: {item!r}", hint="NAME[:TYPE][:COUNT]")
        found.append(Gres(parts[0], parts[1] if len(parts) == 2 else "", count))
    return tuple(found)


def parse_gpus(text: str) -> tuple[Gres, ...]:
    """Return the GPUs of `--gpus*`: `[TYPE:]COUNT,…`.

    Raises:
        UsageError: naming the item that is malformed.
    """
    found = []
    for item in text.split(","):
        kind, colon, count = item.rpartition(":")
        if colon and not _TYPE.match(kind):
            raise UsageError(f"not a GPU request: {item!r}", hint="[TYPE:]COUNT")
        found.append(Gres("gpu", kind, parse_count(count, least=0)))
    return tuple(found)


def parse_signal(text: str) -> Signal:
    """Return the signal of `[R][B][:]SIG[@SECONDS]`, 60 seconds ahead by default.

    Raises:
        UsageError: if the signal or the time is none.
    """
    flags, colon, rest = text.partition(":")
    if not colon:
        flags, rest = "", text
    if not set(flags.upper()) <= {"R", "B"}:
        raise UsageError(f"neither R nor B before the colon: {text!r}")
    name, at, lead = rest.partition("@")
    name = name.upper().removeprefix("SIG")
    if name.isdecimal() and name.isascii() and len(name) < 4:
        name = _SIGNALS.get(int(name), "")
    if name not in _SIGNALS.values():
        raise UsageError(f"not a signal: {text!r}", hint="for example USR1@600 or B:TERM@120")
    if at and (not lead.isdecimal() or not lead.isascii() or len(lead) > 5 or int(lead) > 65535):
        raise UsageError(f"not a lead time in seconds: {text!r}", hint="0 to 65535")
    return Signal(name, int(lead) if at else 60, "B" in flags.upper())


def parse_switches(text: str) -> Switches:
    """Return the switches of `COUNT[@TIME]`.

    Raises:
        UsageError: if count or time is malformed.
    """
    count, at, wait = text.partition("@")
    return Switches(parse_count(count), parse_time(wait) if at else None)
