"""Squashfs files as sources of mounts: what is prepared, and what is refused with which words."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from enroot_py import log
from enroot_py.enter.data_images import DataImages, is_served
from enroot_py.enter.mounts import Mounter
from enroot_py.errors import EnrootError, KernelError, NotFoundError, SquashfsError
from enroot_py.plan.fstab import Mount, parse_fstab, parse_mount
from tests.fakes import RecordingKernel


@pytest.fixture
def image(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    command = ["mksquashfs", tmp_path / "data", tmp_path / "data.sqsh", "-quiet", "-no-progress"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return tmp_path / "data.sqsh"


def images(**environment: str) -> DataImages:
    return DataImages(environment, uid=0, gid=0)


@pytest.mark.parametrize(
    ("text", "served", "options"),
    [
        ("FILE:/data:squashfs", True, ("x-create=dir",)),
        ("FILE:/data:squashfs:ro,loop", True, ("ro", "loop")),
        ("FILE:/data", False, ("rbind", "x-create=auto")),
        ("FILE:/data:squashfs:bind", False, ("bind",)),
        ("FILE:/data:squashfs:remount,noexec", False, ("remount", "noexec")),
        ("FILE:/data:squashfs:x-detach", False, ("x-detach",)),
        ("/no/such:/data:squashfs", True, ("x-create=dir",)),
    ],
)
def test_the_type_says_that_the_contents_are_meant(
    image: Path, text: str, served: bool, options: tuple[str, ...]
) -> None:
    mount = parse_mount(text.replace("FILE", str(image)))
    assert mount.options == options
    assert is_served(mount) is served
    line = text.replace("FILE", str(image)).replace(":", " ")
    assert parse_fstab(line, {}, "x.fstab") == (mount,)


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ("/no/such", NotFoundError, "No such file"),
        ("/etc/passwd", SquashfsError, "Not a squashfs image"),
        ("/etc", SquashfsError, "Not a regular file"),
    ],
)
def test_what_cannot_be_mounted_is_said_before_anything_happens(
    source: str, error: type[EnrootError], words: str
) -> None:
    with pytest.raises(error, match=words):
        images().prepare([Mount(source, "/data", "squashfs")])
    images().prepare([Mount(source, "/data", "squashfs", ("nofail",))])


def test_without_a_program_that_serves_it_the_remedy_is_named(image: Path) -> None:
    with pytest.raises(EnrootError, match="squashfuse or /dev/fuse is missing") as caught:
        images(PATH="/no/such").prepare([Mount(str(image), "/data", "squashfs")])
    assert "squashfuse" in caught.value.hint


class Box:
    """A rootfs with the folder /data."""

    def __init__(self, folder: Path) -> None:
        self.kernel = RecordingKernel()
        self.rootfs = folder / "rootfs"
        (self.rootfs / "data").mkdir(parents=True)

    def apply(self, mount: Mount, prepared: DataImages | None = None) -> None:
        with Mounter(self.kernel, str(self.rootfs), locked=True) as mounter:
            mounter.data_images = prepared
            mounter.apply([mount])


def test_an_entry_that_turns_up_too_late_is_refused(image: Path, tmp_path: Path) -> None:
    box = Box(tmp_path)
    mount = Mount(str(image), "/data", "squashfs")
    for prepared in (None, images()):
        with pytest.raises(EnrootError, match="by an image, a hook or a script") as caught:
            box.apply(mount, prepared)
        assert "mounts.d" in caught.value.hint
    assert box.kernel.called("mount") == []


@pytest.mark.parametrize("option", ["rw", "size=1M", "threads=2"])
def test_options_that_mean_nothing_are_refused(image: Path, tmp_path: Path, option: str) -> None:
    with pytest.raises(EnrootError, match=f"the option {option}"):
        Box(tmp_path).apply(Mount(str(image), "/data", "squashfs", (option,)))


def test_with_nofail_a_refusal_is_a_warning_and_with_silent_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    log.set_sink(lambda level, text: said.append(f"[{level}] {text}"))
    try:
        for options in (("nofail",), ("nofail", "silent")):
            mount = Mount("/etc/passwd", "/data", "squashfs", options)
            prepared = images()
            prepared.prepare([mount])
            (tmp_path / options[-1]).mkdir()
            Box(tmp_path / options[-1]).apply(mount, prepared)
    finally:
        log.set_sink(None)
    assert said == ["[WARN] Not a squashfs image: /etc/passwd"]


def test_a_block_device_is_left_to_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = os.stat("/etc/passwd")
    fields = list(status)
    fields[0] = 0o60600
    real = os.stat

    def stat(path: object, **rest: object) -> os.stat_result:
        if path == "/dev/sdx":
            return os.stat_result(fields)
        return real(path, **rest)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(os, "stat", stat)
    box = Box(tmp_path)
    box.apply(Mount("/dev/sdx", "/data", "squashfs", ("ro",)))
    assert [call[2] for call in box.kernel.called("mount")] == ["squashfs"]


def test_binding_the_file_to_a_folder_hints_at_the_type(image: Path, tmp_path: Path) -> None:
    box = Box(tmp_path)

    def refuse(*call: object) -> None:
        raise KernelError("mount", 20, "x")

    box.kernel.mount = refuse  # type: ignore[method-assign]
    with pytest.raises(KernelError) as caught:
        box.apply(Mount(str(image), "/data", "none", ("bind",)))
    assert f"{image}:/data:squashfs" in caught.value.hint
