"""A Python for images that have none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pyxis_py.kubernetes.launcher.zipapp import build_launcher
from pyxis_py.kubernetes.pod.python_bundle import INTERPRETER, PYTHON_PATH
from tests.kubernetes.launcher.pods import Pods


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("python")
    launcher = folder / "launcher.pyz"
    launcher.write_bytes(build_launcher())
    target = folder / "bundle"
    target.mkdir()
    subprocess.run(["/usr/bin/python3", launcher, "python", target], check=True, timeout=250)
    return target


def words(bundle: Path) -> list[str]:
    """How the pod's container starts Python, with the volume at another place."""
    return [word.replace(PYTHON_PATH, str(bundle)) for word in INTERPRETER]


def test_it_runs_by_its_own_loader_and_libraries(bundle: Path) -> None:
    code = "import sys, hashlib, socket; print(sys.prefix); print(open('/proc/self/maps').read())"
    done = subprocess.run(
        [*words(bundle), "-IS", "-c", code], env={}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    prefix, _, maps = done.stdout.partition("\n")
    assert prefix == str(bundle)
    libraries = [line.split()[-1] for line in maps.splitlines() if ".so" in line]
    assert libraries
    assert all(path.startswith(str(bundle)) for path in libraries)


def test_a_job_and_its_commands_run_on_it(bundle: Path, tmp_path: Path) -> None:
    script = (
        "#!/bin/sh\nhead -n1 $(command -v srun)\nsrun -l printenv SLURM_NODEID | sort\nexit 3\n"
    )
    pods = Pods(tmp_path, script, 2, python=words(bundle))
    try:
        assert pods.wait() == 3, pods.log()
        assert pods.output == "#!/bin/sh\n0: 0\n1: 1\n"
    finally:
        pods.close()


def test_it_is_small_and_readable_for_everyone(bundle: Path) -> None:
    size = sum(path.lstat().st_size for path in bundle.rglob("*"))
    assert size < 150 << 20
    assert not list(bundle.rglob("site-packages"))
    for name in ("ld.so", "bin/python3"):
        assert os.stat(bundle / name).st_mode & 0o555 == 0o555


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    launcher = tmp_path / "launcher.pyz"
    launcher.write_bytes(build_launcher())
    done = subprocess.run(
        ["/usr/bin/python3", launcher, "python", tmp_path / "launcher.pyz"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "cannot copy Python" in done.stderr
