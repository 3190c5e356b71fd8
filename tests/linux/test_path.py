"""Paths inside a hostile rootfs stay inside of it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from enroot_py.errors import KernelError
from enroot_py.linux.path import read_beneath, read_file, resolve
from tests.this_process import open_files


class Root:
    def __init__(self, folder: Path) -> None:
        self.rootfs = folder / "rootfs"
        self.outside = folder / "outside"
        self.rootfs.mkdir()
        self.outside.mkdir()
        (self.outside / "secret").write_text("host")
        self.fd = os.open(self.rootfs, os.O_PATH | os.O_DIRECTORY)

    def where(self, path: str, create: str = "") -> str:
        """Return where a path leads to, as a path below the rootfs."""
        with resolve(self.fd, path, create=create) as place:
            return os.readlink(place.path).removeprefix(str(self.rootfs)) or "/"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    made = Root(tmp_path)
    yield made
    assert not [name for name in os.listdir(made.outside) if name != "secret"]
    os.close(made.fd)


@pytest.mark.parametrize(
    "path",
    ["", "/", ".", "//", "..", "/../..", "a/..", "/a/../../..", "a/../b/../.."],
)
def test_the_root_is_as_high_as_it_goes(root: Root, path: str) -> None:
    (root.rootfs / "a").mkdir()
    (root.rootfs / "b").mkdir()
    assert root.where(path) == "/"


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("etc", "/elsewhere"),
        ("etc", "elsewhere"),
        ("etc", "../../../elsewhere"),
        ("etc", "./elsewhere/../elsewhere/."),
        ("etc", "/../elsewhere"),
        ("etc", "//elsewhere//"),
    ],
)
def test_links_are_followed_beneath_the_root(root: Root, link: str, target: str) -> None:
    (root.rootfs / "elsewhere").mkdir()
    (root.rootfs / "elsewhere/passwd").write_text("x")
    (root.rootfs / link).symlink_to(target)
    assert root.where(f"/{link}/passwd") == "/elsewhere/passwd"
    assert root.where(link) == "/elsewhere"


def test_a_link_to_the_host_leads_into_the_rootfs(root: Root) -> None:
    (root.rootfs / "etc").symlink_to(root.outside)
    with pytest.raises(KernelError) as caught:
        root.where("etc/secret")
    assert caught.value.errno == errno.ENOENT
    made = f"{root.outside}/secret"
    assert root.where("etc/secret", create="file") == made
    assert (root.outside / "secret").read_text() == "host"


def test_a_magic_link_is_only_its_text(root: Root) -> None:
    """A bound /proc: its links to open files lead there by text, not by the kernel's magic."""
    fd = os.open(root.outside, os.O_PATH)
    proc = os.open("/proc/self", os.O_PATH)
    try:
        assert os.access(f"/proc/self/fd/{fd}/secret", os.F_OK)
        with pytest.raises(KernelError) as caught:
            resolve(proc, f"fd/{fd}/secret")
        assert caught.value.errno == errno.ENOENT
    finally:
        os.close(fd)
        os.close(proc)


def test_loops_end(root: Root) -> None:
    (root.rootfs / "a").symlink_to("b")
    (root.rootfs / "b").symlink_to("a")
    before = open_files()
    for create in ("", "dir", "file"):
        with pytest.raises(KernelError) as caught:
            root.where("a/x", create=create)
        assert caught.value.errno == errno.ELOOP
    assert open_files() == before


def test_a_long_chain_of_links_is_followed_to_its_end(root: Root) -> None:
    (root.rootfs / "end").mkdir()
    previous = "end"
    for number in range(40):
        (root.rootfs / f"l{number}").symlink_to(previous)
        previous = f"l{number}"
    assert root.where("l39") == "/end"
    (root.rootfs / "l40").symlink_to("l39")
    with pytest.raises(KernelError):
        root.where("l40")


@pytest.mark.parametrize("create", ["dir", "file"])
def test_what_is_missing_is_made(root: Root, create: str) -> None:
    assert root.where("/a/b/../c/d", create=create) == "/a/c/d"
    made = os.lstat(root.rootfs / "a/c/d")
    assert stat.S_IMODE(made.st_mode) == 0
    assert stat.S_ISDIR(made.st_mode) == (create == "dir")
    assert stat.S_IMODE(os.lstat(root.rootfs / "a/c").st_mode) == 0o755 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_what_is_there_is_left_alone(root: Root) -> None:
    (root.rootfs / "file").write_text("x")
    assert root.where("file", create="dir") == "/file"
    assert (root.rootfs / "file").read_text() == "x"


def test_a_dangling_link_is_made_good_beneath_the_root(root: Root) -> None:
    (root.rootfs / "etc").mkdir()
    (root.rootfs / "etc/resolv.conf").symlink_to("../run/systemd/resolve/stub-resolv.conf")
    (root.rootfs / "var").symlink_to(f"{root.outside}/var")
    made = root.where("etc/resolv.conf", create="file")
    assert made == "/run/systemd/resolve/stub-resolv.conf"
    assert root.where("var/run", create="dir") == f"{root.outside}/var/run"


@pytest.mark.parametrize("create", ["", "dir", "file"])
def test_a_file_is_no_folder(root: Root, create: str) -> None:
    (root.rootfs / "file").write_text("x")
    with pytest.raises(KernelError) as caught:
        root.where("file/x", create=create)
    assert caught.value.errno == errno.ENOTDIR
    assert "file/x" in str(caught.value)


def test_a_place_is_looked_up_again(root: Root) -> None:
    (root.rootfs / "a").mkdir()
    with resolve(root.fd, "a/b", create="dir") as place:
        os.rename(root.rootfs / "a/b", root.rootfs / "a/old")
        assert os.readlink(place.path).endswith("/a/old")
        os.mkdir(root.rootfs / "a/b")
        place.reopen()
        assert os.readlink(place.path).endswith("/a/b")


def test_no_descriptor_is_left_open(root: Root) -> None:
    (root.rootfs / "a/b").mkdir(parents=True)
    (root.rootfs / "l").symlink_to("/a/b/../b")
    before = open_files()
    for path in ("/", "a", "a/b", "l", "l/../../..", "l/x/y"):
        root.where(path, create="dir")
        with pytest.raises(KernelError):
            root.where(path + "/missing/missing")
    assert open_files() == before


def test_only_regular_files_are_read(root: Root) -> None:
    (root.rootfs / "folder").mkdir()
    os.mkfifo(root.rootfs / "fifo")
    (root.rootfs / "to-fifo").symlink_to("fifo")
    (root.rootfs / "file").write_bytes(b"x\xff")
    (root.rootfs / "escape").symlink_to(root.outside / "secret")
    for name in ("folder", "fifo", "to-fifo", "missing", "file/x", "escape"):
        assert read_beneath(root.fd, name, limit=10) is None
    assert read_beneath(root.fd, "file", limit=10) == b"x\xff"


def test_large_files_are_refused(root: Root) -> None:
    with open(root.rootfs / "huge", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(KernelError) as caught:
        read_beneath(root.fd, "huge", limit=1 << 20)
    assert caught.value.errno == errno.EFBIG
    (root.rootfs / "fits").write_bytes(b"x" * 100)
    assert read_beneath(root.fd, "fits", limit=100) == b"x" * 100


def test_endless_and_waiting_files_do_not_hold_up(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too large"):
        read_file("/dev/zero", limit=1 << 20)
    os.mkfifo(tmp_path / "fifo")
    assert read_file(str(tmp_path / "fifo"), limit=10) == b""
