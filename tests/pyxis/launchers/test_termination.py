"""Tasks that are told to end while their container is being prepared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pyxis_py.launchers.srun import TASK

# Prepares no image for as long as `hold` is there.
_IMPORTER = "#!/bin/sh\ntouch {0}/began\nwhile test -e {0}/hold; do sleep 0.05; done\nexit 1\n"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def begin_task(folder: Path, tasks: int) -> subprocess.Popen[bytes]:
    environ = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder),
        "ENROOT_DATA_PATH": f"{folder}/data", "SLURM_JOB_ID": "5", "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(tasks), "SLURM_STEP_TASKS_PER_NODE": str(tasks),
        "PYXIS_PLUGIN_OPTIONS": f"importer={folder}/importer runtime_path=/no/such",
    }  # fmt: skip
    words = [sys.executable, "-I", "-S", TASK, "--container-image=docker://x/y", "--", "true"]
    return subprocess.Popen(words, env=environ, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize(("come", "tasks"), [(1, 1), (3, 3), (2, 3)])
def test_the_last_of_them_removes_the_meeting_place(tmp_path: Path, come: int, tasks: int) -> None:
    """That of a step of which not all tasks have come, too."""
    tmp_path.chmod(0o700)
    (tmp_path / "importer").write_text(_IMPORTER.format(tmp_path))
    (tmp_path / "importer").chmod(0o755)
    (tmp_path / "hold").touch()
    running = [begin_task(tmp_path, tasks)]
    try:
        wait_for((tmp_path / "began").exists)
        running += [begin_task(tmp_path, tasks) for _ in range(come - 1)]
        (place,) = (tmp_path / "pyxis").glob("5.0.*")
        wait_for(lambda: all(f"{place}/alive" in opened(task.pid) for task in running))
        for task in reversed(running):
            task.send_signal(signal.SIGTERM)
            assert task.wait(timeout=30) == -signal.SIGTERM
            assert place.exists() == (task is not running[0])
    finally:
        (tmp_path / "hold").unlink()
        for task in running:
            task.kill()
            task.wait()


def opened(pid: int) -> list[str]:
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            found.append(os.readlink(path))
    return found
