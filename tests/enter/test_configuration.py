from __future__ import annotations

import os
from pathlib import Path

import pytest

from enroot_py.enter.configuration import (
    ENVIRON,
    gather_environ_files,
    gather_mount_files,
    read_own_file,
)
from enroot_py.errors import SettingsError
from enroot_py.settings import Settings, load_settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(
        {
            "HOME": str(tmp_path),
            "ENROOT_SYSCONF_PATH": str(tmp_path / "system"),
            "ENROOT_CONFIG_PATH": str(tmp_path / "user"),
        }
    )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def names(texts: tuple[tuple[str, str], ...]) -> list[str]:
    return [os.path.basename(name) for name, _ in texts]


def test_without_folders_the_built_in_tables_are_used(settings: Settings) -> None:
    assert names(gather_mount_files(settings, None)) == ["system.fstab", "config.fstab"]
    assert names(gather_environ_files(settings, None)) == ["terminal.env"]


def test_the_image_comes_first_then_the_system_then_the_user(
    tmp_path: Path, settings: Settings
) -> None:
    write(tmp_path / "user/environ.d/1.env", "U=1")
    texts = gather_environ_files(settings, b"I=\xff")
    assert texts[0] == (f"the container's {ENVIRON}", "I=\udcff")
    assert names(texts[1:]) == ["terminal.env", "1.env"]
    assert texts[-1][1] == "U=1"


@pytest.mark.parametrize("gather", [gather_mount_files, gather_environ_files])
def test_a_system_folder_replaces_the_tables_even_when_empty(
    tmp_path: Path, settings: Settings, gather: object
) -> None:
    for folder in ("mounts.d", "environ.d"):
        (tmp_path / "system" / folder).mkdir(parents=True)
    assert callable(gather)
    assert gather(settings, None) == ()


def test_files_are_taken_in_byte_order_by_their_suffix(tmp_path: Path, settings: Settings) -> None:
    for name in ("b.fstab", "B.fstab", "10.fstab", "9.fstab", ".x.fstab", "a.fstab~", "a.env"):
        write(tmp_path / "system/mounts.d" / name, name)
    (tmp_path / "system/mounts.d/folder.fstab").mkdir()
    os.mkfifo(tmp_path / "system/mounts.d/fifo.fstab")
    (tmp_path / "system/mounts.d/gone.fstab").symlink_to("nowhere")
    assert names(gather_mount_files(settings, None)) == [
        "10.fstab",
        "9.fstab",
        "B.fstab",
        "b.fstab",
    ]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, settings: Settings) -> None:
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 30)
    (tmp_path / "user/mounts.d").mkdir(parents=True)
    (tmp_path / "user/mounts.d/x.fstab").symlink_to(tmp_path / "huge")
    with pytest.raises(SettingsError, match=r"x\.fstab"):
        gather_mount_files(settings, None)


def test_the_images_files_are_read_beneath_its_root(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("A=host")
    rootfs = tmp_path / "rootfs"
    (rootfs / "etc").mkdir(parents=True)
    fd = os.open(rootfs, os.O_PATH)
    try:
        assert read_own_file(fd, ENVIRON) is None
        (rootfs / "etc/environment").symlink_to(secret)
        assert read_own_file(fd, ENVIRON) is None
        (rootfs / "etc/environment").unlink()
        os.mkfifo(rootfs / "etc/environment")
        assert read_own_file(fd, ENVIRON) is None
        (rootfs / "etc/environment").unlink()
        with open(rootfs / "etc/environment", "wb") as file:
            file.truncate(1 << 30)
        with pytest.raises(SettingsError, match="/etc/environment"):
            read_own_file(fd, ENVIRON)
    finally:
        os.close(fd)
