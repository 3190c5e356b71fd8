"""Refusals and their codes, and what docs/kubernetes.md says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyxis_py.command_lines.slurm_options import GivenOption
from pyxis_py.kubernetes.spec.notes import ALLOWABLE, REFUSALS, Ledger, RefusedError

PAGE = Path(__file__).resolve().parents[3] / "docs" / "kubernetes.md"


def test_the_page_lists_every_code_with_its_way_out() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:3] == "| `"]
    listed = {}
    for row in rows:
        first, _, rest = row.strip("| ").partition(" | ")
        code, _, mark = first.partition("` ")
        listed[code.strip("`")] = (mark == "*", rest.replace("\\|", "|"))
    for code, way_out in REFUSALS.items():
        assert listed[code] == (code in ALLOWABLE, way_out)


def test_what_may_be_allowed_are_refusals() -> None:
    assert set(REFUSALS) >= ALLOWABLE


def test_notes_know_the_line_of_their_option() -> None:
    ledger = Ledger([GivenOption("mem", "0", (), 7)])
    ledger.refuse("mem-zero", "--mem", "why")
    ledger.warn("x", "--nodes", "other")
    assert [note.line for note in ledger.notes] == [7, 0]
    with pytest.raises(RefusedError) as caught:
        ledger.close()
    assert str(caught.value).splitlines()[1] == "line 7: --mem: why [mem-zero]"
    assert caught.value.exit_code == 2


def test_the_same_note_is_kept_once() -> None:
    ledger = Ledger()
    for _ in range(2):
        ledger.render("--nodes", "4 pods")
    assert len(ledger.notes) == 1
    ledger.close()


def test_only_what_may_be_allowed_is() -> None:
    ledger = Ledger(allow=["licenses", "image-none"])
    ledger.refuse("licenses", "--licenses", "x")
    ledger.refuse("image-none", "--container-image", "x")
    assert [note.kind for note in ledger.notes] == ["warning", "refused"]
