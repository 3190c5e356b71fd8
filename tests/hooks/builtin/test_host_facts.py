"""Home folder, time zone, apt and MIG: hooks that look at the host and ask for a little."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from enroot_py import log
from enroot_py.hooks.builtin import aptfix, home, localtime, mig_config
from enroot_py.hooks.builtin.mig_config import names_whole_gpus
from tests.hooks.contexts import Container, write_file


@pytest.mark.parametrize(
    ("host_home", "remap_root", "target"),
    [
        ("/home/alice", False, "/home/alice"),
        ("/home/alice", True, "/root"),
        ("/home/a b", False, "/home/a b"),
    ],
)
def test_the_home_folder_is_mounted(
    container: Container, host_home: str, remap_root: bool, target: str
) -> None:
    context = container.context({"HOME": host_home}, mount_home=True, remap_root=remap_root)
    edits = home.run(context)
    assert [(mount.source, mount.target) for mount in edits.mounts] == [(host_home, target)]
    assert edits.mounts[0].options == ("x-create=dir", "bind", "rw", "nosuid")
    assert edits.environ == (("HOME", target),)


@pytest.mark.parametrize("host_home", ["/", "//", "relative"])
def test_a_root_folder_is_never_mounted_as_home(container: Container, host_home: str) -> None:
    lines: list[str] = []
    log.set_sink(lambda level, text: lines.append(level))
    try:
        edits = home.run(container.context({"HOME": host_home}, mount_home=True))
    finally:
        log.set_sink(None)
    assert (edits.mounts, edits.environ, lines) == ((), (), ["WARN"])


def test_home_is_off_unless_asked_for(container: Container) -> None:
    assert home.run(container.context({"HOME": "/home/alice"})) == ((), ())


@pytest.mark.parametrize(
    ("debian", "remap_root", "written"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_apt_is_configured_for_a_lone_root(
    container: Container, debian: bool, remap_root: bool, written: bool
) -> None:
    if debian:
        container.write("/etc/debian_version", "12\n")
    aptfix.run(container.context(remap_root=remap_root))
    path = container.rootfs / "etc/apt/apt.conf.d/enroot"
    assert path.exists() is written
    if written:
        assert path.read_text() == 'APT::Sandbox::User "root";\n'
        before = path.stat().st_ino
        aptfix.run(container.context(remap_root=remap_root))
        assert path.stat().st_ino == before


@pytest.fixture
def zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host whose time zone is linked from a folder of its own."""
    zone = write_file(tmp_path / "zoneinfo/Europe/Berlin", b"TZif2")
    (tmp_path / "localtime").symlink_to("zoneinfo/Europe/Berlin")
    real = os.readlink

    def readlink(path: str, *, dir_fd: int | None = None) -> str:
        if path == "/etc/localtime" and dir_fd is None:
            return real(tmp_path / "localtime")
        return real(path, dir_fd=dir_fd)

    monkeypatch.setattr(localtime.os, "readlink", readlink)
    monkeypatch.setattr(localtime.os.path, "realpath", lambda _: str(zone))
    return zone


def test_the_time_zone_is_linked_and_copied(container: Container, zone: Path) -> None:
    container.write("/etc/localtime", "old")
    assert localtime.run(container.context()) == ((), ())
    assert os.readlink(container.rootfs / "etc/localtime") == "zoneinfo/Europe/Berlin"
    assert (container.rootfs / str(zone).lstrip("/")).read_bytes() == b"TZif2"


def test_a_zone_that_the_image_has_is_kept(container: Container, zone: Path) -> None:
    container.write(str(zone), "image's")
    localtime.run(container.context())
    assert container.read(str(zone)) == "image's"


def test_an_unwritable_rootfs_gets_the_zone_mounted(
    container: Container, zone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(localtime.RootfsFiles, "replace_with_link", refuse)
    (mount,) = localtime.run(container.context()).mounts
    assert (mount.source, mount.target) == (str(zone), "/etc/localtime")
    assert {"bind", "ro", "nofail"} <= set(mount.options)


@pytest.mark.parametrize(
    ("visible", "whole"),
    [
        ("all", True),
        ("0,2", True),
        ("GPU-00000000-0000-0000-0000-000000000000", True),
        ("0:1", False),
        ("MIG-0000", False),
        ("void", False),
        ("none", False),
        ("", False),
        ("-L", False),
        ("0;reboot", False),
        ("--help", False),
    ],
)
def test_mig_is_asked_about_for_whole_gpus_only(visible: str, whole: bool) -> None:
    assert names_whole_gpus(visible) is whole


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        ("Disabled\nEnabled\n", (("NVIDIA_MIG_CONFIG_DEVICES", "all"),)),
        ("Disabled\n", ()),
        (None, ()),
    ],
)
def test_mig_configuration_follows_nvidia_smi(
    container: Container,
    monkeypatch: pytest.MonkeyPatch,
    modes: str | None,
    expected: tuple[tuple[str, str], ...],
) -> None:
    programs = container.folder / "bin"
    script = f"#!/bin/sh\necho \"$@\" > {container.folder}/arguments\nprintf '%s' '{modes}'\n"
    if modes is not None:
        write_file(programs / "nvidia-smi", script, mode=0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.defpath}")
    edits = mig_config.run(container.context(environ={"NVIDIA_VISIBLE_DEVICES": "0,1"}))
    assert edits.environ == expected
    if modes is not None:
        words = (container.folder / "arguments").read_text().split()
        assert words[-2:] == ["-i", "0,1"]
