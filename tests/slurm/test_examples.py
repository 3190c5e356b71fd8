"""The examples that need a cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.slurm.rig import Rig

pytestmark = pytest.mark.slurm

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def mounts() -> list[str]:
    """The image has no Python: the node's one, and its packages, are mounted."""
    return ["/usr:/usr:ro", "/lib:/lib:ro", "/lib64:/lib64:ro", f"{sys.prefix}:{sys.prefix}:ro"]


def submit(rig: Rig, name: str, *words: str) -> tuple[list[str], str]:
    """Run an example with a folder for submitit; return its lines and what went wrong."""
    folder = rig.folder(name)
    done = rig.run(sys.executable, str(EXAMPLES / f"{name}.py"), str(folder), *words)
    return done.stdout.splitlines(), done.stderr + "".join(
        path.read_text() for path in folder.glob("*.err")
    )


def test_a_function_of_submitit_drives_the_hooks(rig: Rig, mounts: list[str]) -> None:
    lines, errors = submit(rig, "submitit_launch", "2", f"{rig.shared}/image.sqsh", *mounts)
    assert lines[-4:] == [f"hello {rank} image" for rank in range(4)], errors
    assert rig.remains() == []


def test_functions_run_in_tasks_of_submitits_srun(rig: Rig, mounts: list[str]) -> None:
    lines, errors = submit(rig, "submitit_srun", f"{rig.shared}/image.sqsh", *mounts)
    assert lines[-2:] == ["hello 0 image", "hello 1 image"], errors
