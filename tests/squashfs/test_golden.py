"""The bytes of images, held to digests: the same on every Python, with every number of threads.

A failure after a change of the layout or of zstd is no fault: the digests and FORMAT_VERSION of
`store/images.py` are then to be raised together (docs/adr/0004-deterministic-images.md).
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.squashfs.golden_sample import digest

DIGESTS = [
    ("", "91f55bf2e1d5c8c5e1855401901c0e540fe75fda8a2578485695c24a58e04bcd"),
    (
        "-comp zstd -Xcompression-level 3 -b 16K -tailends",
        "9b548d9b6fa573381f72a8ec552a02f2b1347243f88d22c3958b202d152f1c81",
    ),
    (
        "-comp zstd -noI -noD -noF -noX",
        "21ac4ef0c96b593ccdd64b56f18c9fcea39f621b05d531792eb68aa8b411cb0b",
    ),
]

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("processors", [1, 4])
@pytest.mark.parametrize(("options", "expected"), DIGESTS)
def test_bytes_are_those_of_every_other_machine(
    tmp_path: Path, options: str, expected: str, processors: int
) -> None:
    assert digest(tmp_path, options, processors) == expected


@pytest.mark.root
@pytest.mark.timeout(600)
def test_bytes_are_the_same_on_every_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every Python from 3.10 on that this machine has writes the sample with its own libraries."""
    found = {sys.version.split()[0]: "this one"}
    for program in _pythons():
        said = subprocess.run(
            [program, "-c", "import sys; print(sys.version.split()[0])"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        if said in found or tuple(map(int, said.split(".")[:2])) < (3, 10):
            continue
        libraries = tmp_path / said
        packages = [f"{name}=={version(name)}" for name in ("zstandard", "isal")]
        install = ["-m", "pip", "install", "-q", "--no-deps", "--target", str(libraries), *packages]
        subprocess.run([program, *install], check=True, capture_output=True)
        done = subprocess.run(
            [program, "-c", _WRITE, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": f"{libraries}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found[said] = program
        assert done.stdout.split() == [DIGESTS[0][1]] * 2, program
    with capsys.disabled():
        print("\nThe same bytes with Python", ", ".join(sorted(found)))


_WRITE = """
import sys
from pathlib import Path
from tests.squashfs.golden_sample import digest
for processors in (1, 4):
    print(digest(Path(sys.argv[1]), "", processors))
"""


def _pythons() -> list[str]:
    """Interpreters of this machine that can install packages, oldest first."""
    candidates = glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"))
    candidates += [
        path for minor in range(10, 30) if (path := shutil.which(f"python3.{minor}")) is not None
    ]
    return sorted(program for program in candidates if _has_pip(program))


def _has_pip(program: str) -> bool:
    command = [program, "-c", "import pip"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
