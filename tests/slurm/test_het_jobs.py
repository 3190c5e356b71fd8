"""Heterogeneous batch jobs: the script's own container, and steps over the job's groups."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.slurm.plugin import PluginRig
from tests.slurm.rig import Rig

pytestmark = pytest.mark.slurm

HERE = "cat /etc/mark 2> /dev/null || echo host"


def submit(
    rig: Rig, body: str, *words: str, directives: tuple[str, ...] = ()
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Submit a script and return what sbatch did, and the lines that the job has printed."""
    srun = "srun" if isinstance(rig, PluginRig) else "pyxis-srun"
    folder = rig.folder("het")
    lines = ["#!/bin/sh", *(f"#SBATCH {directive}" for directive in directives), body, ""]
    (folder / "het.sh").write_text("\n".join(lines).replace("SRUN", srun))
    log, errors = folder / "log", folder / "errors"
    # srun says it where a step has to wait until the one before has gone: beside, not in between.
    words = (f"--output={log}", f"--error={errors}", *words)
    done = rig.run("pyxis-sbatch", "--parsable", *words, str(folder / "het.sh"))
    if done.returncode:
        return done, []
    state = rig.wait_for_job(done.stdout.strip().partition(";")[0])
    texts = [path.read_text() for path in (log, errors) if path.exists()]
    assert state == "COMPLETED", (state, texts)
    return done, log.read_text().splitlines()


@pytest.mark.parametrize("way", ["script", "command line"])
def test_steps_of_a_heterogeneous_batch_job(rig: Rig, image: str, other: str, way: str) -> None:
    first, second = ("-w", "node1", "-n1"), ("-w", "node2", "-n2")
    where = "sh -c 'echo $SLURMD_NODENAME $(cat /etc/mark)'"
    body = "\n".join(
        [
            HERE,
            f"SRUN -l --het-group=0,1 {image} {where} | sort",
            f"SRUN -l --het-group=0 {image} {where} : --het-group=1 {other} {where} | sort",
            f"SRUN -l --het-group=1 {other} {where} | sort",
            f"SRUN -l --het-group=0 {image} {where} : --het-group=1 sh -c '{HERE}' | sort",
        ]
    )
    if way == "script":
        directives = (" ".join(first), "hetjob", " ".join(second))
        done, lines = submit(rig, body, directives=directives)
    else:
        done, lines = submit(rig, body, *first, ":", *second)
    assert done.returncode == 0, done.stderr
    assert lines == [
        "host",
        "0: node1 image", "1: node2 image", "2: node2 image",
        "0: node1 image", "1: node2 other", "2: node2 other",
        "0: node2 other", "1: node2 other",
        "0: node1 image", "1: host", "2: host",
    ]  # fmt: skip
    rig.wait_until_idle()
    assert rig.remains() == []


@pytest.mark.parametrize("way", ["script", "command line"])
def test_the_script_runs_in_the_image_of_the_first_component(
    rig: Rig, image: str, other: str, way: str
) -> None:
    def sbatch(first: str, second: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        words = (f"-w node1 -n1 {first}", f"-w node2 -n1 {second}")
        if way == "script":
            return submit(rig, HERE, directives=(words[0], "hetjob", words[1]))
        return submit(rig, HERE, *words[0].split(), ":", *words[1].split())

    assert sbatch(image, "")[1] == ["image"]
    assert sbatch(image, image)[1] == ["image"]
    for first in (image, ""):
        done, _ = sbatch(first, other)
        assert done.returncode != 0
        assert re.search("component 0|the first", done.stderr), done.stderr
    rig.wait_until_idle()
    assert rig.remains() == []
