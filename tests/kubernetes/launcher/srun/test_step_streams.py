"""srun's side of the streams of tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from pyxis_py.kubernetes.launcher.job.job_file import parse_job
from pyxis_py.kubernetes.launcher.srun.options import parse_srun
from pyxis_py.kubernetes.launcher.srun.step_streams import StepStreams
from pyxis_py.kubernetes.launcher.wire import messages
from pyxis_py.kubernetes.launcher.wire.loop import Loop
from tests.kubernetes.launcher.pods import job_content

JOB = parse_job(job_content(2), {})


class Agent:
    """Stands for the connection to an agent: notes what it is sent."""

    def __init__(self, *, established: bool) -> None:
        self.established = established
        self.sent: list[tuple[int, bytes]] = []
        self.paused = False

    def send(self, kind: int, payload: bytes) -> None:
        self.sent.append((kind, payload))

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


@pytest.fixture
def loop() -> Iterator[Loop]:
    found = Loop()
    yield found
    found.close()


def streams(loop: Loop, *words: str) -> StepStreams:
    srun = parse_srun([*words, "prog"], {})
    return StepStreams(loop, srun, JOB, 0, {0: 0, 1: 1})


@pytest.mark.parametrize(
    ("words", "modes"),
    [
        ([], ["srun", "srun", "srun"]),
        (["-i", "none", "-o", "none", "-e", "none"], ["null", "null", "null"]),
        (["-o", "none"], ["srun", "null", "null"]),
        (["-o", "x-%t"], ["srun", "file:x-%t", "output"]),
        (["-o", "x-%t", "-e", "y-%n"], ["srun", "file:x-%t", "file:y-%n"]),
        (["-i", "in-%t"], ["file:in-%t", "srun", "srun"]),
        (["-e", "none"], ["srun", "srun", "null"]),
        (["-o", "1"], ["srun", "srun", "srun"]),
    ],
)
def test_what_agents_do_with_streams(loop: Loop, words: list[str], modes: list[str]) -> None:
    assert streams(loop, *words).modes == modes


def test_agents_that_come_late_hear_that_nobody_reads(loop: Loop) -> None:
    """`srun yes | head -n1`, where one node is slow, would never end otherwise."""
    ends = os.pipe()
    os.close(ends[0])
    saved = os.dup(1)
    os.dup2(ends[1], 1)
    try:
        found = streams(loop)
        early, late = Agent(established=True), Agent(established=False)
        found.add_channel(0, early)  # type: ignore[arg-type]
        found.add_channel(1, late)  # type: ignore[arg-type]
        found.write(0, 1, b"y\n")
    finally:
        os.dup2(saved, 1)
        for fd in (saved, ends[1]):
            os.close(fd)
    close = (messages.CLOSE_OUTPUT, messages.encode({"stream": 1}))
    assert early.sent == [close]
    assert late.sent == []
    found.tell_broken(late)  # type: ignore[arg-type]
    assert late.sent == [close]


def test_a_task_s_own_file_or_number_is_kept_apart(loop: Loop, tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "out")
    found = streams(loop, "-o", path, "-l")
    found.write(0, 1, b"one\ntw")
    found.write(1, 2, b"err\n")
    found.write(0, 1, b"o")
    done: list[bool] = []
    assert not found.ended
    for task in (0, 1):
        for stream in (1, 2):
            found.write(task, stream, b"")
    assert found.ended
    found.finish(lambda: done.append(True))
    assert done == [True]
    with open(path, encoding="utf-8") as file:
        assert file.read() == "0: one\n1: err\n0: two\n"


def test_a_lost_node_is_not_waited_for(loop: Loop) -> None:
    found = streams(loop)
    for stream in (1, 2):
        found.write(0, stream, b"")
    assert not found.ended
    found.end_node(1)
    assert found.ended
