"""docs/compatibility.md names tests that exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
REFERENCE = re.compile(r"(?P<path>tests/[\w/]+\.py)?::(?P<name>\w+)")


def rows() -> list[list[str]]:
    """The cells of every row, without headings and rules."""
    found = []
    for line in TABLE.splitlines():
        cells = re.split(r"(?<!\\)\|", line.strip())[1:-1]
        if len(cells) >= 4 and not set(cells[0]) <= set("- ") and cells[0].strip() != "behaviour":
            found.append([cell.strip() for cell in cells])
    return found


@functools.cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    named = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, named)}


def test_there_are_rows() -> None:
    assert len(rows()) > 100


@pytest.mark.parametrize("cells", rows(), ids=lambda cells: str(cells[0])[:60])
def test_the_tests_of_a_row_exist(cells: list[str]) -> None:
    path = ""
    references = list(REFERENCE.finditer(cells[2]))
    for reference in references:
        path = reference["path"] or path
        assert path, cells[2]
        assert reference["name"] in functions(path), f"{path} has no {reference['name']}"
    assert references or "tests/" in cells[2] or "different" in cells[3], cells
