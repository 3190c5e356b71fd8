"""The flag table, and what is generated from it."""

from __future__ import annotations

from pathlib import Path

from pyxis_py.args import Arguments
from pyxis_py.options import OPTIONS, emit_c, find_option

ROOT = Path(__file__).resolve().parents[2]


def test_names_and_variables_are_unique() -> None:
    names = [option.name for option in OPTIONS]
    assert len(set(names)) == len(names)
    variables = [option.env for option in OPTIONS if option.env]
    assert len(set(variables)) == len(variables)


def test_every_flag_fills_a_field_of_the_arguments() -> None:
    assert {option.field for option in OPTIONS} == set(Arguments._fields) - {"name_mode"}


def test_flags_without_argument_have_a_meaning_and_those_with_one_have_none() -> None:
    for option in OPTIONS:
        assert bool(option.value) != option.takes_argument, option.name


def test_find_option() -> None:
    found = find_option("container-image")
    assert found is not None
    assert found.env == "PYXIS_CONTAINER_IMAGE"
    assert find_option("container-imag") is None


def test_c_table_is_current() -> None:
    text = (ROOT / "spank_shim" / "options_table.h").read_text(encoding="utf-8")
    assert text == emit_c(), "run `make options` and commit the result"
