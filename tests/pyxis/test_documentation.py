"""The pages about steps name every flag, variable, setting and key there is."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from pyxis_py.environment_file import KEYS, KINDS, load_environment
from pyxis_py.options import OPTIONS
from pyxis_py.plugin_config import PluginConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "slurm.md").read_text(encoding="utf-8")
FILES = (DOCS / "environment-files.md").read_text(encoding="utf-8")


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the table whose first column has a heading, and of all of that form."""
    tables = re.findall(rf"^\| {heading} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for table in tables[:1]
        for line in table.splitlines()
    ]


def test_every_flag_and_its_variable() -> None:
    for option in OPTIONS:
        assert f"`--{option.name}`" in TEXT
        assert option.env in TEXT


def test_every_setting() -> None:
    for name in PluginConfig._fields:
        assert f"`{name}=`" in TEXT


def test_every_key_of_an_environment_file_and_its_type() -> None:
    documented = {cells[0].strip("`"): cells[1] for cells in rows(FILES, "key")}
    assert documented == {
        key: " or ".join(KINDS[kind] for kind in kinds) for key, kinds in KEYS.items()
    }


def test_the_examples_of_keys_are_taken(tmp_path: Path) -> None:
    for name in ("common", "gpu"):
        (tmp_path / f"{name}.toml").write_text("")
    for quoted, _, _, example in rows(FILES, "key"):
        key, text = quoted.strip("`"), example.strip("`")
        line = text if text.startswith("[") and KEYS[key] == (dict,) else f"{key} = {text}"
        (tmp_path / "row.toml").write_text(f"{line}\n")
        environ = {"EDF_PATH": str(tmp_path), "SCRATCH": "/scratch"}
        load_environment("row", environ, cwd="/")


def test_the_example_of_a_whole_file_has_every_key(tmp_path: Path) -> None:
    block = re.search(r"```toml\n(.*?)```", FILES, re.DOTALL)
    assert block
    assert tomllib.loads(block[1]).keys() == KEYS.keys()
    (tmp_path / "common.toml").write_text("")
    (tmp_path / "whole.toml").write_text(block[1])
    environ = {"EDF_PATH": str(tmp_path), "SCRATCH": "/scratch"}
    environment = load_environment("whole", environ, cwd="/")
    assert environment.mounts[1] == "/scratch/data.sqsh:/data:sqsh"
    assert environment.annotations == {"com.hooks.aws_ofi_nccl.enabled": "true"}


@pytest.mark.parametrize("page", ["slurm.md", "../README.md"])
def test_the_page_on_environment_files_is_linked(page: str) -> None:
    assert "environment-files.md)" in (DOCS / page).read_text(encoding="utf-8")
