"""Files of a hostile rootfs: nothing outside of it is read or written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from enroot_py.hooks.rootfs_files import RootfsFiles
from tests.this_process import open_files


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    folder = tmp_path / "rootfs"
    (folder / "etc").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "outside").mkdir()
    return folder


@pytest.mark.parametrize(
    "target",
    ["../secret", "../../secret", "/../secret", "../../../../../../{}/secret", "/{}/secret"],
)
def test_a_link_to_the_host_leads_nowhere(rootfs: Path, target: str) -> None:
    (rootfs / "etc/passwd").symlink_to(target.format(str(rootfs.parent).strip("/")))
    with RootfsFiles(str(rootfs)) as files:
        assert files.read("/etc/passwd", limit=100) is None
        assert files.stat("/etc/passwd") is None


@pytest.mark.parametrize("target", ["/private/etc", "private/etc", "../private/../private/etc"])
def test_a_linked_folder_is_followed_beneath_the_rootfs(rootfs: Path, target: str) -> None:
    (rootfs / "etc").rmdir()
    (rootfs / "private/etc").mkdir(parents=True)
    (rootfs / "etc").symlink_to(target)
    with RootfsFiles(str(rootfs)) as files:
        files.replace("/etc/passwd", b"root\n", mode=0o640)
        assert files.read("/etc/passwd", limit=100) == b"root\n"
    written = rootfs / "private/etc/passwd"
    assert written.read_bytes() == b"root\n"
    assert written.stat().st_mode & 0o7777 == 0o640


def test_writing_below_a_link_to_the_host_stays_inside(rootfs: Path) -> None:
    outside = rootfs.parent / "outside"
    (rootfs / "etc").rmdir()
    (rootfs / "etc").symlink_to(outside)
    with RootfsFiles(str(rootfs)) as files:
        files.replace("/etc/passwd", b"x", mode=0o644)
    assert not list(outside.iterdir())
    assert (rootfs / str(outside).strip("/") / "passwd").read_bytes() == b"x"


def test_a_link_is_replaced_not_written_through(rootfs: Path) -> None:
    (rootfs / "etc/real").write_text("real")
    (rootfs / "etc/passwd").symlink_to("real")
    with RootfsFiles(str(rootfs)) as files:
        files.replace("/etc/passwd", b"new", mode=0o644)
        files.replace_with_link("/etc/localtime", "../zone")
    assert (rootfs / "etc/real").read_text() == "real"
    assert (rootfs / "etc/passwd").read_bytes() == b"new"
    assert not (rootfs / "etc/passwd").is_symlink()
    assert os.readlink(rootfs / "etc/localtime") == "../zone"
    assert sorted(os.listdir(rootfs / "etc")) == ["localtime", "passwd", "real"]


def test_a_fifo_is_no_file_and_is_not_waited_for(rootfs: Path) -> None:
    os.mkfifo(rootfs / "etc/group")
    with RootfsFiles(str(rootfs)) as files:
        assert files.read("/etc/group", limit=100) is None
        files.replace("/etc/group", b"x", mode=0o644)
    assert (rootfs / "etc/group").read_bytes() == b"x"


def test_a_file_over_the_limit_is_refused(rootfs: Path) -> None:
    with open(rootfs / "etc/passwd", "wb") as file:
        file.truncate(1 << 40)
    with RootfsFiles(str(rootfs)) as files, pytest.raises(OSError) as caught:
        files.read("/etc/passwd", limit=1 << 20)
    assert caught.value.errno == errno.EFBIG


def test_links_in_a_circle_end(rootfs: Path) -> None:
    (rootfs / "etc/a").symlink_to("b")
    (rootfs / "etc/b").symlink_to("a")
    with RootfsFiles(str(rootfs)) as files, pytest.raises(OSError) as caught:
        files.read("/etc/a", limit=100)
    assert caught.value.errno == errno.ELOOP


def test_a_failed_write_leaves_nothing_behind(rootfs: Path) -> None:
    (rootfs / "etc/passwd").mkdir()
    with RootfsFiles(str(rootfs)) as files, pytest.raises(OSError):
        files.replace("/etc/passwd", b"x", mode=0o644)
    with RootfsFiles(str(rootfs)) as files, pytest.raises(OSError):
        files.replace_with_link("/etc/passwd", "x")
    assert os.listdir(rootfs / "etc") == ["passwd"]


@pytest.mark.parametrize("path", ["", "/", "/etc/..", "."])
def test_a_path_without_a_name_cannot_be_written(rootfs: Path, path: str) -> None:
    with RootfsFiles(str(rootfs)) as files, pytest.raises(OSError):
        files.replace(path, b"x", mode=0o644)


def test_folders_are_made_with_the_mode_asked_for(rootfs: Path) -> None:
    with RootfsFiles(str(rootfs)) as files:
        files.make_directories("/home/a/b", mode=0o700)
        files.make_directories("/home/a", mode=0o755)
    modes = [(rootfs / path).stat().st_mode & 0o777 for path in ("home", "home/a", "home/a/b")]
    assert modes == [0o755, 0o755, 0o700]  # parents as useradd makes them


def test_a_dangling_link_to_a_folder_gets_its_folder(rootfs: Path) -> None:
    (rootfs / "home").symlink_to("/var/home")
    with RootfsFiles(str(rootfs)) as files:
        files.make_directories("/home/user", mode=0o700)
    assert (rootfs / "var/home/user").is_dir()


def test_a_tree_is_copied_with_modes_and_times(rootfs: Path) -> None:
    skeleton = rootfs / "etc/skel"
    (skeleton / ".config").mkdir(parents=True)
    (skeleton / ".config/x").write_text("x")
    (skeleton / ".bashrc").write_text("rc")
    (skeleton / ".bashrc").chmod(0o600)
    os.utime(skeleton / ".bashrc", ns=(1, 10**18))
    (skeleton / "leak").symlink_to(rootfs.parent / "secret")
    (skeleton / "link").symlink_to(".bashrc")
    os.mkfifo(skeleton / "fifo")
    with RootfsFiles(str(rootfs)) as files:
        files.make_directories("/home", mode=0o700)
        files.copy_tree("/etc/skel", "/home")
        files.copy_tree("/etc/missing", "/home")
    home = rootfs / "home"
    assert sorted(os.listdir(home)) == [".bashrc", ".config", "link"]
    assert (home / ".bashrc").stat().st_mode & 0o777 == 0o600
    assert (home / ".bashrc").stat().st_mtime_ns == 10**18
    assert (home / ".config/x").read_text() == "x"
    assert (home / "link").read_text() == "rc"
    assert not (home / "link").is_symlink()


def test_no_descriptor_is_left_open(rootfs: Path) -> None:
    before = open_files()
    (rootfs / "etc/loop").symlink_to("loop")
    (rootfs / "etc/passwd").mkdir()
    with RootfsFiles(str(rootfs)) as files:
        for path in ("/etc/loop", "/etc/passwd", "/no/such", "/etc/passwd/deep"):
            try:
                files.read(path, limit=1)
                files.replace(path, b"x", mode=0o644)
            except OSError:
                pass
    assert open_files() == before
