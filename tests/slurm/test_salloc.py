"""salloc with the plugin's flags: they are defaults of the steps that srun starts inside."""

from __future__ import annotations

import subprocess

import pytest

from tests.registry.fake_registry import FakeRegistry
from tests.registry.images import ImageStore, busybox_layer, file
from tests.slurm.plugin import plugin_line
from tests.slurm.rig import Rig

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("plugin")]

HERE = "cat /etc/mark 2> /dev/null || echo host"


def salloc(
    rig: Rig, flags: tuple[str, ...], script: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    return rig.run("salloc", "-Q", "-w", "node1", "-n1", *flags, "sh", "-c", script, **environ)


def test_steps_run_in_the_allocations_image_and_its_command_does_not(rig: Rig, image: str) -> None:
    script = f"{HERE}; srun sh -c '{HERE}; pwd'; srun --container-workdir=/tmp pwd"
    done = salloc(rig, (image,), script)
    assert done.stdout.split() == ["host", "image", "/srv", "/tmp"], done.stderr
    rig.wait_until_idle()
    assert rig.remains() == []


def test_a_step_adds_to_lists_and_cannot_take_another_image(
    rig: Rig, image: str, other: str
) -> None:
    flags = (image, "--container-mounts=/etc:/a", "--container-mounts=/usr:/b")
    ls = "ls -d /a/debian_version /b/bin /c/lib 2> /dev/null"
    done = salloc(rig, flags, f"srun {ls}; srun --container-mounts=/var:/c {ls}; srun {other} true")
    mounts = ["/a/debian_version", "/b/bin"]
    assert done.stdout.split() == [*mounts, *mounts, "/c/lib"], done.stderr
    assert done.returncode != 0
    assert "--container-image was given more than once" in done.stderr


def test_the_flags_of_a_step_do_not_reach_one_that_is_started_inside(rig: Rig, image: str) -> None:
    mounts = "--container-mounts=/etc:/a --container-mounts=/usr:/b"
    inner = f"srun --overlap {image} --container-mounts=/usr:/b ls -d /a /b"
    # What the first step leaves in the environment, without its container.
    names = f"srun {image} {mounts} env | grep ^SLURM_PYXIS_REPEATED"
    done = salloc(rig, (), f"kept=$({names}); echo $kept; export $kept; {inner}")
    kept, *rest = done.stdout.rstrip("\n").split("\n")  # splitlines takes \x1e for an end
    assert kept.startswith("SLURM_PYXIS_REPEATED_1=/etc:/a"), done
    assert rest == ["/b"], done


def test_wrong_flags_end_before_there_is_an_allocation(rig: Rig, image: str) -> None:
    flags = ("-J", "wrong-salloc", image, "--container-unshare=foo")
    done = salloc(rig, flags, "echo ran")
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert "unknown namespace 'foo'" in done.stderr
    assert rig.run("squeue", "-h", "-t", "all", "-n", "wrong-salloc").stdout == ""


def test_a_tag_means_for_all_steps_what_it_meant_for_salloc(rig: Rig) -> None:
    images = ImageStore()
    images.image("t/box", "1", [busybox_layer(), [file("etc/mark", "registry\n")]])
    with FakeRegistry(images) as registry:
        flag = f"--container-image={registry.host}/t/box:1"
        done = salloc(rig, (flag,), "srun cat /etc/mark; srun cat /etc/mark")
        assert done.stdout.split() == ["registry", "registry"], done.stderr
        asked = [entry for entry in registry.paths("/manifests/") if entry.endswith("/1")]
    assert len(asked) == 1
    rig.run("srun", "-w", "node1", "rm", "-rf", f"{rig.base}/local/cache-{rig.user.pw_name}")


@pytest.mark.parametrize(
    ("first", "second", "marks"),
    [
        ("{image}", "", ["0: image", "1: image"]),
        ("{image}", "{image}", ["0: image", "1: image"]),
        ("", "{image}", []),
        ("{image}", "{other}", []),
    ],
)
def test_components_of_an_allocation(
    rig: Rig, image: str, other: str, first: str, second: str, marks: list[str]
) -> None:
    flags = [word.format(image=image, other=other).split() for word in (first, second)]
    done = rig.run(
        "salloc", "-w", "node1", "-n1", *flags[0], ":", "-w", "node2", "-n1", *flags[1],
        "srun", "-l", "--het-group=0,1", "sh", "-c", HERE,
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == marks, done.stderr
    if not marks:
        assert done.returncode != 0
        assert "give them to the first" in done.stderr


def test_a_site_can_keep_the_flags_from_salloc(rig: Rig, image: str) -> None:
    variable = {"PYXIS_CONTAINER_IMAGE": image.partition("=")[2]}
    with rig.plugstack(plugin_line(rig, "sbatch_support=no")):
        refused = salloc(rig, (image,), "srun true")
        done = salloc(rig, (), f"{HERE}; srun {image} cat /etc/mark")
        by_variable = salloc(rig, (), f"{HERE}; srun cat /etc/mark", **variable)
    assert refused.returncode != 0
    assert "unrecognized option" in refused.stderr
    assert done.stdout.split() == ["host", "image"], done.stderr
    assert by_variable.stdout.split() == ["host", "image"], by_variable.stderr


def test_pyxis_srun_takes_the_flags_in_an_allocation_without_the_plugin(
    rig: Rig, image: str
) -> None:
    with rig.plugstack(""):
        refused = salloc(rig, (image,), "true")
        done = salloc(rig, (), f"{HERE}; pyxis-srun {image} cat /etc/mark")
    assert "unrecognized option" in refused.stderr
    assert done.stdout.split() == ["host", "image"], done.stderr
