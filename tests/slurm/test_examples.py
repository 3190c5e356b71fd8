"""The examples that need a cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.slurm.rig import Rig

pytestmark = pytest.mark.slurm

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_functions_run_in_containers_by_submitit(rig: Rig) -> None:
    folder = rig.folder("submitit")
    # The image has no Python: the node's one, and its packages, are mounted.
    mounts = ["/usr:/usr:ro", "/lib:/lib:ro", "/lib64:/lib64:ro", f"{sys.prefix}:{sys.prefix}:ro"]
    done = rig.run(
        sys.executable, str(EXAMPLES / "submitit_launch.py"), str(folder),
        f"{rig.shared}/image.sqsh", *mounts,
    )  # fmt: skip
    logs = "".join(path.read_text() for path in folder.glob("*.err"))
    assert done.stdout.splitlines()[-2:] == ["hello 0 image", "hello 1 image"], done.stderr + logs
