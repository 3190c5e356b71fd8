"""docs/slurm.md names every flag, variable and setting there is."""

from __future__ import annotations

from pathlib import Path

from pyxis_py.options import OPTIONS
from pyxis_py.plugin_config import PluginConfig

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "slurm.md").read_text(encoding="utf-8")


def test_every_flag_and_its_variable() -> None:
    for option in OPTIONS:
        assert f"`--{option.name}`" in TEXT
        assert option.env in TEXT


def test_every_setting() -> None:
    for name in PluginConfig._fields:
        assert f"`{name}=`" in TEXT
