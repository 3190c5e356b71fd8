"""Sinks that never block, sources that keep lines whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from pyxis_py.kubernetes.launcher.wire.loop import Loop
from pyxis_py.kubernetes.launcher.wire.streams import LONGEST_LINE, LineSource, Sink


@pytest.fixture
def loop() -> Iterator[Loop]:
    found = Loop()
    yield found
    found.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        try:
            os.close(fd)
        except OSError:
            pass


def run_until(loop: Loop, done: Callable[[], object]) -> None:
    def check() -> None:
        if done():
            loop.stop()
        else:
            loop.call_later(0.005, check)

    loop.stopped = False
    check()
    loop.call_later(100, loop.stop)
    loop.run()
    assert done()


def read_all(fd: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += os.read(fd, count - len(data))
    return data


def test_a_slow_reader_gets_everything_and_nobody_is_blocked(
    loop: Loop, pipe: tuple[int, int]
) -> None:
    sink = Sink(loop, pipe[1])
    drained: list[int] = []
    sink.on_drained = lambda: drained.append(1)
    data = os.urandom(1_000_000)
    sink.write(data)
    assert sink.backlog > 900_000
    received = bytearray()

    def read() -> None:
        received.extend(os.read(pipe[0], 100_000))

    loop.on_readable(pipe[0], read)
    run_until(loop, lambda: drained and len(received) == len(data))
    assert bytes(received) == data
    assert sink.backlog == 0


def test_whoever_writes_the_rest_tells_that_it_is_written(
    loop: Loop, pipe: tuple[int, int]
) -> None:
    """Otherwise those who wait for a slow reader wait for ever."""
    sink = Sink(loop, pipe[1])
    drained: list[int] = []
    sink.on_drained = lambda: drained.append(1)
    sink.write(bytes(66_000))
    assert sink.backlog
    read_all(pipe[0], 65_536)
    sink.write(b"x")
    assert sink.backlog == 0
    assert drained == [1]


def test_a_reader_that_has_gone_is_told_once(loop: Loop, pipe: tuple[int, int]) -> None:
    sink = Sink(loop, pipe[1])
    broken: list[str] = []
    sink.on_broken = broken.append
    os.close(pipe[0])
    sink.write(b"x")
    sink.write(b"y")
    assert broken == ["Broken pipe"]
    assert sink.broken


def test_a_sink_that_is_closed_writes_the_rest_first(loop: Loop, pipe: tuple[int, int]) -> None:
    sink = Sink(loop, pipe[1], owned=True)
    sink.write(bytes(100_000))
    sink.close()
    received = bytearray()
    ended: list[bool] = []

    def read() -> None:
        data = os.read(pipe[0], 50_000)
        received.extend(data)
        if not data:
            loop.on_readable(pipe[0], None)
            ended.append(True)

    loop.on_readable(pipe[0], read)
    run_until(loop, lambda: ended)
    assert len(received) == 100_000


@pytest.mark.parametrize("path", ["/dev/null", "/dev/full"])
def test_devices_take_everything_or_fail_at_once(loop: Loop, path: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    sink = Sink(loop, fd, owned=True)
    sink.write(bytes(100_000))
    assert sink.broken is (path == "/dev/full")
    sink.close()
    with pytest.raises(OSError):
        os.fstat(fd)


def gather(loop: Loop, fd: int, *, unbuffered: bool = False) -> tuple[LineSource, list[bytes]]:
    found: list[bytes] = []
    return LineSource(loop, fd, found.append, unbuffered=unbuffered), found


def test_lines_are_kept_whole(loop: Loop, pipe: tuple[int, int]) -> None:
    _, found = gather(loop, pipe[0])
    os.write(pipe[1], b"one\ntw")
    run_until(loop, lambda: found)
    os.write(pipe[1], b"o\n")
    run_until(loop, lambda: len(found) == 2)
    os.write(pipe[1], b"end")
    os.close(pipe[1])
    run_until(loop, lambda: b"" in found)
    assert found == [b"one\n", b"two\n", b"end", b""]


def test_the_beginning_of_a_line_comes_after_a_while(loop: Loop, pipe: tuple[int, int]) -> None:
    _, found = gather(loop, pipe[0])
    os.write(pipe[1], b"prompt> ")
    run_until(loop, lambda: found)
    assert found == [b"prompt> "]


def test_a_line_that_is_too_long_is_not_kept(loop: Loop, pipe: tuple[int, int]) -> None:
    _, found = gather(loop, pipe[0])
    sent = 0

    def feed() -> None:
        nonlocal sent
        if sent <= LONGEST_LINE:
            sent += os.write(pipe[1], bytes(32_768))
            loop.call_later(0, feed)

    feed()
    run_until(loop, lambda: sum(map(len, found)) > LONGEST_LINE)


def test_an_unbuffered_source_passes_everything_on(loop: Loop, pipe: tuple[int, int]) -> None:
    _, found = gather(loop, pipe[0], unbuffered=True)
    os.write(pipe[1], b"one\ntw")
    run_until(loop, lambda: found)
    assert found == [b"one\ntw"]


def test_a_paused_source_reads_nothing_and_drains_what_is_there(
    loop: Loop, pipe: tuple[int, int]
) -> None:
    source, found = gather(loop, pipe[0])
    source.pause()
    os.write(pipe[1], b"one\ntwo")
    loop.call_later(0.05, loop.stop)
    loop.run()
    assert found == []
    source.drain()
    assert found == [b"one\n", b"two", b""] or found == [b"one\ntwo", b""]
    assert source.closed
