"""The built-in tables and the files that this package ships say the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from enroot_py.plan import system_mounts
from enroot_py.plan.environ import parse_environ
from enroot_py.plan.fstab import Mount, parse_fstab

SHARE = Path(__file__).resolve().parents[2] / "share/enroot"
OPTIONAL = {"nofail", "silent"}


def comparable(text: str) -> list[Mount]:
    """Entries without what only makes a missing file bearable."""
    mounts = parse_fstab(text, {}, "x")
    return [
        mount._replace(options=tuple(word for word in mount.options if word not in OPTIONAL))
        for mount in mounts
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (system_mounts.SYSTEM_FSTAB, "10-system.fstab"),
        (system_mounts.CONFIG_FSTAB, "20-config.fstab"),
    ],
)
def test_the_shipped_fstab_is_the_built_in_one(text: str, name: str) -> None:
    assert comparable(text) == comparable((SHARE / "mounts.d" / name).read_text())


def test_the_shipped_variables_are_the_built_in_ones() -> None:
    text = (SHARE / "environ.d/10-terminal.env").read_text()
    host = {"TERM": "xterm"}
    assert parse_environ(system_mounts.ENVIRONMENT, host) == parse_environ(text, host)


@pytest.mark.parametrize(
    "text",
    [
        system_mounts.SYSTEM_FSTAB,
        system_mounts.CONFIG_FSTAB,
        system_mounts.PID_FSTAB,
        system_mounts.NET_FSTAB,
    ],
)
def test_system_mounts_come_before_the_hooks(text: str) -> None:
    assert {mount.passno for mount in parse_fstab(text, {}, "x")} == {-1}
