"""A copy that is made while the file is written is the same in the end, whatever was when."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from enroot_py.store import growing_copy
from enroot_py.store.growing_copy import HEAD, GrowingCopy


@contextmanager
def two_files(folder: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    with (
        open(folder / "source", "w+b", buffering=0) as source,
        open(folder / "target", "w+b", buffering=0) as target,
    ):
        yield source, target


def wait_until_copied(target: BinaryIO, size: int) -> None:
    deadline = time.monotonic() + 30
    while os.fstat(target.fileno()).st_size < size:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _steps_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing_copy, "_STEP", 1000)
    monkeypatch.setattr(growing_copy, "_PAUSE", 0.001)
    # Where these tests run the file system may share blocks, and then nothing follows.
    monkeypatch.setattr(growing_copy, "share_blocks", lambda *_: False)


def test_what_is_settled_is_copied_before_the_end(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(50_000)
    with two_files(tmp_path) as (source, target), GrowingCopy(source, target, reserve=0) as copy:
        source.write(data)
        copy.follow(lambda: 20_500)
        wait_until_copied(target, 20_000)
        assert os.fstat(target.fileno()).st_size == 20_000
        # The head is written last, and what has not settled is written again and cut.
        os.pwrite(source.fileno(), b"head" * (HEAD // 4), 0)
        os.pwrite(source.fileno(), b"other", 20_500)
        os.ftruncate(source.fileno(), 30_001)
        copy.finish()
    expected = b"head" * (HEAD // 4) + data[HEAD:20_500] + b"other" + data[20_505:30_001]
    assert (tmp_path / "target").read_bytes() == expected
    assert (tmp_path / "source").read_bytes() == expected


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 5000, 123_457])
def test_files_of_any_size_are_the_same_in_the_end(tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    written = 0
    with two_files(tmp_path) as (source, target), GrowingCopy(source, target, reserve=0) as copy:
        copy.follow(lambda: written)
        for start in range(0, size, 777):
            source.write(data[start : start + 777])
            written = min(start + 777, size)
        copy.finish()
    assert (tmp_path / "target").read_bytes() == data


def test_space_that_others_need_is_left_until_the_end(tmp_path: Path) -> None:
    asked = threading.Event()

    def settled() -> int:
        asked.set()
        return 50_000

    with (
        two_files(tmp_path) as (source, target),
        GrowingCopy(source, target, reserve=sys.maxsize) as copy,
    ):
        source.write(bytes(50_000))
        copy.follow(settled)
        assert asked.wait(30)
        asked.clear()
        assert asked.wait(30)  # a whole turn has passed
        assert os.fstat(target.fileno()).st_size == 0
        copy.finish()
        assert os.fstat(target.fileno()).st_size == 50_000


def test_a_failure_on_the_way_is_told_at_the_end(tmp_path: Path) -> None:
    with open(tmp_path / "source", "w+b", buffering=0) as source, open("/dev/full", "wb") as target:
        copy = GrowingCopy(source, target, reserve=0)
        with copy:
            source.write(bytes(50_000))
            copy.follow(lambda: 50_000)
            with pytest.raises(OSError, match="No space left"):
                copy.finish()


def test_leaving_ends_the_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with two_files(tmp_path) as (source, target):
        with pytest.raises(KeyError), GrowingCopy(source, target, reserve=0) as copy:
            copy.follow(lambda: 0)
            assert len(set(threading.enumerate()) - before) == 1
            raise KeyError
        assert set(threading.enumerate()) <= before
