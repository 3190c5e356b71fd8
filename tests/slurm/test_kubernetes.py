"""The same batch scripts under Slurm and in emulated pods: what they print, are told, and end with.

Under Slurm the scripts run through the plugin, in the image that the pods have.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

import pyxis_py
from pyxis_py.kubernetes.pod.context import Target
from tests.kubernetes.emulator.comparison import (
    BATCH,
    STEP,
    Names,
    comparable,
    read_variables,
    sections,
    unknown,
)
from tests.kubernetes.emulator.image import make_image
from tests.kubernetes.emulator.jobs import FOLDER as SCRIPTS
from tests.slurm.rig import Rig

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("plugin")]

TREE = Path(__file__).resolve().parents[2]
JOB_ID = 4711


@dataclass(frozen=True)
class Variant:
    """Other options for the script that keeps variables.

    No uneven ones: Slurm packs tasks by free CPUs then, and the pods of a job are alike.
    """

    target: Target
    words: tuple[str, ...]


VARIANTS = {
    "even": Variant("volcano", ("-N2", "--ntasks-per-node=2", "-c2", "--mem=200M")),
    "one-node": Variant("kueue-job", ("-N1", "-n3")),
    "mem-per-cpu": Variant("kueue", ("-N2", "--ntasks-per-node=1", "-c3", "--mem-per-cpu=100")),
}
ARRAY = ("--array=1-5:2", "-N1", "--ntasks-per-node=2")
OF_ELEMENTS = tuple(
    name
    for name in STEP
    if name.startswith("SLURM_ARRAY_") or name.endswith(("NTASKS", "NNODES", "TASKS_PER_NODE"))
)
"""What is compared of an array: its elements have other nodes and numbers."""
DIFFERENT = {
    # Slurm's srun kills its step. In a pod the whole script gets SIGTERM when the pod is evicted or
    # the time is over, srun as well, and its tasks are to have their grace.
    "SIGTERM to srun": ("status 137", "caught\nstatus 4"),
}
"""What Slurm prints, and what is printed in pods."""
TITLES = tuple(sections((SCRIPTS / "steps.sh").read_text().replace("\nsay ", "\n== ")))[1:]


@dataclass(frozen=True)
class Done:
    """A job that is over."""

    folder: Path
    names: Names
    status: int
    complete: bool

    @property
    def output(self) -> str:
        """What the batch script printed."""
        (path,) = self.folder.glob("*.out")
        return self.names.normalise(path.read_text())

    def variables(self, file: str, which: tuple[str, ...]) -> dict[str, str]:
        """The compared variables that a script has kept."""
        return comparable(read_variables(self.folder / file), which, self.names)


@pytest.fixture(scope="module")
def tools(rig: Rig) -> Path:
    """The image of both worlds."""
    ring = rig.base / "ring"
    source = Path(__file__).with_name("ring.c")
    subprocess.run(["mpicc", "-O1", "-o", str(ring), str(source)], check=True)
    return make_image(rig.shared / "tools.sqsh", programs=[ring])


def _folder(rig: Rig, name: str, script: str) -> Path:
    folder = rig.folder(name)
    for path in (SCRIPTS / script, SCRIPTS / "rendezvous.py"):
        shutil.copy(path, folder / path.name)
    return folder


def _under_slurm(rig: Rig, tools: Path, folder: Path, script: str, words: tuple[str, ...]) -> Done:
    # All nodes are this machine, and programs look their names up.
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {os.uname().nodename} node1 node2 node3 node4\n")
    # srun in the image needs the cluster's files and the plugin's.
    mounts = [f"{rig.shared}:{rig.shared}", rig.base, sys.prefix,
              Path(pyxis_py.__file__).parents[1], f"{hosts}:/etc/hosts"]  # fmt: skip
    done = rig.run(
        "sbatch", "--parsable", f"--container-image={tools}", f"--container-workdir={folder}",
        f"--container-mounts={','.join(map(str, mounts))}", *words, script, "argument", cwd=folder,
    )  # fmt: skip
    job = done.stdout.strip()
    assert job.isdigit(), done.stderr
    try:
        state = rig.wait_for_job(job, timeout=300)
    except TimeoutError as error:
        steps = rig.run("squeue", "-s").stdout
        rig.run("scancel", job)
        text = "".join(path.read_text()[-500:] for path in folder.glob("*.out"))
        raise TimeoutError(f"{error}\n{steps}\n{text}") from error
    shown = rig.run("scontrol", "show", "job", job).stdout
    status = int(shown.partition("ExitCode=")[2].partition(":")[0])
    return Done(folder, Names("node", 1, job, folder), status, state == "COMPLETED")


def _in_pods(
    rig: Rig, tools: Path, folder: Path, script: str, target: str, words: tuple[str, ...]
) -> Done:
    options = [f"--word={word}" for word in words]
    done = subprocess.run(
        [sys.executable, "-m", "tests.kubernetes.emulator.run", str(folder / script),
         f"--image={tools}", f"--target={target}", f"--job-id={JOB_ID}", "--argument=argument",
         "--limit=300", *options],
        cwd=TREE, user=rig.user.pw_uid, group=rig.user.pw_gid, extra_groups=[],
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": rig.user.pw_dir,
             "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, timeout=360, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    between = {"kueue": "-n-0-", "kueue-job": "-", "volcano": "-n-"}[target]
    name = "parity" if script == "steps.sh" else "variables"
    names = Names(f"{name}-{JOB_ID}{between}", 0, str(JOB_ID), folder)
    return Done(folder, names, report["status"], report["complete"])


@pytest.fixture(scope="module")
def worlds(rig: Rig, tools: Path, plugin: None) -> Iterator[dict[str, tuple[Done, Done]]]:
    """Every job in both worlds: first Slurm's, then the pods'."""
    jobs = {"steps": ("steps.sh", "kueue", ()), **{
        name: ("variables.sh", row.target, row.words) for name, row in VARIANTS.items()
    }, "array": ("variables.sh", "kueue", ARRAY)}  # fmt: skip
    # Slurm's one after the other: they must not take CPUs from each other.
    with ThreadPoolExecutor(max_workers=1) as one_by_one, ThreadPoolExecutor(max_workers=1) as pool:
        pending = {}
        for name, (script, target, words) in jobs.items():
            slurm = _folder(rig, f"slurm-{name}", script)
            pods = _folder(rig, f"pods-{name}", script)
            pending[name] = (
                one_by_one.submit(_under_slurm, rig, tools, slurm, script, words),
                pool.submit(_in_pods, rig, tools, pods, script, target, words),
            )
        yield {name: (one.result(), other.result()) for name, (one, other) in pending.items()}


Worlds = dict[str, tuple[Done, Done]]


@pytest.mark.parametrize("title", [title for title in TITLES if title not in DIFFERENT])
def test_steps_print_the_same(worlds: Worlds, title: str) -> None:
    texts = [done.output for done in worlds["steps"]]
    slurm, pods = ("\n".join(sections(text).get(title, [text])) for text in texts)
    assert pods == slurm


@pytest.mark.parametrize("title", DIFFERENT)
def test_steps_differ_on_purpose(worlds: Worlds, title: str) -> None:
    found = tuple("\n".join(sections(done.output)[title]) for done in worlds["steps"])
    assert found == DIFFERENT[title]


def test_the_job_ends_with_the_same_status(worlds: Worlds) -> None:
    assert [(done.status, done.complete) for done in worlds["steps"]] == [(3, False)] * 2
    assert all(done.complete for name in VARIANTS for done in worlds[name])


def _differences(pair: tuple[Done, Done], file: str, which: tuple[str, ...]) -> list[str]:
    slurm, pods = (done.variables(file, which) for done in pair)
    return [
        f"{file}: {name} is {slurm.get(name)!r} under Slurm, {pods.get(name)!r} in a pod"
        for name in which
        if slurm.get(name) != pods.get(name)
    ]


@pytest.mark.parametrize("job", ["steps", *VARIANTS])
def test_the_batch_script_is_told_the_same(worlds: Worlds, job: str) -> None:
    assert "\n".join(_differences(worlds[job], "batch.env", BATCH)) == ""


@pytest.mark.parametrize("job", ["steps", *VARIANTS])
def test_tasks_are_told_the_same(worlds: Worlds, job: str) -> None:
    files = [path.name for path in worlds[job][0].folder.glob("[sn]*.env")]
    assert len(files) >= 3
    found = [row for file in sorted(files) for row in _differences(worlds[job], file, STEP)]
    assert "\n".join(found) == ""


@pytest.mark.parametrize("element", [1, 3, 5])
@pytest.mark.parametrize("file", ["batch", "step.0", "step.1", "narrow.0"])
def test_elements_are_told_the_same(worlds: Worlds, element: int, file: str) -> None:
    found = _differences(worlds["array"], f"{element}{file}.env", OF_ELEMENTS)
    assert "\n".join(found) == ""


def test_every_variable_of_slurm_is_compared_or_listed(worlds: Worlds) -> None:
    for done in (done for pair in worlds.values() for done in pair):
        for path in done.folder.glob("*.env"):
            assert unknown(read_variables(path)) == set(), path
