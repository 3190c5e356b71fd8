"""Locks between processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from enroot_py.errors import BusyError
from enroot_py.store.locks import FileLock, is_current, try_lock, wait_for_lock


def test_a_lock_file_is_there_only_while_it_is_held(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with FileLock(path):
        assert os.path.exists(path)
        assert not FileLock(path).try_acquire()
    assert not os.path.exists(path)
    lock = FileLock(path)
    assert lock.try_acquire()
    lock.release()
    lock.release()
    assert os.listdir(tmp_path) == []


def test_waiting_can_be_called_off_and_limited(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with FileLock(path):
        with pytest.raises(BusyError):
            FileLock(path).acquire(timeout=0.01)
        with pytest.raises(BusyError):
            FileLock(path).acquire(cancelled=lambda: True)


def test_a_lock_is_never_held_twice_though_its_file_comes_and_goes(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    holders: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(50):
            with FileLock(path):
                holders.append(1)
                most.append(len(holders))
                holders.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 400
    assert max(most) == 1
    assert os.listdir(tmp_path) == []


def test_whoever_waited_for_a_removed_lock_file_waits_for_the_new_one(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    inside: list[str] = []

    def wait() -> None:
        with FileLock(path):
            inside.append("waiting one")

    first, second = FileLock(path), FileLock(path)
    first.acquire()
    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    first.release()
    if second.try_acquire():  # as a rule: the waiting one looks only now and then
        time.sleep(0.1)
        assert inside == []
        second.release()
    thread.join()
    assert inside == ["waiting one"]
    assert os.listdir(tmp_path) == []


def test_a_killed_holder_leaves_a_lock_that_the_next_one_takes(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    code = (
        "import sys, os; from enroot_py.store.locks import FileLock;"
        "FileLock(sys.argv[1]).acquire(); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == -9
    assert os.path.exists(path)
    with FileLock(path):
        pass
    assert os.listdir(tmp_path) == []


def test_shared_locks_exclude_exclusive_ones_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    Path(path).touch()
    fds = [os.open(path, os.O_RDWR) for _ in range(3)]
    try:
        assert try_lock(fds[0], path, exclusive=False)
        assert try_lock(fds[1], path, exclusive=False)
        assert not try_lock(fds[2], path)
        assert not wait_for_lock(fds[2], path, deadline=0)
        os.close(fds.pop(0))
        os.close(fds.pop(0))
        assert try_lock(fds[0], path)
    finally:
        for fd in fds:
            os.close(fd)


def test_a_file_is_current_until_its_path_names_another(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("w") as file:
        assert is_current(file.fileno(), str(path))
        path.rename(tmp_path / "other")
        assert not is_current(file.fileno(), str(path))
        path.symlink_to("other")
        assert not is_current(file.fileno(), str(path))


def test_a_lock_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        FileLock(str(tmp_path / "lock")).acquire()
    assert not (tmp_path / "victim").exists()
