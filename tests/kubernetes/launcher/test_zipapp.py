"""launcher.pyz: its size, its bytes, what it imports, the Pythons that it runs on."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
import zipfile
from glob import glob
from pathlib import Path

import pytest

from pyxis_py.kubernetes.launcher import zipapp
from pyxis_py.kubernetes.launcher.zipapp import LARGEST_SIZE, build_launcher
from tests.kubernetes.launcher.pods import Pods

FOLDER = Path(zipapp.__file__).parent
PACKAGE = "pyxis_py.kubernetes.launcher"
MODULES = sorted(path for path in FOLDER.rglob("*.py") if path.name != "zipapp.py")
STANDARD = {
    "__future__", "collections", "compileall", "errno", "functools", "glob", "heapq", "hmac",
    "importlib", "itertools", "json", "os", "posixpath", "pty", "random", "re", "resource",
    "select", "selectors", "shlex", "shutil", "signal", "socket", "stat",
    "struct", "sys", "sysconfig", "tempfile", "termios",
    "time", "typing", "zipfile",
}  # fmt: skip
"""Modules that Python 3.8 has."""
NEWER_METHODS = {"removeprefix", "removesuffix", "bit_count", "is_relative_to"}


def pythons() -> list[str]:
    """The system's Python, and those that pyenv has."""
    found = {"/usr/bin/python3", *glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"))}
    return sorted(path for path in found if os.path.exists(path))


def test_it_is_small_and_the_same_every_time() -> None:
    data = build_launcher()
    assert data == build_launcher()
    assert len(data) < LARGEST_SIZE
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        assert all(info.date_time == (1980, 1, 1, 0, 0, 0) for info in archive.infolist())
    assert names == sorted(names)
    assert "pyxis_py/kubernetes/launcher/srun/step_client.py" in names
    assert not [name for name in names if "zipapp" in name]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_modules_are_python_3_8_and_import_nothing_else(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            assert (
                name.split(".")[0] in STANDARD or name == PACKAGE or name.startswith(f"{PACKAGE}.")
            ), name
        if isinstance(node, ast.Attribute):
            assert node.attr not in NEWER_METHODS, (path.name, node.lineno)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip":
            assert not [word for word in node.keywords if word.arg == "strict"]


GENERIC = {"Callable", "Iterable", "Mapping", "Sequence", "dict", "frozenset", "list", "set",
           "tuple", "type"}  # fmt: skip


def evaluated(node: ast.AST) -> list[ast.AST]:
    """The nodes that Python evaluates: neither annotations nor what only type checkers see."""
    found = [node]
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                found += evaluated(child)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_generic_types_are_for_annotations(path: Path) -> None:
    """In 3.8 they cannot be subscripted."""
    for node in evaluated(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Subscript):
            assert getattr(node.value, "id", "") not in GENERIC, (path.name, node.lineno)


@pytest.mark.parametrize("python", pythons())
def test_it_runs_a_step_on_every_python(python: str, tmp_path: Path) -> None:
    version = subprocess.check_output(
        [python, "-c", "import sys; print(sys.version_info[:2] >= (3, 8))"], text=True
    )
    script = "#!/bin/sh\nsrun -l --multi-prog programs\nsqueue -h -o %T\nexit 4\n"
    pods = Pods(tmp_path, script, python=python, missing=[0])
    (pods.work / "programs").write_text("0 sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS'\n")
    try:
        pods.start(0)
        if version.strip() == "False":
            assert pods.wait() == 1
            assert "needs 3.8" in pods.log()
            return
        assert pods.wait() == 4, pods.log()
        assert pods.output == "0: 0 of 1\nRUNNING\n"
    finally:
        pods.close()


def test_without_a_job_it_says_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "launcher.pyz"
    path.write_bytes(build_launcher())
    done = subprocess.run(
        [sys.executable, str(path), "node"], capture_output=True, text=True,
        env={"PYXIS_LAUNCHER_FOLDER": str(tmp_path)}, timeout=30,
    )  # fmt: skip
    assert done.returncode == 1
    assert "job.json" in done.stderr
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "usage" in done.stderr
