"""The launcher's folders import from those before them; commands start without what nodes need."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from pyxis_py.kubernetes.launcher import zipapp

FOLDER = Path(zipapp.__file__).parent
PACKAGE = "pyxis_py.kubernetes.launcher."
ORDER = ("wire", "job", "commands", "srun", "node")
LARGEST_FOLDER = 15


@pytest.mark.parametrize("folder", ORDER)
def test_imports_point_back(folder: str) -> None:
    paths = sorted((FOLDER / folder).glob("*.py"))
    assert 1 < len(paths) <= LARGEST_FOLDER
    before = ORDER[: ORDER.index(folder) + 1]
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if name.startswith(PACKAGE):
                assert name[len(PACKAGE) :].partition(".")[0] in before, (path.name, name)


def test_every_module_is_in_a_folder() -> None:
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} - {"__pycache__"} == set(ORDER)
    assert {path.name for path in FOLDER.glob("*.py")} == {
        "__init__.py", "__main__.py", "entry.py", "zipapp.py",
    }  # fmt: skip


def test_srun_starts_without_what_takes_long_to_import() -> None:
    code = (
        "import sys\n"
        "import pyxis_py.kubernetes.launcher.srun.step_client\n"
        "import pyxis_py.kubernetes.launcher.entry\n"
        "print(*sorted(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=FOLDER.parents[2],
    )  # fmt: skip
    slow = {"asyncio", "subprocess", "zipfile", "tempfile", "compileall", "argparse", "dataclasses",
            "logging", "shutil", "ssl"}  # fmt: skip
    assert not slow & set(done.stdout.split())
