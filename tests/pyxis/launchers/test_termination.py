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
from tests.slurm.images import make_image

# Prepares no image for as long as `hold` is there.
_IMPORTER = """#!/bin/sh
test $1 = get || exit 0
touch {0}/began
while test -e {0}/hold; do sleep 0.05; done
exit 1
"""


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


_HOOK = "#!/bin/sh\ntouch {0}/began\nexec sleep 1000\n"


@pytest.mark.kernel
def test_a_container_that_was_unpacked_goes_with_the_last_of_them(tmp_path: Path) -> None:
    """A hook takes its time: the container is there, and no task has joined it."""
    tmp_path.chmod(0o700)
    hook = tmp_path / "config/enroot/hooks.d/50-slow.sh"
    hook.parent.mkdir(parents=True)
    hook.write_text(_HOOK.format(tmp_path))
    hook.chmod(0o755)
    environ = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path),
        "XDG_CONFIG_HOME": f"{tmp_path}/config", "XDG_DATA_HOME": f"{tmp_path}/data",
        "SLURM_JOB_ID": "5", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1",
        "SLURM_STEP_TASKS_PER_NODE": "1", "PYXIS_PLUGIN_OPTIONS": "runtime_path=/no/such",
    }  # fmt: skip
    flags = (f"--container-image={make_image(tmp_path / 'i.sqsh')}", "--container-save=x.sqsh")
    words = [sys.executable, "-I", "-S", TASK, *flags, "--", "true"]
    with subprocess.Popen(words, env=environ, cwd=tmp_path, start_new_session=True) as task:
        wait_for((tmp_path / "began").exists)
        assert os.listdir(tmp_path / "data/enroot") == ["pyxis_5.0"]
        task.send_signal(signal.SIGTERM)
        assert task.wait(timeout=30) == -signal.SIGTERM
        with suppress(ProcessLookupError):
            os.killpg(task.pid, signal.SIGKILL)  # as Slurm ends what is left of a step
    assert os.listdir(tmp_path / "data/enroot") == []
    assert list(tmp_path.glob("pyxis/5.0*")) == []


def opened(pid: int) -> list[str]:
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            found.append(os.readlink(path))
    return found
