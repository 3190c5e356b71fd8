"""What a site sets: how images are kept, seen in the step that runs, and importers of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.registry.fake_registry import FakeRegistry
from tests.registry.images import ImageStore, busybox_layer, file
from tests.slurm.rig import Rig

pytestmark = pytest.mark.slurm

NODE = 4
STEP = ("pyxis-srun", "-w", f"node{NODE}")


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    images = ImageStore()
    images.image("t/box", "1", [busybox_layer(), [file("etc/mark", "registry\n")]])
    with FakeRegistry(images) as registry:
        yield registry


@pytest.fixture(autouse=True)
def nothing_left(rig: Rig) -> Iterator[None]:
    yield
    rig.wait_until_idle()
    rig.as_root(NODE, "rm", "-rf", f"{rig.base}/local/cache-{rig.user.pw_name}")
    assert rig.remains() == []


def look(rig: Rig, image: str, setting: str, *flags: str) -> dict[str, str]:
    """Look at a step while it runs, from inside and from its node.

    Returns:
        What it has printed: that there is a mount of FUSE, and that squashfuse runs; the folders in
        enroot's data folder, and the image files in the cache.
    """
    data, cache = (f"{rig.base}/local/{name}-{rig.user.pw_name}" for name in ("data", "cache"))
    script = (
        "cat /etc/mark;"
        " grep -q ' - fuse' /proc/self/mountinfo && echo fuse mount;"
        # The container sees the processes of its node.
        " for pid in /proc/[0-9]*; do tr '\\0' ' ' < $pid/cmdline 2> /dev/null"
        f" | grep -q '^[^ ]*squashfuse .*{image.partition('=')[2]}' && echo squashfuse; done;"
        f" echo folders: $(ls /look/{Path(data).name});"
        f" echo images: $(find /look/{Path(cache).name} -name '*.sqsh')"
    )
    mounts = f"--container-mounts={rig.base}/local:/look"
    done = rig.run(*STEP, image, mounts, *flags, "/bin/busybox", "sh", "-c", script,
                   PYXIS_PLUGIN_OPTIONS=setting)  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition(": ")
        seen[name.rstrip(":")] = value
    return seen


@pytest.mark.parametrize("flags", [(), ("--container-writable",), ("--container-readonly",)])
def test_images_are_unpacked_without_squashfuse(
    rig: Rig, image: str, flags: tuple[str, ...]
) -> None:
    served = look(rig, image, "use_squashfuse=yes", *flags)
    assert ("fuse mount" in served, "squashfuse" in served) == (True, True), served
    assert served["folders"] == ""
    assert rig.remains() == []  # its server may end after it
    unpacked = look(rig, image, "use_squashfuse=no", *flags)
    assert ("fuse mount" in unpacked, "squashfuse" in unpacked) == (False, False), unpacked
    assert unpacked["folders"].startswith("pyxis_"), unpacked


def test_images_are_loaded_without_a_file_in_between(rig: Rig, registry: FakeRegistry) -> None:
    image = f"--container-image={registry.host}/t/box:1"
    loaded = look(rig, image, "use_enroot_load=yes")
    assert "registry" in loaded
    assert loaded["images"] == "", loaded
    assert loaded["folders"].startswith("pyxis_"), loaded
    assert "fuse mount" not in loaded
    rig.as_root(NODE, "rm", "-rf", f"{rig.base}/local/cache-{rig.user.pw_name}")
    imported = look(rig, image, "use_enroot_load=no")
    assert imported["images"].endswith(".sqsh"), imported
    assert imported["folders"] == ""


def write_importer(rig: Rig, get: str, release: str = "exit 0", mode: int = 0o755) -> str:
    """Write an importer that notes what it is called with; return the setting that names it."""
    folder = rig.folder("importer")
    for name in ("importer", "log"):
        (folder / name).touch()
        (folder / name).chmod(0o666)
    (folder / "importer").write_text(
        f"#!/bin/sh\necho $1 >> {folder}/log\n[ $1 = get ] && {{ {get}; exit; }}\n{release}\n"
    )
    (folder / "importer").chmod(mode)
    return f"importer={folder}/importer"


def calls(rig: Rig) -> list[str]:
    return (rig.shared / "importer/log").read_text().split()


def test_ours_is_an_importer_of_the_site(rig: Rig, registry: FakeRegistry) -> None:
    """As an administrator writes it: a script of one line."""
    folder = rig.folder("importer")
    script = folder / "pyxis-importer"
    script.write_text(f'#!/bin/sh\nexec {rig.programs}/pyxis importer "$@"\n')
    script.chmod(0o755)
    image = f"--container-image={registry.host}/t/box:1"
    for flags in ((), ("--container-save=./importer/saved.sqsh",)):
        done = rig.run(*STEP, "-n2", image, *flags, "cat", "/etc/mark",
                       PYXIS_PLUGIN_OPTIONS=f"importer={script}")  # fmt: skip
        assert done.stdout == "registry\n" * 2, done.stderr
    assert len(registry.paths("/blobs/")) == 3  # in the cache from the first step on
    gone = rig.run(*STEP, f"{image}x", "true", PYXIS_PLUGIN_OPTIONS=f"importer={script}")
    assert gone.returncode != 0
    assert "importer failed with status 1" in gone.stderr, gone.stderr
    assert f"{registry.host}" in gone.stderr and "1x" in gone.stderr


_SAVE = ("--container-save=./importer/never.sqsh",)
"""With it the image is unpacked, and not only started from."""


@pytest.mark.parametrize(
    ("get", "mode", "said", "flags"),
    [
        ("echo no path", 0o755, "printed no path of an image: 'no path'", ()),
        ("true", 0o755, "printed no path of an image: ''", ()),
        ("echo out of luck >&2; exit 3", 0o755, "out of luck", _SAVE),
        ("kill -TERM $$", 0o755, "The importer was ended by signal 15", ()),
        ("echo {shared}/image.sqsh", 0o644, "importer/importer: Permission denied", ()),
        ("echo /no/such/image.sqsh", 0o755, "/no/such/image.sqsh", ()),
        ("echo /no/such/image.sqsh", 0o755, "/no/such/image.sqsh", _SAVE),
        ("echo /etc/passwd", 0o755, "/etc/passwd", ()),
        ("echo /etc/passwd", 0o755, "/etc/passwd", _SAVE),
    ],
)
def test_an_importer_that_brings_no_image(
    rig: Rig, get: str, mode: int, said: str, flags: tuple[str, ...]
) -> None:
    setting = write_importer(rig, get.format(shared=rig.shared), mode=mode)
    done = rig.run(*STEP, "-n2", "--container-image=some:1", *flags, "echo", "ran",
                   PYXIS_PLUGIN_OPTIONS=setting)  # fmt: skip
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert not (rig.shared / "importer/never.sqsh").exists()
    if mode == 0o755:
        # Whatever it holds for the step it may let go of.
        assert calls(rig)[0] == "get" and calls(rig)[-1] == "release", calls(rig)


def test_an_importer_that_is_not_there(rig: Rig) -> None:
    done = rig.run(*STEP, "--container-image=some:1", "echo", "ran",
                   PYXIS_PLUGIN_OPTIONS="importer=/no/such/importer")  # fmt: skip
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert "Cannot run the importer /no/such/importer: No such file" in done.stderr, done.stderr


@pytest.mark.parametrize("flags", [(), ("--container-save=./importer/kept.sqsh",)])
def test_an_importer_that_cannot_let_go(rig: Rig, flags: tuple[str, ...]) -> None:
    """The step's own work is done."""
    setting = write_importer(rig, f"echo {rig.shared}/image.sqsh", "echo stuck >&2; exit 5")
    done = rig.run(*STEP, "-n2", "--container-image=some:1", *flags, "cat", "/etc/mark",
                   PYXIS_PLUGIN_OPTIONS=setting)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "image\n" * 2), done.stderr
    assert "importer failed with status 5" in done.stderr, done.stderr
    assert "stuck" in done.stderr
    assert "Traceback" not in done.stderr
    assert (rig.shared / "importer/kept.sqsh").exists() == bool(flags)
    assert calls(rig).count("get") == 1
