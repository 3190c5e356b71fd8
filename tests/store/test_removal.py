"""Removing trees of any mode, containers nobody uses, and leftovers."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from enroot_py.errors import BusyError, NotFoundError, StoreError
from enroot_py.store.containers import RootfsLock
from enroot_py.store.file_system import find_file_system
from enroot_py.store.locks import FileLock
from enroot_py.store.removal import (
    remove_container,
    remove_tree,
    remove_unfinished,
    unfinished_path,
)


def make_odd_tree(rootfs: Path) -> None:
    """Folders and files of every awkward mode and name."""
    rootfs.mkdir()
    names = ["plain", "-rf", "new\nline", "x" * 255, os.fsdecode(b"\xff\xfe"), ".wh.x", " "]
    for mode in (0o000, 0o111, 0o222, 0o444, 0o500, 0o555, 0o700):
        folder = rootfs / f"mode-{mode:o}"
        folder.mkdir()
        for name in names:
            (folder / name).mkdir()
            (folder / name / "file").write_text("x")
            (folder / name / "file").chmod(mode)
            (folder / name).chmod(mode)
        folder.chmod(mode)
    os.mkfifo(rootfs / "fifo", 0o000)
    os.mknod(rootfs / "socket", 0o140000)
    (rootfs / "dangling").symlink_to("/nowhere")
    rootfs.chmod(0o000)


def test_a_tree_of_any_modes_and_names_is_removed(tmp_path: Path) -> None:
    make_odd_tree(tmp_path / "box")
    remove_tree(str(tmp_path / "box"))
    assert os.listdir(tmp_path) == []


def test_links_are_removed_and_their_targets_are_not(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "sub").mkdir(parents=True)
    (outside / "file").write_text("kept")
    outside.chmod(0o555)
    rootfs = tmp_path / "box"
    rootfs.mkdir()
    (rootfs / "absolute").symlink_to(outside)
    (rootfs / "relative").symlink_to("../outside/sub")
    os.link(outside / "file", rootfs / "hard")
    remove_tree(str(rootfs))
    assert (outside / "file").read_text() == "kept"
    assert outside.stat().st_mode & 0o777 == 0o555
    outside.chmod(0o755)


def test_a_link_in_place_of_the_tree_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "box").symlink_to("kept")
    with pytest.raises(OSError):
        remove_tree(str(tmp_path / "box"))
    assert (tmp_path / "kept").is_dir()


def test_depth_needs_neither_recursion_nor_descriptors(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "box")
    fd = os.open(tmp_path / "box", os.O_RDONLY)
    for _ in range(3000):  # 3,000 names of 100 bytes: 300,000 bytes of path, PATH_MAX is 4,096
        os.mkdir("d" * 100, dir_fd=fd)
        inner = os.open("d" * 100, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, limits[1]))
    try:
        remove_tree(str(tmp_path / "box"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert os.listdir(tmp_path) == []


def test_a_removed_container_frees_its_name_and_leaves_nothing(tmp_path: Path) -> None:
    make_odd_tree(tmp_path / "box")
    remove_container(str(tmp_path / "box"))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_what_is_no_container_is_not_removed(tmp_path: Path, kind: str) -> None:
    if kind == "file":
        (tmp_path / "box").write_text("kept")
    before = os.listdir(tmp_path)
    with pytest.raises(NotFoundError):
        remove_container(str(tmp_path / "box"))
    assert os.listdir(tmp_path) == before


def test_a_linked_container_loses_its_link_alone(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "box").symlink_to("elsewhere")
    remove_container(str(tmp_path / "box"))
    assert os.listdir(tmp_path) == ["elsewhere"]


def test_a_container_being_started_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    with RootfsLock(str(tmp_path / "box")), pytest.raises(BusyError):
        remove_container(str(tmp_path / "box"), patience=0.01)
    assert os.listdir(tmp_path / "box") == [".lock"]


def test_a_container_whose_lock_is_no_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / "box" / ".lock").mkdir(parents=True)
    remove_container(str(tmp_path / "box"))
    assert os.listdir(tmp_path) == []


@pytest.mark.root
def test_a_container_that_runs_is_in_use_and_one_that_ends_is_waited_for(tmp_path: Path) -> None:
    box = tmp_path / "box"
    (box / "bin").mkdir(parents=True)
    subprocess.run(["cp", "/bin/busybox", str(box / "bin/sh")], check=True)
    command = ["chroot", str(box), "/bin/sh", "-c", "echo; read line"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(BusyError, match=str(process.pid)):
            remove_container(str(box), patience=0.01)
        assert (box / "bin/sh").exists()
        process.kill()
        remove_container(str(box), patience=30)
    assert os.listdir(tmp_path) == []


@pytest.mark.root
def test_a_mount_in_a_tree_stops_the_removal_and_keeps_its_contents(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    target = tmp_path / "box" / "sub" / "mnt"
    for mount in (["--bind", str(kept)], ["-t", "tmpfs", "tmpfs"]):
        target.mkdir(parents=True)
        subprocess.run(["mount", *mount, str(target)], check=True)
        try:
            with pytest.raises(StoreError, match=r"mounted on mnt"):
                remove_tree(str(tmp_path / "box"))
        finally:
            subprocess.run(["umount", str(target)], check=True)
        assert (kept / "file").exists()
        remove_tree(str(tmp_path / "box"))


@pytest.mark.root
def test_root_removes_what_another_user_made(tmp_path: Path) -> None:
    make_odd_tree(tmp_path / "box")
    for folder, folders, files in os.walk(tmp_path / "box"):
        for name in (*folders, *files):
            os.chown(os.path.join(folder, name), 12345, 12345, follow_symlinks=False)
    remove_container(str(tmp_path / "box"))
    assert os.listdir(tmp_path) == []


def test_leftovers_of_killed_processes_are_removed_and_work_in_progress_is_not(
    tmp_path: Path,
) -> None:
    code = (
        "import os, sys\n"
        "from enroot_py.store.locks import FileLock\n"
        "from enroot_py.store.removal import unfinished_path\n"
        "path = unfinished_path(sys.argv[1])\n"
        "FileLock(path + '.lock').acquire()\n"
        "os.makedirs(path + '/sub')\n"
        "open(unfinished_path(sys.argv[1]), 'w').close()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert len(os.listdir(tmp_path)) == 3
    (tmp_path / ".enroot.stray.lock").touch()
    (tmp_path / ".enrootrc").touch()
    mine = unfinished_path(str(tmp_path))
    with FileLock(mine + ".lock"):
        os.mkdir(mine)
        remove_unfinished(str(tmp_path))
        names = {os.path.basename(mine), os.path.basename(mine) + ".lock", ".enrootrc"}
        assert set(os.listdir(tmp_path)) == names


def test_looking_for_leftovers_never_fails(tmp_path: Path) -> None:
    remove_unfinished(str(tmp_path / "missing"))
    (tmp_path / ".enroot.link").symlink_to("/etc")
    os.mkfifo(tmp_path / ".enroot.fifo")
    remove_unfinished(str(tmp_path))
    assert len(os.listdir(tmp_path)) == 2


def test_on_a_network_file_system_what_is_young_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine may be making it: locks can be each machine's own there."""
    real = find_file_system(str(tmp_path))
    monkeypatch.setattr(
        "enroot_py.store.removal.find_file_system", lambda path: real._replace(kind="lustre")
    )
    for name in ("young", "old"):
        path = tmp_path / f".enroot.{name}"
        (path / "etc").mkdir(parents=True)
        path.with_name(f"{path.name}.lock").touch()
    two_days_ago = os.stat(tmp_path).st_mtime - 2 * 86400
    for path in (tmp_path / ".enroot.old", tmp_path / ".enroot.old.lock"):
        os.utime(path, (two_days_ago, two_days_ago))
    remove_unfinished(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == [".enroot.young", ".enroot.young.lock"]
