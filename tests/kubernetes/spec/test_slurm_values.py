"""Times, sizes, counts, signals and GPUs as sbatch takes them."""

from __future__ import annotations

import pytest

from enroot_py import UsageError
from pyxis_py.kubernetes.spec.slurm_values import (
    Gres,
    Signal,
    Switches,
    parse_count,
    parse_gpus,
    parse_gres,
    parse_nodes,
    parse_signal,
    parse_size,
    parse_switches,
    parse_time,
)


@pytest.mark.parametrize(("text", "seconds"), [
    ("30", 1800), ("1:30", 120), ("0:01", 60), ("1:00:00", 3600), ("1:00:01", 3660),
    ("2-0", 172800), ("2-12", 216000), ("2-12:30", 217800), ("2-12:30:15", 217860), ("0", None),
    ("UNLIMITED", None), ("infinite", None), ("-1", None), ("0:0", None), ("90:00", 5400),
    ("3-00:00:00", 259200),
])  # fmt: skip
def test_time_limits_are_rounded_up_to_minutes(text: str, seconds: int | None) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "x", "1:2:3:4", "1-", "-5", "1.5", "1h", " 1", "١", "9999999-0", "1-2-3", "1\n"]
)
def test_malformed_time_limits_are_errors(text: str) -> None:
    with pytest.raises(UsageError):
        parse_time(text)


@pytest.mark.parametrize(("text", "mib"), [
    ("512", 512), ("512M", 512), ("1800G", 1843200), ("1T", 1048576), ("1024K", 1), ("1K", 1),
    ("4gb", 4096), ("0", 0),
])  # fmt: skip
def test_sizes_are_powers_of_two(text: str, mib: int) -> None:
    assert parse_size(text) == mib


@pytest.mark.parametrize("text", ["", "x", "-1", "1X", "1.5G", "9" * 16, "99999P", "1GiB"])
def test_malformed_sizes_are_errors(text: str) -> None:
    with pytest.raises(UsageError):
        parse_size(text)


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("2k", 2048), ("64", 64)])
def test_counts(text: str, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize("text", ["0", "-1", "1.0", "", "2m", "1000001", "1e3"])
def test_malformed_counts_are_errors(text: str) -> None:
    with pytest.raises(UsageError):
        parse_count(text)


@pytest.mark.parametrize(("text", "nodes"), [("4", (4, 4)), ("2-4", (2, 4))])
def test_nodes(text: str, nodes: tuple[int, int]) -> None:
    assert parse_nodes(text) == nodes


@pytest.mark.parametrize("text", ["4-2", "0", "-4", "4-", "a"])
def test_malformed_nodes_are_errors(text: str) -> None:
    with pytest.raises(UsageError):
        parse_nodes(text)


@pytest.mark.parametrize(("text", "found"), [
    ("gpu", (Gres("gpu", "", 1),)), ("gpu:8", (Gres("gpu", "", 8),)),
    ("gpu:h100:8", (Gres("gpu", "h100", 8),)), ("gpu:1g.10gb:2", (Gres("gpu", "1g.10gb", 2),)),
    ("gpu:1g.10gb", (Gres("gpu", "1g.10gb", 1),)), ("none", ()),
    ("gres/gpu:2,nic:1", (Gres("gpu", "", 2), Gres("nic", "", 1))),
    ("gpu:0", (Gres("gpu", "", 0),)),
    ("bw:1K", (Gres("bw", "", 1024),)),
])  # fmt: skip
def test_generic_resources(text: str, found: tuple[Gres, ...]) -> None:
    assert parse_gres(text) == found


@pytest.mark.parametrize("text", ["", ":", "gpu:", "a:b:c:1", "gpu:'x':1", "gpu,,nic", "gpu:h 1:2"])
def test_malformed_generic_resources_are_errors(text: str) -> None:
    with pytest.raises(UsageError):
        parse_gres(text)


def test_gpus() -> None:
    assert parse_gpus("8") == (Gres("gpu", "", 8),)
    assert parse_gpus("h100:4,a100:2") == (Gres("gpu", "h100", 4), Gres("gpu", "a100", 2))
    for text in ("", "x", "h100:", "h'100:1", ":1"):
        with pytest.raises(UsageError):
            parse_gpus(text)


@pytest.mark.parametrize(("text", "signal"), [
    ("USR1@600", Signal("USR1", 600)), ("B:TERM@120", Signal("TERM", 120, True)),
    ("SIGINT", Signal("INT", 60)), ("10@5", Signal("USR1", 5)), ("R:12", Signal("USR2", 60)),
    ("RB:hup@1", Signal("HUP", 1, True)), ("USR1@0", Signal("USR1", 0)),
])  # fmt: skip
def test_signals(text: str, signal: Signal) -> None:
    assert parse_signal(text) == signal


@pytest.mark.parametrize(
    "text", ["", "X:USR1", "NOPE", "99", "USR1@", "USR1@x", "USR1@99999", "USR1@-1", ":", "²"]
)
def test_malformed_signals_are_errors(text: str) -> None:
    with pytest.raises(UsageError):
        parse_signal(text)


def test_switches() -> None:
    assert parse_switches("1") == Switches(1, None)
    assert parse_switches("1@1:00:00") == Switches(1, 3600)
    for text in ("", "0", "1@x", "x"):
        with pytest.raises(UsageError):
            parse_switches(text)
