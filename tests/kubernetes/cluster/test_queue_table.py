"""Jobs as a table and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pyxis_py.kubernetes.cluster.listing import JobRecord
from pyxis_py.kubernetes.cluster.queue_table import (
    compress_hosts,
    elapsed,
    format_duration,
    format_json,
    format_messages,
    format_table,
    printable,
)
from pyxis_py.kubernetes.cluster.states import JobState
from tests.kubernetes.cluster.test_states import make_job
from tests.kubernetes.samples import script

RUNNING = JobState("R", started=1000.0, hosts=("n1", "n2"))
HELD = JobState("PD", "JobHeldUser", "a message")


def record(state: JobState, text: str = "", **changes: Any) -> JobRecord:
    """A job and a state."""
    return JobRecord(make_job(text=text or script("-N2", "-p flat", "-J train"), **changes), state)


def test_a_table_as_squeue_prints_it() -> None:
    rows = [record(RUNNING), record(HELD), record(JobState("CD", started=1.0, ended=90.0))]
    assert format_table(rows, now=4700.0) == (
        "    JOBID PARTITION NAME  USER  ST    TIME NODES NODELIST(REASON)\n"
        "412803917 flat      train user1 R  1:01:40     2 n[1-2]\n"
        "412803917 flat      train user1 PD    0:00     2 (JobHeldUser)\n"
        "412803917 flat      train user1 CD    1:29     2\n"
    )


def test_no_jobs_and_no_header() -> None:
    assert format_table([], now=0).startswith("JOBID")
    assert format_table([], now=0, header=False) == ""
    assert "(None)" in format_table([record(JobState("PD"))], now=0, header=False)


def test_names_cannot_reach_the_terminal() -> None:
    state = JobState("PD", "\x1b[2Jx", "\x07message")
    text = format_table([record(state)], now=0) + format_messages([record(state)])
    assert {character for character in text if not character.isprintable()} == {"\n"}
    assert printable("a\x1bb\n") == "a\\x1bb\\x0a"


def test_messages_stand_below() -> None:
    text = format_messages([record(HELD), record(RUNNING)])
    assert text == "412803917: JobHeldUser: a message\n"


@pytest.mark.parametrize(("seconds", "text"), [
    (0, "0:00"), (59.9, "0:59"), (3599, "59:59"), (3600, "1:00:00"), (86400, "1-00:00:00"),
    (3 * 86400 + 3661, "3-01:01:01"),
])  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_clock_that_is_behind_gives_no_negative_time() -> None:
    assert elapsed(RUNNING, 0.0) == 0.0
    assert elapsed(HELD, 0.0) is None
    assert elapsed(replace(RUNNING, ended=1060.0), 5000.0) == 60.0


@pytest.mark.parametrize(("hosts", "text"), [
    ((), ""),
    (("a",), "a"),
    (("n1",), "n1"),
    (("n1", "n2", "n3", "n7"), "n[1-3,7]"),
    (("n8", "n9", "n10", "n11"), "n[8-11]"),
    (("n01", "n02", "n10"), "n[01-02,10]"),
    (("n01", "n1"), "n01,n1"),
    (("n9", "m1", "n10", "login"), "n[9-10],m1,login"),
    (("gpu-a-1", "gpu-a-2", "gpu-b-1"), "gpu-a-[1-2],gpu-b-1"),
    (("n1", "n1"), "n1"),
    (("x12345678901",), "x12345678901"),
])  # fmt: skip
def test_host_lists(hosts: tuple[str, ...], text: str) -> None:
    assert compress_hosts(hosts) == text


def test_json_has_everything_with_its_unit() -> None:
    text = format_json([record(RUNNING, text=script("-N2", "-p flat", "-t 5"))], 1090.0)
    (row,) = json.loads(text)["jobs"]
    assert row["job_id"] == 412803917 and row["array_task_id"] is None
    assert (row["state"], row["state_compact"], row["elapsed_seconds"]) == ("RUNNING", "R", 90.0)
    assert (row["start_time"], row["end_time"]) == ("1970-01-01T00:16:40Z", None)
    assert (row["time_limit_seconds"], row["node_list"]) == (300, ["n1", "n2"])
    assert row["object"] == "jobsets.jobset.x-k8s.io/job-sbatch-412803917"
