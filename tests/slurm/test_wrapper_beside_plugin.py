"""pyxis-srun and pyxis-sbatch where srun and sbatch have the plugin too."""

from __future__ import annotations

import pytest

from tests.slurm.rig import Rig

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("plugin")]

HERE = ("sh", "-c", "cat /etc/mark; echo $PYXIS_CONTAINER_IMAGE")


def test_a_variable_is_the_wrappers(rig: Rig) -> None:
    image = f"{rig.shared}/image.sqsh"
    done = rig.run("pyxis-srun", *HERE, PYXIS_CONTAINER_IMAGE=image)
    assert done.stdout.split() == ["image", image], done.stderr


def test_the_flags_of_salloc_are_not_the_wrappers(rig: Rig, other: str) -> None:
    flags = ("--container-image=./image.sqsh", "--container-writable")
    words = ("pyxis-srun", other, "sh", "-c", "cat /etc/mark; touch /new")
    done = rig.run("salloc", "-Q", "-n1", *flags, *words)
    assert done.stdout.split() == ["other"], done.stderr
    assert "Read-only file system" in done.stderr


def test_a_batch_script_and_its_steps_have_the_variable(rig: Rig) -> None:
    folder = rig.folder("beside")
    image = f"{rig.shared}/image.sqsh"
    script = "cat /etc/mark; echo $PYXIS_CONTAINER_IMAGE"
    words = ("pyxis-sbatch", "-Q", "--wait", f"--output={folder}/out", "--wrap", script)
    done = rig.run(*words, PYXIS_CONTAINER_IMAGE=image)
    assert (folder / "out").read_text().split() == ["image", image], done.stderr


@pytest.mark.parametrize("command", ["srun", "pyxis-srun"])
def test_flags_without_an_image_are_told_of_once(rig: Rig, command: str) -> None:
    done = rig.run(command, "-N2", "--container-mounts=/srv", "true")
    assert (done.returncode, done.stderr.count("--container-mounts is ignored")) == (0, 1)
