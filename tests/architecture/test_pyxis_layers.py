"""The folders of pyxis_py import from those before them, and no others."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "pyxis_py"
PACKAGE = "pyxis_py."

MAY_IMPORT: dict[str, set[str]] = {
    "": set(),  # what stands beside the folders: flags, settings, facts
    "command_lines": {""},
    "protocol": {"", "command_lines"},
    "step": {"", "command_lines", "protocol"},
    "launchers": {"", "command_lines", "protocol", "step"},
    "plugin": {""},
    "kubernetes": {"", "command_lines"},
    "cli": {"", "command_lines", "launchers", "plugin", "kubernetes"},
}
PROGRAMS = {"keeper", "task_program", "join", "__init__"}
"""What other programs execute or import begins anywhere."""

LARGEST_FOLDER = 14


def folder_of(name: str) -> str:
    """The folder of a module such as "pyxis_py.step.plan"; "" for one beside the folders."""
    first = name.removeprefix(PACKAGE).partition(".")[0]
    return first if first in MAY_IMPORT else ""


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name for name in names if name.startswith(PACKAGE)}


def test_every_folder_has_a_place() -> None:
    folders = {path.parent.relative_to(FOLDER).parts[0] for path in FOLDER.glob("*/**/*.py")}
    assert folders == set(MAY_IMPORT) - {""}


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_point_back(folder: str) -> None:
    paths = (FOLDER / folder).rglob("*.py") if folder else FOLDER.glob("*.py")
    for path in paths:
        if not folder and path.stem in PROGRAMS:
            continue
        for name in imported(path):
            used = folder_of(name)
            assert used == folder or used in MAY_IMPORT[folder], f"{path.name} imports {name}"


def test_folders_stay_small() -> None:
    for folder in set(MAY_IMPORT) - {"kubernetes"}:
        modules = [path.name for path in (FOLDER / folder).glob("*.py")]
        assert len(modules) <= LARGEST_FOLDER + 1, folder  # __init__.py does not count
