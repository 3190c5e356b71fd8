"""What bundles carry runs on Python 3.8: the syntax, and the methods that later versions added."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from enroot_py.operations.bundle.write import bundled_modules

LATER = {"removeprefix", "removesuffix", "bit_count", "pairwise", "is_relative_to"}
RUNNER = Path(bundled_modules()[0]).parent / "operations" / "bundle" / "runner.py"


@pytest.mark.parametrize("path", [*bundled_modules(), RUNNER], ids=str)
def test_a_bundled_module_needs_nothing_later(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            assert node.attr not in LATER, f"line {node.lineno}: {node.attr}"
        if isinstance(node, ast.keyword):
            assert node.arg != "strict", f"line {node.value.lineno}: zip(strict=)"
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            # An alias of a generic type is evaluated when the module is loaded.
            value = node.value.value
            generic = isinstance(value, ast.Name) and value.id in ("dict", "list", "set", "tuple")
            assert not generic or node.col_offset, f"line {node.lineno}: a generic alias"


def test_the_bundled_modules_are_the_start_story() -> None:
    names = {path.name for path in bundled_modules()}
    assert {"start.py", "kernel.py", "fstab.py", "shadow.py", "containers.py"} <= names
    assert not {"client.py", "merge.py", "writer.py", "import_image.py"} & names


def test_they_import_each_other_alone() -> None:
    """What is imported when a module is loaded is in the bundle too."""
    root = RUNNER.parents[3]
    bundled = {".".join(path.relative_to(root).with_suffix("").parts) for path in bundled_modules()}
    bundled |= {name.removesuffix(".__init__") for name in bundled}
    for path in bundled_modules():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("enroot_py"):
                assert node.module in bundled, f"{path} imports {node.module}"
