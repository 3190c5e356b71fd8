"""Every program under examples/ does what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.kernel
def test_the_demo_runs_from_end_to_end(tmp_path: Path) -> None:
    """demo.sh, with build_image.py and serve_layout.py, as `make demo` runs it."""
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        [EXAMPLES / "demo/demo.sh", tmp_path],
        env={"PATH": path, "HOME": str(tmp_path / "home"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (
        "training with 4 workers as ",  # the image's own command
        "training with 8 workers as root",  # --root and --env
        "from the host",  # --mount
    ):
        assert line in done.stdout
    lines = done.stdout.splitlines()
    assert lines[lines.index("$ enroot start changed.sqsh cat /opt/app/VERSION") + 1] == "3"
    assert not (tmp_path / "work/data/app").exists()
    assert not (tmp_path / "home").exists(), "the demo left its folder"
    assert not servers_in(tmp_path), "the demo left its server running"


def servers_in(folder: Path) -> list[str]:
    """Return the processes that serve a layout below `folder`."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if any(word.endswith("serve_layout.py") for word in words):
                found += [pid] if str(folder) in os.readlink(f"/proc/{pid}/cwd") else []
        except OSError:
            continue  # it has ended, or is somebody else's
    return found
