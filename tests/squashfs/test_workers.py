"""Work shared out among forked processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from enroot_py import log
from enroot_py.errors import LimitError, SquashfsError
from enroot_py.squashfs.reading.workers import run_portions
from tests.this_process import children


@pytest.fixture(autouse=True)
def alone() -> None:
    """Wait for threads of earlier tests to end: beside one all work is done by this process, which
    a test here would kill.
    """
    for thread in set(threading.enumerate()) - {threading.current_thread()}:
        thread.join(60)
    assert threading.active_count() == 1


@pytest.mark.parametrize("processors", [1, 2, 7, 40])
@pytest.mark.parametrize("count", [0, 1, 3, 500])
def test_every_portion_is_done_once(tmp_path: Path, processors: int, count: int) -> None:
    def do(number: int) -> None:
        # O_EXCL: a second time would fail.
        os.close(os.open(tmp_path / str(number), os.O_CREAT | os.O_EXCL))

    run_portions(do, count, processors=processors)
    assert sorted(map(int, os.listdir(tmp_path))) == list(range(count))


def test_more_portions_than_a_pipe_holds_numbers(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "marks", os.O_CREAT | os.O_RDWR)
    count = 50_001
    run_portions(lambda number: os.pwrite(fd, b"x", number) and None, count, processors=3)
    assert os.pread(fd, count + 1, 0) == b"x" * count
    os.close(fd)


def test_error_keeps_its_type_text_and_hint(tmp_path: Path) -> None:
    def do(number: int) -> None:
        if number == 3:
            raise LimitError("too much of it", hint="take less")

    with pytest.raises(LimitError, match="too much of it") as caught:
        run_portions(do, 10, processors=2)
    assert caught.value.hint == "take less"


def test_the_rest_is_given_up_after_an_error(tmp_path: Path) -> None:
    def do(number: int) -> None:
        if number == 0:
            raise OSError(28, "No space left on device")
        (tmp_path / str(number)).touch()
        time.sleep(0.01)

    with pytest.raises(OSError, match="No space left") as caught:
        run_portions(do, 2000, processors=2)
    assert caught.value.errno == 28
    assert len(os.listdir(tmp_path)) < 1000


def test_death_of_a_process_is_noticed() -> None:
    def do(number: int) -> None:
        if number == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(SquashfsError, match="died"):
        run_portions(do, 10, processors=2)


def test_bug_in_a_process_is_no_success(capfd: pytest.CaptureFixture[str]) -> None:
    def do(number: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(SquashfsError, match="died"):
        run_portions(do, 4, processors=2)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_warning_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, str]] = []
    monkeypatch.setattr(log, "_warned", set())
    monkeypatch.setattr(log, "_sink", lambda level, text: said.append((level, text)))
    run_portions(lambda number: log.warn_once("cause", "text " * 2000), 64, processors=4)
    assert len(said) == 1
    assert said[0][1].startswith("text text")


def test_children_are_gone_afterwards() -> None:
    before = children()
    run_portions(lambda number: None, 8, processors=4)
    assert children() == before
