"""Environment definition files on a cluster: devices, annotations, batch scripts, what wins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.doors import PLUGIN, WRAPPER, Door
from tests.slurm.images import make_image
from tests.slurm.rig import Rig

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.usefixtures("plugin"),
    pytest.mark.parametrize("door", [PLUGIN, WRAPPER], ids=lambda door: door.name),
]

_HOOK = """\
#!/bin/sh
env | grep '^PYXIS_ANNOTATION_' | sed 's/^PYXIS_ANNOTATION_/SEEN_/' >> "$ENROOT_ENVIRON"
"""


@pytest.fixture
def folder(rig: Rig) -> Iterator[Path]:
    """A folder of the user's for files; nothing is left on the nodes afterwards."""
    yield rig.folder("definitions")
    assert rig.remains() == []


def write(rig: Rig, folder: Path, text: str, *, name: str = "job") -> str:
    """Write a file whose image is the usual one; return the flag."""
    path = folder / f"{name}.toml"
    path.write_text(f'image = "{rig.shared}/image.sqsh"\n{text}')
    return f"--environment={path}"


@pytest.fixture
def things(rig: Rig) -> str:
    """The name of a class of devices that node1 has specifications of."""
    devices = [
        {
            "name": name,
            "containerEdits": {
                "env": [f"THING={name}"],
                "deviceNodes": [{"path": f"/dev/thing-{name}", "hostPath": "/dev/zero"}],
            },
        }
        for name in ("one", "two")
    ]
    kind = "tests.example/thing"
    text = json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": devices})
    rig.as_root(1, "mkdir", "-p", "/etc/cdi")
    rig.as_root(1, "sh", "-c", f"cat > /etc/cdi/thing.json <<'END'\n{text}\nEND")
    return kind


@pytest.mark.parametrize(
    ("flags", "expected"),
    [((), "one /dev/thing-one"), (("--container-device={things}=two",), "two /dev/thing-two")],
    ids=["file", "flag wins"],
)
def test_devices_are_injected(
    rig: Rig, door: Door, folder: Path, things: str, flags: tuple[str, ...], expected: str
) -> None:
    flag = write(rig, folder, f'devices = ["{things}=one"]\n')
    more = [word.format(things=things) for word in flags]
    script = "echo $THING /dev/thing-*; head -c 1 /dev/thing-* | wc -c"
    done = rig.run(*door.srun, "-w", "node1", flag, *more, "sh", "-c", script)
    assert done.stdout.splitlines() == [expected, "1"], done.stderr


def test_a_device_that_no_node_has_is_named(rig: Rig, door: Door, folder: Path) -> None:
    flag = write(rig, folder, 'devices = ["tests.example/nosuch=one"]\n')
    done = rig.run(*door.srun, "-w", "node1", flag, "true")
    assert done.returncode != 0
    assert "tests.example/nosuch" in done.stderr


def test_annotations_reach_hooks(rig: Rig, door: Door, folder: Path) -> None:
    hooks = folder / "config/hooks.d"
    hooks.mkdir(parents=True)
    hook = hooks / "60-annotations.sh"
    hook.write_text(_HOOK)
    hook.chmod(0o755)
    flag = write(
        rig, folder,
        '[annotations]\ncom.hooks.fabric.enabled = "true"\ncom.hooks.fabric.variant = "cuda 12"\n',
    )  # fmt: skip
    script = 'env | grep -E "^(SEEN|PYXIS_ANNOTATION)_"'
    words = (*door.srun, "-w", "node1", flag, "sh", "-c", script)
    done = rig.run(*words, ENROOT_CONFIG_PATH=str(folder / "config"))
    assert sorted(done.stdout.splitlines()) == [
        "SEEN_COM_HOOKS_FABRIC_ENABLED=true", "SEEN_COM_HOOKS_FABRIC_VARIANT=cuda 12",
    ], done.stderr  # fmt: skip


def test_a_batch_script_names_its_environment(rig: Rig, door: Door, folder: Path) -> None:
    write(rig, folder, 'workdir = "/opt"\n[env]\nADDED = "${USER}: ${IN_IMAGE}, ${NO:-n}"\n')
    log = folder / "batch.out"
    script = folder / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --environment=job\ncat /etc/mark; pwd; echo $ADDED\n")
    sbatch = "pyxis-sbatch" if door is WRAPPER else "sbatch"
    done = rig.run(sbatch, "--parsable", f"--output={log}", f"--error={log}.err", "-w", "node1",
                   str(script), EDF_PATH=str(folder))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert rig.wait_for_job(done.stdout.strip()) == "COMPLETED", log.read_text()
    assert log.read_text().splitlines() == ["image", "/opt", f"{rig.user.pw_name}: yes, n"]


def test_a_flag_wins_over_a_variable_and_that_over_the_file(
    rig: Rig, door: Door, folder: Path
) -> None:
    write(rig, folder, 'workdir = "/etc"\nwritable = true\n[env]\nA = "base"\n', name="base")
    flag = write(rig, folder, 'base_environment = "base"\nworkdir = "/opt"\nentrypoint = false\n')
    script = "pwd; touch /new 2> /dev/null && echo writable; echo $A"

    def lines(*flags: str, **environ: str) -> list[str]:
        done = rig.run(*door.srun, "-w", "node1", flag, *flags, "sh", "-c", script,
                       EDF_PATH=str(folder), **environ)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    variables = {"PYXIS_CONTAINER_WORKDIR": "/tmp", "PYXIS_CONTAINER_READONLY": "1"}
    assert lines() == ["/opt", "writable", "base"]
    assert lines(**variables) == ["/tmp", "base"]
    assert lines("--container-workdir=/mnt", "--container-writable", **variables) == [
        "/mnt", "writable", "base",
    ]  # fmt: skip


def test_a_mount_of_a_flag_lies_over_one_of_the_file(rig: Rig, door: Door, folder: Path) -> None:
    flag = write(rig, folder, 'mounts = ["/usr:/m", "/etc:/n"]\n')
    script = "test -e /m/debian_version && test -e /n/debian_version && echo both"
    done = rig.run(
        *door.srun, "-w", "node1", flag, "--container-mounts=/etc:/m", "sh", "-c", script
    )
    assert done.stdout == "both\n", done.stderr


def test_what_is_in_a_squashfs_file_can_be_mounted(rig: Rig, door: Door, folder: Path) -> None:
    make_image(folder / "data.sqsh", mark="data")
    flag = write(rig, folder, 'mounts = ["${DATA}/data.sqsh:/data:sqsh"]\n')
    more = f"--container-mounts={folder}/data.sqsh:/more:squashfs+ro"
    done = rig.run(*door.srun, "-w", "node1", flag, more, "cat", "/data/etc/mark", "/more/etc/mark",
                   "/etc/mark", DATA=str(folder))  # fmt: skip
    assert done.stdout.split() == ["data", "data", "image"], done.stderr


def test_a_variable_that_neither_image_nor_job_has_is_named(
    rig: Rig, door: Door, folder: Path
) -> None:
    flag = write(rig, folder, '[env]\nA = "${NOWHERE}"\n')
    done = rig.run(*door.srun, "-w", "node1", flag, "true")
    assert done.returncode != 0
    assert "env.A: the variable NOWHERE is not set" in done.stderr


def test_a_file_without_an_image_says_so(rig: Rig, door: Door, folder: Path) -> None:
    path = folder / "none.toml"
    path.write_text('workdir = "/opt"\n')
    flag = f"--environment={path}"
    done = rig.run(*door.srun, "-w", "node1", flag, "true")
    assert done.returncode != 0
    assert f"{path}" in done.stderr and "no image" in done.stderr, done.stderr
    given = f"--container-image={rig.shared}/image.sqsh"
    assert rig.run(*door.srun, "-w", "node1", flag, given, "pwd").stdout == "/opt\n"
