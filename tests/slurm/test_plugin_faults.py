"""The keeper goes wrong on a node, at each of its calls: who is told, and that the node goes on."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyxis_py.plugin.build import LIBRARY, PACKAGES, build
from tests.slurm.plugin import plugin_line
from tests.slurm.rig import Rig
from tests.slurm.test_plugin_node import assert_up, keeper, wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("plugin")]

NODE = "node1"

# what a keeper does at a step's end or a job's, what is said of it
LATER = [
    ("echo out of luck >&2; exit 1", "out of luck"),
    ("kill -KILL $$", "gave no usable answer: there is none"),
    ("head -c 99999 /dev/urandom >&4", "gave no usable answer"),
    ("printf 'status=ok\\0' >&4", "gave no usable answer: it is incomplete"),
    ("printf 'status=error\\0error=out of luck\\0end=\\0' >&4", "error: pyxis: out of luck"),
    ("sleep 600", "gave no usable answer: it took too long"),
]


def library_for(rig: Rig, verb: str, said: str) -> str:
    """The library's name: of one that waits for seconds where a call of the keeper's hangs.

    All others wait for minutes, as a busy machine may need more than seconds.
    """
    if "took too long" not in said:
        return LIBRARY
    compiler = f"gcc -D{verb.upper()}_SECONDS=3"
    return build(rig.base / f"spank_pyxis_impatient_{verb}.so", compiler=compiler).name


def line_of(rig: Rig, library: str, *words: str) -> str:
    return plugin_line(rig, *words).replace(LIBRARY, library)


def only_at(rig: Rig, verb: str, body: str) -> str:
    """A setting by which the keeper does something else at one of its calls."""
    return keeper(rig, f'[ "$4" = {verb} ] || exec {rig.programs}/python "$@"\n{body}')


def assert_runs(rig: Rig, image: str) -> None:
    """The node takes the next step, with a container."""
    done = rig.run("srun", "-w", NODE, image, "cat", "/etc/mark")
    assert (done.returncode, done.stdout) == (0, "image\n"), done.stderr


@pytest.mark.parametrize(("body", "said"), LATER)
def test_at_the_end_of_a_step_srun_says_so(rig: Rig, image: str, body: str, said: str) -> None:
    library = library_for(rig, "finish", said)
    with rig.plugstack(line_of(rig, library, only_at(rig, "finish", body))):
        save = "--container-save=./never.sqsh"
        done = rig.run("srun", "-w", NODE, "-n2", image, save, "sh", "-c", "echo ran")
    assert (done.returncode, done.stdout) == (0, "ran\nran\n"), done.stderr
    assert said in done.stderr
    assert not (rig.shared / "never.sqsh").exists()
    assert_up(rig)  # the epilog has removed the container
    assert_runs(rig, image)


@pytest.mark.parametrize(("body", "said"), LATER)
def test_at_the_end_of_a_job_the_log_of_slurmd_says_so(
    rig: Rig, image: str, body: str, said: str
) -> None:
    log = rig.base / f"log/slurmd.{NODE}.log"
    before = log.stat().st_size
    library = library_for(rig, "epilog", said)
    with rig.plugstack(line_of(rig, library, only_at(rig, "epilog", body))):
        done = rig.run("srun", "-w", NODE, image, "cat", "/etc/mark")
    assert (done.returncode, done.stdout) == (0, "image\n"), done.stderr
    assert said in log.read_bytes()[before:].decode(errors="replace")
    assert_up(rig)
    assert_runs(rig, image)


def test_a_start_that_hangs_is_gone_after_a_cancel(rig: Rig, image: str) -> None:
    """The plugin has no time limit of its own for it: an image may take long."""
    pid = rig.shared / "hangs"
    with (
        rig.plugstack(plugin_line(rig, only_at(rig, "start", hang(pid)))),
        rig.popen("srun", "-J", "hangs", "-w", NODE, "-n2", image, "true") as process,
    ):
        wait_for(pid)
        rig.run("scancel", "--name", "hangs")
        _, err = process.communicate(timeout=60)
    assert process.returncode != 0, err
    assert_gone(pid)
    assert_up(rig)
    assert_runs(rig, image)


@pytest.mark.soak
def test_a_start_that_hangs_ends_with_the_time_limit(rig: Rig, image: str) -> None:
    """Slurm looks at the clock now and then only."""
    pid = rig.shared / "hangs-long"
    with rig.plugstack(plugin_line(rig, only_at(rig, "start", hang(pid)))):
        done = rig.run("srun", "-w", NODE, "-n2", "--time=0:01", image, "true", timeout=200)
    assert done.returncode != 0
    assert "TIME LIMIT" in done.stderr
    assert_gone(pid)
    assert_up(rig)
    assert_runs(rig, image)


def hang(pid: Path) -> str:
    """What hangs, after it has written its number to a file."""
    return f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600"


def assert_gone(pid: Path) -> None:
    process = Path("/proc", pid.read_text().strip())
    deadline = time.monotonic() + 60
    while process.exists():
        assert time.monotonic() < deadline, process
        time.sleep(0.05)


def _remove_folder(packages: Path) -> None:
    shutil.rmtree(packages / "pyxis_py/step")


def _cut_off(packages: Path) -> None:
    path = packages / "pyxis_py/step/container.py"
    path.write_text(path.read_text()[:2000] + "\n)")


def _remove_other(packages: Path) -> None:
    shutil.rmtree(packages / "enroot_py")


@pytest.mark.parametrize(
    ("breakage", "said"),
    [
        (_remove_folder, "No module named 'pyxis_py.step'"),
        (_remove_other, "No module named 'enroot_py'"),
        (_cut_off, "SyntaxError"),
    ],
)
def test_a_package_that_is_half_there_is_told(
    rig: Rig, image: str, breakage: Callable[[Path], None], said: str
) -> None:
    """As after an upgrade that was interrupted, or on a node that has another package."""
    packages = rig.base / "packages"
    library = build(rig.base / "spank_pyxis_half.so", packages=str(packages)).name
    for package in ("enroot_py", "pyxis_py"):
        shutil.copytree(
            PACKAGES / package, packages / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    try:
        breakage(packages)
        with rig.plugstack(line_of(rig, library)):
            done = rig.run("srun", "-w", NODE, "-n2", image, "true")
    finally:
        shutil.rmtree(packages)
    assert done.returncode != 0
    assert "the container's keeper (start) gave no usable answer" in done.stderr
    assert said in done.stderr
    assert_up(rig)
    assert_runs(rig, image)
