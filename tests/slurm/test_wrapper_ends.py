"""Single processes of a step of pyxis-srun that are killed, and steps that start steps."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyxis_py
from tests.slurm.images import make_image
from tests.slurm.rig import Rig
from tests.slurm.watching import Messages, interrupt_twice, is_there, remains

pytestmark = pytest.mark.slurm

WRAPPER = ("pyxis-srun", "-wnode1")
SH = ("/bin/sh", "-c")


@pytest.fixture
def image(rig: Rig) -> tuple[str, str]:
    shared = rig.shared
    return f"--container-image={shared}/image.sqsh", f"--container-mounts={shared}:{shared}"


@pytest.fixture
def importer(rig: Rig) -> Iterator[tuple[Path, Path, Path]]:
    """An importer that waits: its path, a file with the keeper's number, one that ends the wait."""
    folder = rig.folder("importer")
    program, importing, go = folder / "importer", folder / "importing", folder / "go"
    program.write_text(
        f"#!/bin/sh\ntest $1 = get || exit 0\necho $PPID > {importing}.new\n"
        f"mv {importing}.new {importing}\nuntil test -e {go}; do sleep 0.1; done\n"
        f"echo {rig.shared}/image.sqsh\n"
    )
    program.chmod(0o755)
    yield program, importing, go
    go.touch()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_for_tasks(keeper: int, count: int) -> None:
    """Wait until so many tasks of a keeper's step have come to where they meet."""
    stepd = parent(parent(keeper))
    deadline = time.monotonic() + 60
    while sum(has_come(pid, stepd) for pid in pids()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def has_come(pid: int, stepd: int) -> bool:
    try:
        if parent(pid) != stepd:
            return False
        fds = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:  # it has ended, or one has been closed
        return False
    return any(fd.endswith("/alive") for fd in fds)


@pytest.mark.parametrize("victim", ["keeper", "leader"])
def test_a_start_that_is_killed_ends_all_tasks_with_a_message(
    rig: Rig, importer: tuple[Path, Path, Path], victim: str
) -> None:
    program, importing, _ = importer
    words = (*WRAPPER, "-n3", "--container-image=127.0.0.1:1/t/x:1", "true")
    with rig.popen(*words, PYXIS_PLUGIN_OPTIONS=f"importer={program}") as process:
        is_there(importing)
        keeper = int(importing.read_text())
        wait_for_tasks(keeper, 3)
        os.kill(keeper if victim == "keeper" else parent(keeper), signal.SIGKILL)
        _, err = process.communicate(timeout=60)
    assert process.returncode == (1 if victim == "keeper" else 137), err
    others = 2
    assert err.count("A task of this step ended unexpectedly while it started") == others, err
    assert err.count("The container's keeper ended without an answer") == (victim == "keeper"), err
    assert "Traceback" not in err
    # Nothing at all: not even the folder where the tasks met.
    assert rig.remains() == []
    assert meeting_places(rig) == []


def meeting_places(rig: Rig) -> list[str]:
    script = "ls -d /tmp/pyxis-$(id -u)/*.*.* 2> /dev/null | grep -v options"
    return rig.run("srun", "-wnode1", "sh", "-c", script).stdout.split()


def test_an_interrupted_import_ends_quietly(rig: Rig, importer: tuple[Path, Path, Path]) -> None:
    program, importing, _ = importer
    words = (*WRAPPER, "-n2", "--container-image=127.0.0.1:1/t/x:1", "true")
    with rig.popen(*words, PYXIS_PLUGIN_OPTIONS=f"importer={program}") as process:
        messages = Messages(process)
        is_there(importing)
        wait_for_tasks(int(importing.read_text()), 2)  # else it is Python that is interrupted
        interrupt_twice(process, messages)
        process.wait(timeout=60)
        err = messages.all()
    assert process.returncode in (130, 137), err
    assert "Traceback" not in err
    assert remains(rig) == []


@pytest.mark.parametrize("kept", [False, True], ids=["nothing to do", "to be saved"])
def test_a_task_that_is_killed_does_not_keep_the_others_from_their_end(
    rig: Rig, image: tuple[str, str], kept: bool
) -> None:
    folder = rig.folder(f"killed-{kept}")
    saved = folder / "saved.sqsh"
    flags = ("--container-writable", f"--container-save={saved}") if kept else ()
    script = "echo $SLURM_TASK_PID > $0-$SLURM_PROCID; until test -e $1; do sleep 0.1; done; echo x"
    words = (*WRAPPER, "-n3", *image, *flags, *SH, script, f"{folder}/up", f"{folder}/go")
    with rig.popen(*words) as process:
        for rank in range(3):
            is_there(folder / f"up-{rank}")
        deadline = time.monotonic() + 60
        while not (text := (folder / "up-0").read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(int(text), signal.SIGKILL)
        assert process.stderr is not None
        messages = Messages(process)
        assert messages.wait_for("task 0: Killed", more_than=0)
        (folder / "go").touch()
        process.wait(timeout=60)
        err = messages.all()
    assert process.returncode == 137, err
    assert err.count("saved container") == kept
    assert saved.exists() == kept
    assert rig.remains() == []
    assert meeting_places(rig) == []


def test_steps_in_steps_and_which_flags_count(rig: Rig, image: tuple[str, str]) -> None:
    """A script on the host, with the variable of an image: its steps have that one or their own."""
    other = make_image(rig.shared / "other.sqsh", mark="other")
    log = rig.folder("nested") / "log"
    step = "pyxis-srun -n1 --overlap"
    mark = "sh -c 'cat /etc/mark 2> /dev/null || echo host'"
    script = rig.shared / "nested.sh"
    script.write_text(
        "#!/bin/sh\n"
        f"{step} {mark}\n"
        f"{step} {image[0]} {mark}\n"
        f"export PYXIS_CONTAINER_IMAGE={rig.shared}/image.sqsh\n"
        f"{step} {mark}\n"
        f"{step} --container-image={other} {mark}\n"
        f"PYXIS_CONTAINER_IMAGE={other} {step} {mark}\n"
        f"srun -n1 --overlap pyxis-srun -n1 --overlap {mark}\n"
    )
    words = ("--wait", "-wnode1", f"--output={log}", f"--error={log}.err", str(script))
    done = rig.run("pyxis-sbatch", *words)
    assert done.returncode == 0, log.read_text()
    marks = ["host", "image", "image", "other", "other", "image"]
    assert log.read_text().split() == marks


def test_a_step_from_inside_a_container(rig: Rig, image: tuple[str, str]) -> None:
    """Where Slurm and this package are mounted, a script in a container starts other ones."""
    other = make_image(rig.shared / "other.sqsh", mark="other")
    log = rig.folder("inside") / "log"
    script = rig.shared / "inside.sh"
    script.write_text(
        "#!/bin/sh\ncat /etc/mark\n"
        f"{rig.programs}/pyxis-srun -n1 --overlap --container-image={other} cat /etc/mark\n"
    )
    own = Path(pyxis_py.__file__).parents[1]
    mounts = [f"{path}:{path}:ro" for path in ("/usr", "/lib", "/lib64", sys.prefix, own)]
    mounts += [f"{rig.base}/{name}:{rig.base}/{name}" for name in ("slurm.conf", "cgroup.conf")]
    mounts += [f"{rig.base}/munge:{rig.base}/munge", f"/dev/null:{rig.base}/plugstack.conf"]
    flags = (image[0], f"--container-mounts={','.join(mounts)},{rig.shared}:{rig.shared}")
    words = ("--wait", "-wnode1", *flags, f"--output={log}", f"--error={log}.err", str(script))
    done = rig.run("pyxis-sbatch", *words)
    assert done.returncode == 0, log.read_text()
    assert log.read_text().split() == ["image", "other"]
