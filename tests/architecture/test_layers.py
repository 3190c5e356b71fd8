"""Imports point down: every arrow of docs/architecture.md, and no other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BASE = {"errors", "log", "settings", "config_file", "record"}
SHARED = {"store.containers", "squashfs.superblock"}
"""Modules of the import column that the start column may use too (docs/architecture.md)."""

MAY_IMPORT: dict[str, set[str]] = {
    # layer: the layers below it in its own column
    "base": set(),
    "image": {"base"},
    "registry": {"base", "image"},
    "store": {"base", "image"},
    "layers": {"base", "image"},
    "squashfs": {"base", "layers"},
    "host": {"base"},
    "linux": {"base"},
    "plan": {"base", "host"},
    "gpu": {"base", "host", "plan", "linux"},
    "hooks": {"base", "host", "plan", "linux", "gpu"},
    "enter": {"base", "host", "plan", "linux", "gpu", "hooks"},
    "operations": {
        "base", "image", "registry", "store", "layers", "squashfs",
        "host", "plan", "linux", "gpu", "hooks", "enter",
    },
    "cli": {"base", "operations", "image", "plan", "host", "linux", "hooks"},
}  # fmt: skip

PURE = ("image", "plan", "layers.entry", "layers.whiteout", "layers.merge", "squashfs.format")
IMPURE_MODULES = {"socket", "subprocess", "shutil", "tempfile", "requests", "ctypes", "urllib3"}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def layer_of(module: str) -> str:
    parts = module.split(".")
    if len(parts) == 1 or parts[1] in BASE:
        return "base"
    return parts[1]


def imported_modules(path: Path) -> set[str]:
    """Absolute names of every module that a file imports, inside functions too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def own_modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", own_modules("enroot_py"), ids=module_name)
def test_imports_point_down(path: Path) -> None:
    if module_name(path) == "enroot_py":
        return  # the public API: names what stands above it, for type checkers alone
    layer = layer_of(module_name(path))
    modules = {module_name(other) for other in own_modules("enroot_py")}
    for name in imported_modules(path) & modules:
        if name == "enroot_py" or name.removeprefix("enroot_py.") in SHARED:
            continue
        used = layer_of(name)
        assert used == layer or used in MAY_IMPORT[layer], f"{layer} imports {name}"


@pytest.mark.parametrize("path", own_modules("pyxis_py"), ids=module_name)
def test_pyxis_uses_the_public_api_only(path: Path) -> None:
    for name in imported_modules(path):
        if name.startswith("enroot_py."):
            # `from enroot_py import X` shows up as enroot_py.X too; a module does not.
            assert not (ROOT / (name.replace(".", "/") + ".py")).exists(), name
            assert not (ROOT / name.replace(".", "/")).is_dir(), name


@pytest.mark.parametrize("path", own_modules("enroot_py"), ids=module_name)
def test_pure_modules_touch_nothing(path: Path) -> None:
    name = module_name(path).removeprefix("enroot_py.")
    if not any(name == pure or name.startswith(pure + ".") for pure in PURE):
        return
    tops = {module.split(".")[0] for module in imported_modules(path)}
    assert not tops & IMPURE_MODULES
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert "open" not in calls


@pytest.mark.parametrize(
    "path", own_modules("enroot_py") + own_modules("pyxis_py"), ids=module_name
)
def test_modules_stay_small_and_have_a_noun(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500
    assert path.stem not in {
        "utils",
        "util",
        "helpers",
        "helper",
        "common",
        "misc",
        "base",
        "manager",
    }


def test_the_documentation_shows_the_same_layers() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 2 and cells[0] in MAY_IMPORT:
            rows[cells[0]] = set(cells[1].split(", "))
    assert rows == {layer: below for layer, below in MAY_IMPORT.items() if layer != "base"}
