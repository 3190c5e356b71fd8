"""What a step is waiting for is said when it takes long, by one node for all, and then seldom."""

from __future__ import annotations

import os
import time

import pytest

from enroot_py import EnrootError
from pyxis_py.job import JobFacts
from pyxis_py.protocol import news
from pyxis_py.protocol.keeper_process import await_answer
from pyxis_py.protocol.news import News, news_of_step
from pyxis_py.step.time_limit import time_limit


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news, "_TICK", 0.01)
    monkeypatch.setattr(news, "_LATER", (0.02, 1e9))


def wait_for(said: list[str], count: int) -> None:
    deadline = time.monotonic() + 30
    while len(said) < count:
        assert time.monotonic() < deadline, said
        time.sleep(0.005)  # which the timer interrupts


@pytest.mark.usefixtures("fast")
def test_each_stage_is_said_once_it_has_taken_long() -> None:
    said: list[str] = []

    def hear(line: str) -> None:
        """Go on at once: a moment later another line may be due."""
        said.append(line)
        if len(said) == 1:
            told.detail("1.0 of 2.0 MiB \x1b[2J\nhave arrived")
        elif len(said) == 2:
            told.stage("unpacking x")
        else:
            told.close()

    told = News(hear, where="node7: ", patience=0.05)
    told.stage("importing x")
    assert said == []
    wait_for(said, 3)
    time.sleep(0.1)
    assert said == [
        "node7: still importing x",
        "node7: still importing x: 1.0 of 2.0 MiB ?[2J?have arrived",
        "node7: still unpacking x",
    ]


@pytest.mark.parametrize(
    ("facts", "environ", "where", "patience"),
    [
        ((1, 1), {}, "", 3.0),
        ((4, 4), {"SLURMD_NODENAME": "n1", "SLURM_NODEID": "0"}, "", 3.0),
        ((8, 4), {"SLURMD_NODENAME": "n1", "SLURM_NODEID": "0"}, "n1: ", 3.0),
        ((8, 4), {"SLURMD_NODENAME": "n2", "SLURM_NODEID": "1"}, "n2: ", 30.0),
    ],
)
def test_one_node_speaks_for_all(
    facts: tuple[int, int], environ: dict[str, str], where: str, patience: float
) -> None:
    job = JobFacts(1, 1, 1, 0, tasks=facts[0], local_tasks=facts[1], environ=environ)
    told = news_of_step(job, print)
    told.close()
    assert (told._where, told._patience) == (where, patience)


@pytest.mark.usefixtures("fast")
def test_a_time_limit_beside_news() -> None:
    told = News(print, patience=100.0)
    with pytest.raises(EnrootError, match="longer than 0.05 s"), time_limit(0.05, "x"):
        time.sleep(30)
    with time_limit(30, "x"):
        pass
    told.close()
    with time_limit(0, "x"):
        pass


def test_news_come_before_the_answer() -> None:
    read_fd, write_fd = os.pipe()
    os.write(write_fd, b"still at it\nand at \xff that\ncut off\0later")
    said: list[str] = []
    await_answer(read_fd, said.append)
    assert said == ["still at it", "and at � that"]
    assert os.read(read_fd, 9) == b"later"
    os.close(write_fd)
    await_answer(read_fd, said.append)  # whoever was to answer is gone
    os.close(read_fd)
