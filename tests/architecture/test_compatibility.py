"""docs/compatibility.md and docs/reports.md name tests that exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OUTCOMES = ("works", "different", "not yet")
REFERENCE = re.compile(r"(?P<path>tests/[\w/]+\.py)?::(?P<name>\w+)")


def read(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def rows(name: str, heading: str) -> list[list[str]]:
    """The cells of every row of a page's tables, without headings and rules."""
    found = []
    for line in read(name).splitlines():
        cells = re.split(r"(?<!\\)\|", line.strip())[1:-1]
        if len(cells) >= 4 and not set(cells[0]) <= set("- ") and cells[0].strip() != heading:
            found.append([cell.strip() for cell in cells])
    return found


BEHAVIOURS = rows("compatibility.md", "behaviour")
REPORTS = rows("reports.md", "reported")


@functools.cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    named = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, named)}


def missing(text: str) -> list[str]:
    """The references of a cell that name no test; a name alone is of the file named before it."""
    path, found = "", []
    for reference in REFERENCE.finditer(text):
        path = reference["path"] or path
        if not path or reference["name"] not in functions(path):
            found.append(f"{path}::{reference['name']}")
    return found


def test_there_are_rows() -> None:
    assert len(BEHAVIOURS) > 100
    assert len(REPORTS) > 150


@pytest.mark.parametrize("cells", BEHAVIOURS, ids=lambda cells: str(cells[0])[:60])
def test_the_tests_of_a_row_exist(cells: list[str]) -> None:
    assert missing(cells[2]) == []
    assert REFERENCE.search(cells[2]) or "tests/" in cells[2] or "different" in cells[3], cells


@pytest.mark.parametrize("cells", REPORTS, ids=lambda cells: str(cells[0])[:60])
def test_the_tests_of_a_report_exist(cells: list[str]) -> None:
    reported, where, outcome, tests = cells
    assert reported
    assert "](https://github.com/" in where
    assert outcome in OUTCOMES
    assert missing(tests) == []
    # A test, or a sentence that says why there is none.
    assert REFERENCE.search(tests) or len(tests.split()) > 3


def test_the_summary_of_the_reports_counts_them() -> None:
    counted = re.search(r"(\d+) rows work, (\d+) are different, (\d+) are", read("reports.md"))
    assert counted
    outcomes = [cells[2] for cells in REPORTS]
    assert [int(number) for number in counted.groups()] == [outcomes.count(o) for o in OUTCOMES]
