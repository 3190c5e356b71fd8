"""Data in squashfs files, mounted into containers, and that nothing of them is left behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hooks.contexts import write_file
from tests.hooks.sandbox import Sandbox
from tests.operations.starting import (
    DEATHS,
    gone,
    make_image,
    open_modes,
    processes_with,
    running,
)

pytestmark = pytest.mark.kernel


class Data(Sandbox):
    """A sandbox with a squashfs file that holds `a/file`, mode 0640, and a program."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        tree = folder / "tree"
        (tree / "a").mkdir(parents=True)
        (tree / "a/file").write_text("data\n")
        (tree / "a/file").chmod(0o640)
        (tree / "run").write_text("#!/bin/sh\necho ran\n")
        (tree / "run").chmod(0o755)
        self.file = make_image(tree, folder / "some data.sqsh")

    def refused(self, *words: str, **environ: str) -> str:
        """Start and fail; return what was said."""
        done = subprocess.run(
            [str(self.programs / "enroot"), "start", *words],
            env={**self.environ, **environ}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode != 0, done.stdout
        return done.stderr


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Data]:
    (tmp_path / "inner").mkdir()
    sandbox = Data(tmp_path / "inner")
    yield sandbox
    assert not gone(str(sandbox.file)), "a server outlives its container"
    open_modes(tmp_path)


@pytest.mark.parametrize("options", [(), ("--root",), ("--pid",), ("--rw", "--root", "--pid")])
def test_what_is_in_the_file_is_there_and_read_only(data: Data, options: tuple[str, ...]) -> None:
    script = (
        "cat /data/a/file; /data/run; (echo x > /data/new) 2> /dev/null || echo read-only;"
        "ls -ln /data/a/file | { read mode links uid gid rest; echo $mode $uid $gid; };"
        "id -u; id -g; grep -c ' /data ro,nosuid,nodev' /proc/self/mountinfo"
    )
    mount = f"{data.file}:/data:squashfs"
    lines = data.start(*options, "-m", mount, "box", "sh", "-c", script).split("\n")
    uid, gid = lines[4:6]
    assert lines[:4] == ["data", "ran", "read-only", f"-rw-r----- {uid} {gid}"]
    assert lines[6] == "1"


def test_a_file_may_be_mounted_twice_and_beside_an_image(data: Data, tmp_path: Path) -> None:
    image = make_image(data.rootfs, tmp_path / "inner/box.sqsh")
    mounts = (
        "-m",
        f"{data.file}:/one:squashfs",
        "-m",
        f"{data.file}:/two:squashfs:x-create=dir,noexec",
    )
    script = "cat /one/a/file /two/a/file; /one/run; /two/run 2> /dev/null || echo noexec"
    for target in ("box", str(image)):
        output = data.start(*mounts, target, "sh", "-c", script)
        assert output.split() == ["data", "data", "ran", "noexec"]
    assert not gone(str(image))


def test_fstab_files_of_the_user_may_name_it(data: Data) -> None:
    folder = data.folder / "config/enroot/mounts.d"
    path = str(data.file).replace(" ", "\\040")
    write_file(folder / "data.fstab", f"# data\n{path} /data squashfs ro,loop,x-create=dir 0 0\n")
    assert data.start("box", "cat", "/data/a/file") == "data\n"
    write_file(folder / "data.fstab", "${THERE} /data squashfs\n")
    assert data.start("box", "cat", "/data/a/file", THERE=str(data.file)) == "data\n"


def test_a_configuration_script_or_an_image_may_not(data: Data, tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.write_text("mounts() { echo '/d /data squashfs x-create=dir'; }\n")
    assert "by an image, a hook or a script" in data.refused("-c", str(conf), "box", "true")
    (data.rootfs / "etc/fstab").write_text("/d /data squashfs x-create=dir\n")
    assert "by an image, a hook or a script" in data.refused("box", "true")


def test_a_damaged_file_is_said_and_with_nofail_left_out(data: Data) -> None:
    with open(data.file, "r+b") as file:
        file.seek(96)
        file.write(b"\xff" * 400)
    assert "cannot serve" in data.refused("-m", f"{data.file}:/data:squashfs", "box", "true")
    mount = f"{data.file}:/data:squashfs:x-create=dir,nofail,silent"
    script = "grep -c ' /data ' /proc/self/mountinfo || true"
    assert data.start("-m", mount, "box", "sh", "-c", script) == "0\n"


def test_without_squashfuse_the_start_is_refused(data: Data) -> None:
    (data.folder / "none").mkdir()
    mount = f"{data.file}:/data:squashfs"
    said = data.refused("-m", mount, "box", "true", PATH=str(data.folder / "none"))
    assert "squashfuse" in said
    assert os.listdir(data.folder / "run/enroot") == []


@pytest.mark.parametrize("options", [(), ("--pid",)])
@pytest.mark.parametrize("death", DEATHS)
def test_no_process_is_left_after_any_death(
    data: Data, options: tuple[str, ...], death: str
) -> None:
    mount = f"{data.file}:/data:squashfs"
    script = "trap 'exit 9' TERM; echo ready; read word; exit 3"
    with running(data, *options, "-m", mount, "box", "sh", "-c", script) as process:
        assert any("squashfuse" in line for line in processes_with(str(data.file)))
        assert Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text() == "" or options
        number = DEATHS[death]
        if number is None:
            process.communicate("on\n")
            assert process.returncode == 3
        else:
            os.kill(process.pid, number)
            process.wait(60)
    assert not gone(str(data.file))
