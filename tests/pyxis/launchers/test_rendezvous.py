"""Tasks that meet: the first starts, the rest get its answer, the last is told that it is."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import pytest

from enroot_py import EnrootError, StoreError
from pyxis_py.launchers.rendezvous import Counts, Rendezvous, remove_stale
from pyxis_py.runtime_folder import find_folder, make_base, make_user_folder


@pytest.fixture(autouse=True)
def closed_descriptors(tmp_path: Path) -> Iterator[None]:
    """A task that takes part keeps descriptors until it ends; here many tasks are one process."""
    yield
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing's own
            if os.readlink(f"/proc/self/fd/{name}").startswith(f"{tmp_path}/"):
                os.close(int(name))


def start_slowly(path: str) -> bytes:
    time.sleep(0.2)
    return str(os.getpid()).encode()


def take_part(base: str, queue: object) -> None:
    meeting = Rendezvous(base, "1.0.aa", tasks=4)
    answer = meeting.come(start_slowly)
    queue.put((answer, meeting.end()))  # type: ignore[attr-defined]


def test_one_starts_all_get_its_answer_and_one_is_last(tmp_path: Path) -> None:
    context = get_context("fork")
    queue = context.Queue()
    tasks = [context.Process(target=take_part, args=(str(tmp_path), queue)) for _ in range(4)]
    for task in tasks:
        task.start()
    outcomes = [queue.get(timeout=30) for _ in tasks]
    for task in tasks:
        task.join()
    assert len({answer for answer, _ in outcomes}) == 1
    assert sorted(last for _, last in outcomes) == [False, False, False, True]


def test_a_start_that_died_fails_the_others(tmp_path: Path) -> None:
    def die(path: str) -> bytes:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        Rendezvous(str(tmp_path), "1.0.aa", tasks=2).come(die)
    with pytest.raises(EnrootError, match="ended unexpectedly"):
        Rendezvous(str(tmp_path), "1.0.aa", tasks=2).come(start_slowly)


def test_the_folder_goes_with_the_last_that_joins(tmp_path: Path) -> None:
    meetings = [Rendezvous(str(tmp_path), "1.0.aa", tasks=2) for _ in range(2)]
    for meeting in meetings:
        assert meeting.come(lambda path: b"answer") == b"answer"
    meetings[0].report_joined(stay=False)
    assert meetings[0].counts() == Counts(2, 1, 0)
    meetings[1].report_joined(stay=False)
    assert list(tmp_path.iterdir()) == []


def come_and_be_killed(base: Path, *, tasks: int) -> None:
    """Take part in another process, which ends without a word."""
    pid = os.fork()
    if pid == 0:
        Rendezvous(str(base), "1.0.aa", tasks=tasks).come(lambda path: b"answer")
        os._exit(0)
    os.waitpid(pid, 0)


def test_one_that_is_killed_before_it_joins_is_not_waited_for(tmp_path: Path) -> None:
    come_and_be_killed(tmp_path, tasks=3)
    meetings = [Rendezvous(str(tmp_path), "1.0.aa", tasks=3) for _ in range(2)]
    for meeting in meetings:
        meeting.come(start_slowly)
    line_fd = os.open(f"{meetings[0].path}/line", os.O_RDWR | os.O_NONBLOCK)
    meetings[0].report_joined(stay=False)
    assert os.read(line_fd, 10) == b"\0"
    meetings[1].report_joined(stay=False)
    assert os.read(line_fd, 10) == b"\0\0"  # the keeper needs to wait for nobody else
    os.close(line_fd)
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_killed_while_it_runs_leaves_the_end_to_the_last(tmp_path: Path) -> None:
    come_and_be_killed(tmp_path, tasks=3)
    meetings = [Rendezvous(str(tmp_path), "1.0.aa", tasks=3) for _ in range(2)]
    for meeting in meetings:
        meeting.come(start_slowly)
        meeting.report_joined(stay=True)
    assert [meeting.end() for meeting in meetings] == [False, True]


def test_the_last_that_gives_up_removes_the_folder(tmp_path: Path) -> None:
    meetings = [Rendezvous(str(tmp_path), "1.0.aa", tasks=3) for _ in range(3)]
    for meeting in meetings:
        meeting.come(lambda path: b"answer")
    for meeting in meetings:
        assert (tmp_path / "1.0.aa").exists()
        meeting.give_up()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_stays_while_tasks_are_to_come(tmp_path: Path) -> None:
    first = Rendezvous(str(tmp_path), "1.0.aa", tasks=2)
    first.come(lambda path: b"answer")
    first.give_up()
    late = Rendezvous(str(tmp_path), "1.0.aa", tasks=2)
    assert late.counts() == Counts(1, 0, 0)
    late.remove()


def test_folders_of_killed_steps_go_and_others_stay(tmp_path: Path) -> None:
    living = Rendezvous(str(tmp_path), "2.0.bb", tasks=2)
    for name in ("3.0.cc", "4.0.dd", "5.0.ee"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "alive").touch()
        if name != "4.0.dd":
            os.utime(folder / "alive", (1, 1))
    os.utime(tmp_path / "2.0.bb/alive", (1, 1))
    (tmp_path / "rc.local").touch()
    remove_stale(str(tmp_path), "5")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "2.0.bb", "4.0.dd", "5.0.ee", "rc.local",
    ]  # fmt: skip
    living.remove()


def test_the_sites_folder_is_used_where_it_is_ours(tmp_path: Path) -> None:
    base = str(tmp_path / "pyxis")
    make_base(base)
    make_user_folder(base, os.getuid(), os.getgid())
    make_user_folder(base, os.getuid(), os.getgid())
    assert find_folder(base, {}) == f"{base}/{os.getuid()}"
    assert os.stat(find_folder(base, {})).st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "pyxis").mkdir()
    (tmp_path / "pyxis").chmod(0o777)
    with pytest.raises(StoreError, match="others can write"):
        find_folder("/nosuch", {"XDG_RUNTIME_DIR": str(tmp_path)})


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / "pyxis").symlink_to("target")
    with pytest.raises(StoreError, match="belongs to somebody else"):
        find_folder("/nosuch", {"XDG_RUNTIME_DIR": str(tmp_path)})
