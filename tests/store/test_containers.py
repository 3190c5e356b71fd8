"""Names and folders of containers, the rootfs lock, processes inside."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from enroot_py.errors import BusyError, InvalidNameError, NotFoundError, StoreError
from enroot_py.settings import Settings, load_settings
from enroot_py.store.containers import (
    RootfsLock,
    container_path,
    find_container,
    find_processes,
    list_names,
    validate_name,
)
from tests.this_process import open_files


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    data = tmp_path / "data"
    data.mkdir()
    return load_settings({"HOME": str(tmp_path), "ENROOT_DATA_PATH": str(data)})


@pytest.mark.parametrize(
    "name",
    ["ubuntu", "nvidia+cuda+12.4", "a" * 255, "x@sha256:0f", "1", "pyxis_12_a-b", "A=b,c~d", "_"],
)
def test_names_of_default_and_launcher_made_containers_are_valid(name: str) -> None:
    validate_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "a/b", "/", "../x", "-x", "--help", ".hidden", "a" * 256, "a" * 4096, "%s",
        "a b", "a\n", "a\0b", "\x1b[2J", "caf\u00e9", "\u0430dmin", "a\u200bb", "$(id)", "`id`",
        "a;b", "a*", "a\\b", "'", '"', "\udcff",
    ],
)  # fmt: skip
def test_other_names_are_refused_in_one_printable_line(name: str) -> None:
    with pytest.raises(InvalidNameError) as caught:
        validate_name(name)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_path_of_a_container_has_links_in_the_data_path_resolved(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to("data")
    linked = settings._replace(data_path=str(tmp_path / "link"))
    assert container_path(linked, "box") == str(tmp_path / "data" / "box")


def test_existing_containers_are_found_under_names_that_would_not_be_given(
    settings: Settings,
) -> None:
    for name in ("my box", "caf\u00e9", "plain"):
        os.mkdir(os.path.join(settings.data_path, name))
        assert find_container(settings, name) == os.path.join(settings.data_path, name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../data/box", ".enroot.x", "a\0b"])
def test_names_that_are_no_path_component_are_never_looked_up(
    settings: Settings, name: str
) -> None:
    os.mkdir(os.path.join(settings.data_path, ".enroot.x"))
    os.makedirs(os.path.join(settings.data_path, "a", "b"))
    with pytest.raises(InvalidNameError):
        find_container(settings, name)


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("trainning", "did you mean training?"),
        ("work", "did you mean pyxis_work or pyxis_42_work?"),
        ("zzz", "`enroot list` shows those that there are"),
    ],
)
def test_a_missing_container_brings_similar_names(
    settings: Settings, asked: str, hint: str
) -> None:
    for name in ("training", "pyxis_work", "pyxis_42_work"):
        os.mkdir(os.path.join(settings.data_path, name))
    with pytest.raises(NotFoundError) as caught:
        find_container(settings, asked)
    assert caught.value.hint == hint


def test_no_containers_at_all_is_said_so(settings: Settings) -> None:
    with pytest.raises(NotFoundError) as caught:
        find_container(settings, "box")
    assert "no containers yet" in caught.value.hint


def test_list_has_visible_folders_in_byte_order(settings: Settings) -> None:
    for name in ("b", "a", "B", "\u00e9", ".enroot.1"):
        os.mkdir(os.path.join(settings.data_path, name))
    Path(settings.data_path, "file.sqsh").touch()
    Path(settings.data_path, "linked").symlink_to("a")
    Path(settings.data_path, "dangling").symlink_to("nowhere")
    assert list_names(settings) == ("B", "a", "b", "linked", "\u00e9")


def test_list_of_a_missing_data_folder_is_empty_and_makes_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    missing = settings._replace(data_path=str(tmp_path / "no" / "data"))
    assert list_names(missing) == ()
    assert not (tmp_path / "no").exists()


def test_the_lock_stays_as_an_empty_file_and_excludes_others(tmp_path: Path) -> None:
    with RootfsLock(str(tmp_path)) as lock:
        assert lock.path == str(tmp_path / ".lock")
        with pytest.raises(BusyError, match="in use"):
            RootfsLock(str(tmp_path), timeout=0.01).__enter__()
    assert (tmp_path / ".lock").stat().st_size == 0
    with RootfsLock(str(tmp_path), timeout=0):
        pass


def test_the_lock_ends_with_execve(tmp_path: Path) -> None:
    code = (
        "import os, sys; from enroot_py.store.containers import RootfsLock;"
        "RootfsLock(sys.argv[1]).__enter__();"
        "os.execv('/bin/sh', ['sh', '-c', 'echo ready; read line'])"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        with RootfsLock(str(tmp_path), timeout=0):
            process.communicate(b"\n")


def test_waiting_for_a_container_that_is_removed_ends_with_not_found(tmp_path: Path) -> None:
    rootfs = tmp_path / "box"
    rootfs.mkdir()
    outcome: list[BaseException] = []

    def wait() -> None:
        try:
            RootfsLock(str(rootfs), timeout=30).__enter__()
        except NotFoundError as error:
            outcome.append(error)

    with RootfsLock(str(rootfs)):
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.05)
        rootfs.rename(tmp_path / "gone")
    thread.join()
    assert len(outcome) == 1


def test_two_waiting_starts_get_the_lock_of_a_container_made_anew(tmp_path: Path) -> None:
    rootfs = tmp_path / "box"
    rootfs.mkdir()
    got: list[int] = []

    def wait() -> None:
        with RootfsLock(str(rootfs), timeout=120) as lock:
            got.append(os.stat(lock.path).st_ino)

    with RootfsLock(str(rootfs)):
        threads = [threading.Thread(target=wait) for _ in range(2)]
        for thread in threads:
            thread.start()
        # Both wait; one that came later might find no container at all.
        while list(open_files().values()).count(f"{rootfs}/.lock") < 3:
            time.sleep(0.01)
        rootfs.rename(tmp_path / "gone")
        rootfs.mkdir()
        (rootfs / ".lock").touch()
    for thread in threads:
        thread.join()
    assert got == [os.stat(rootfs / ".lock").st_ino] * 2


@pytest.mark.parametrize("kind", ["link", "folder", "fifo", "socket"])
def test_an_image_cannot_bring_a_lock_that_is_no_file(tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    rootfs = tmp_path / "rootfs"
    rootfs.mkdir()
    lock = rootfs / ".lock"
    if kind == "link":
        lock.symlink_to(victim)
    elif kind == "folder":
        lock.mkdir()
    elif kind == "fifo":
        os.mkfifo(lock)
    else:
        os.mknod(lock, 0o140600)
    with pytest.raises(StoreError, match="not an ordinary file"):
        RootfsLock(str(rootfs), timeout=0).__enter__()
    assert not victim.exists()


@pytest.mark.kernel
def test_a_rootfs_that_cannot_be_written_to_needs_no_lock(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with RootfsLock(str(tmp_path), timeout=0):
            assert not (tmp_path / ".lock").exists()
    finally:
        tmp_path.chmod(0o755)


@pytest.mark.root
def test_processes_are_found_by_their_root_through_mounts(tmp_path: Path) -> None:
    rootfs, alias = tmp_path / "rootfs", tmp_path / "alias"
    for folder in (rootfs / "bin", alias):
        folder.mkdir(parents=True)
    subprocess.run(["cp", "/bin/busybox", str(rootfs / "bin/sh")], check=True)
    script = f"mount --bind {rootfs} {alias} && exec chroot {alias} /bin/sh -c 'echo; read line'"
    command = ["unshare", "--mount", "sh", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            assert find_processes([str(rootfs), str(tmp_path)]) == {
                str(rootfs): [process.pid],
                str(tmp_path): [],
            }
        finally:
            process.communicate(b"\n")
    assert find_processes([str(rootfs)]) == {str(rootfs): []}


def test_processes_of_a_missing_rootfs_are_none(tmp_path: Path) -> None:
    assert find_processes([str(tmp_path / "gone")]) == {}
