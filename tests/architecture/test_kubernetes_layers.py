"""The folders of pyxis_py/kubernetes import from those before them, and no others."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "pyxis_py" / "kubernetes"
PACKAGE = "pyxis_py.kubernetes."

MAY_IMPORT: dict[str, set[str]] = {
    "spec": set(),
    "shapes": set(),
    "profile": {"spec", "shapes"},
    "pod": {"spec", "shapes", "profile"},
    "render": {"spec", "shapes", "profile", "pod"},
    "access": set(),
    "cluster": {"spec", "profile", "pod", "render", "access", "launcher"},
    # In pods it is alone: see docs/adr/0061-launcher-from-a-configmap.md.
    "launcher": set(),
}
PURE = ("spec", "shapes", "pod", "render")
OUTSIDE = {"socket", "subprocess", "kubernetes", "requests", "urllib3", "ssl", "http", "os"}
LARGEST_FOLDER = 14


def modules(folder: str) -> list[Path]:
    return sorted((FOLDER / folder).rglob("*.py"))


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_every_folder_has_a_place() -> None:
    folders = {path.name for path in FOLDER.iterdir() if list(path.rglob("*.py"))}
    assert folders == set(MAY_IMPORT)
    assert [path.name for path in FOLDER.glob("*.py")] == ["__init__.py"]


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_point_back(folder: str) -> None:
    for path in modules(folder):
        for name in imported(path):
            used = name.removeprefix(PACKAGE).partition(".")[0]
            if name.startswith(PACKAGE) and used != folder:
                assert used in MAY_IMPORT[folder], f"{path.name} imports {name}"


@pytest.mark.parametrize("folder", PURE)
def test_rendering_reaches_nothing_outside(folder: str) -> None:
    for path in modules(folder):
        assert not {name.partition(".")[0] for name in imported(path)} & OUTSIDE, path.name


def test_folders_stay_small() -> None:
    sizes = {
        path.relative_to(FOLDER): len(list(path.glob("*.py")))
        for path in FOLDER.rglob("*")
        if path.is_dir()
    }
    # __init__.py does not count.
    assert {path for path, size in sizes.items() if size > LARGEST_FOLDER + 1} == set()
