"""Conditions between jobs."""

from __future__ import annotations

from typing import Any

import pytest

from enroot_py import NotFoundError
from pyxis_py.kubernetes.access.client import ClusterClient
from pyxis_py.kubernetes.cluster.dependencies import (
    Outcome,
    check_dependency,
    release_met,
    resolve,
)
from pyxis_py.kubernetes.cluster.jobs import Job
from pyxis_py.kubernetes.cluster.states import parse_stamp
from pyxis_py.kubernetes.cluster.submit import submit
from pyxis_py.kubernetes.spec.slurm_lists import parse_dependency
from tests.kubernetes.cluster.api_server import ApiServer
from tests.kubernetes.cluster.controllers import (
    ADMITTED,
    BEGIN,
    finish,
    jobs_of,
    key_of,
    pod,
    queue,
)
from tests.kubernetes.samples import render, script

pytestmark = pytest.mark.network
SCRIPT = script("-p flat", "-J first")
NOW = (parse_stamp(BEGIN) or 0) + 600
FIRST, SECOND = 100, 200


def create(client: ClusterClient, job_id: int, *words: str, text: str = SCRIPT) -> list[Job]:
    """Submit a job under a number."""
    return list(submit(client, render(text, words, job_id=job_id, namespace="foundation",
                                      ).manifests).jobs)  # fmt: skip


def verdict(client: ClusterClient, server: ApiServer) -> tuple[str, str]:
    """What became of the only job that waits."""
    (outcome,) = resolve(client, jobs_of(server), now=NOW)
    return outcome.verdict, outcome.text


@pytest.mark.parametrize(("condition", "pending", "done", "failed", "gone"), [
    ("afterok", "waits", "met", "never", "never"),
    ("afternotok", "waits", "never", "met", "never"),
    ("afterany", "waits", "met", "met", "met"),
    ("after", "waits", "met", "met", "met"),
    ("aftercorr", "waits", "met", "never", "never"),
])  # fmt: skip
def test_conditions(
    python: ClusterClient, server: ApiServer, condition: str, pending: str, done: str,
    failed: str, gone: str,
) -> None:  # fmt: skip
    (first,) = create(python, FIRST)
    create(python, SECOND, "-d", f"{condition}:{FIRST}")
    assert verdict(python, server)[0] == pending
    finish(server, first)
    assert verdict(python, server)[0] == done
    server.objects.remove(key_of(server.all("pods")[0]))
    finish(server, first, 1)
    assert verdict(python, server)[0] == failed
    server.objects.remove(key_of(first.made))
    assert verdict(python, server)[0] == gone


def test_after_means_started_and_so_many_minutes_ago(
    python: ClusterClient, server: ApiServer
) -> None:
    (first,) = create(python, FIRST)
    create(python, SECOND, "-d", f"after:{FIRST}+5,after:{FIRST}+15")
    queue(server, first, *ADMITTED)
    pod(server, first, 0)
    assert verdict(python, server) == ("waits", f"after:{FIRST}+15")


def test_all_conditions_or_any(python: ClusterClient, server: ApiServer) -> None:
    (first,) = create(python, FIRST)
    create(python, FIRST + 1)
    create(python, SECOND, "-d", f"afterok:{FIRST}:{FIRST + 1}")
    create(python, SECOND + 1, "-d", f"afterok:{FIRST}?afterok:{FIRST + 1}")
    create(python, SECOND + 2, "-d", f"afternotok:{FIRST}?afternotok:{FIRST + 1}")
    finish(server, first)
    found = {row.job.job_id: row for row in resolve(python, jobs_of(server), now=NOW)}
    assert (found[SECOND].verdict, found[SECOND].text) == ("waits", f"afterok:{FIRST + 1}")
    assert found[SECOND + 1].verdict == "met"
    assert found[SECOND + 2].verdict == "waits"


def test_elements_wait_for_their_own_namesakes(python: ClusterClient, server: ApiServer) -> None:
    wide = script("--array=0,5", "-N2", "-p flat")
    first = create(python, FIRST, text=wide)
    create(python, SECOND, "-d", f"aftercorr:{FIRST}", text=wide)
    finish(server, first[1])
    found = {row.job.task: row.verdict for row in resolve(python, jobs_of(server), now=NOW)}
    assert found == {0: "waits", 5: "met"}


def test_a_singleton_waits_for_earlier_jobs_of_its_name(
    python: ClusterClient, server: ApiServer
) -> None:
    create(python, FIRST, "-J", "other")
    (first,) = create(python, FIRST + 1)
    create(python, SECOND, "-d", "singleton")
    assert verdict(python, server) == ("waits", "singleton")
    create(python, SECOND + 1)
    finish(server, first)
    assert verdict(python, server) == ("met", "")


def test_jobs_that_are_met_are_admitted(client: ClusterClient, server: ApiServer) -> None:
    (first,) = create(client, FIRST)
    create(client, SECOND, "-H", "-d", f"afterok:{FIRST}")
    finish(server, first)
    (outcome,) = release_met(client, jobs_of(server), now=NOW, sleep=never)
    assert outcome.verdict == "met"
    second = next(job for job in jobs_of(server) if job.job_id == SECOND)
    assert second.gates == ("pyxis/hold",)


def never(seconds: float) -> None:
    """Nobody has to wait here."""
    raise AssertionError(seconds)


@pytest.mark.parametrize(("wish", "left"), [("yes", 1), ("no", 2), (None, 2)])
def test_a_job_that_can_never_start_goes_where_it_was_asked_for(
    python: ClusterClient, server: ApiServer, wish: Any, left: int
) -> None:
    (first,) = create(python, FIRST)
    wishes = [f"--kill-on-invalid-dep={wish}"] if wish else []
    create(python, SECOND, "-d", f"afterok:{FIRST}", *wishes)
    finish(server, first, 1)
    (outcome,) = release_met(python, jobs_of(server), now=NOW, sleep=never)
    assert (outcome.verdict, outcome.kill) == ("never", left == 1)
    server.objects.collect()
    assert len(jobs_of(server)) == left


LIMITED = script("--array=1-9:2%2", "-N2", "-p flat")


def gated(server: ApiServer) -> list[int | None]:
    """Elements that still wait behind a gate."""
    return [job.task for job in jobs_of(server) if job.gates]


def test_an_array_lets_elements_go_as_others_end(client: ClusterClient, server: ApiServer) -> None:
    first, second, *_ = create(client, FIRST, text=LIMITED)
    assert gated(server) == [5, 7, 9]
    release_met(client, jobs_of(server), now=NOW, sleep=never)
    assert gated(server) == [5, 7, 9]
    finish(server, first, 1)
    found = release_met(client, jobs_of(server), now=NOW, sleep=never)
    assert [(row.job.task, row.verdict) for row in found] == [
        (5, "met"), (7, "waits"), (9, "waits"),
    ]  # fmt: skip
    assert gated(server) == [7, 9]
    finish(server, second)
    finish(server, jobs_of(server)[2])
    release_met(client, jobs_of(server), now=NOW, sleep=never)
    assert gated(server) == []


def test_elements_wait_for_others_and_for_their_turn(
    python: ClusterClient, server: ApiServer
) -> None:
    (first,) = create(python, FIRST)
    create(python, SECOND, "-d", f"afterok:{FIRST}", text=LIMITED)
    finish(server, first)
    found = release_met(python, jobs_of(server), now=NOW, sleep=never)
    assert [row.verdict for row in found] == ["met", "met", "waits", "waits", "waits"]
    assert {job.gates for job in jobs_of(server)} == {(), ("pyxis/array",)}


def test_jobs_without_conditions_are_left_alone(python: ClusterClient, server: ApiServer) -> None:
    create(python, FIRST, "-H")
    assert resolve(python, jobs_of(server), now=NOW) == []


def test_a_number_that_nobody_has_is_refused_at_submission(
    client: ClusterClient, server: ApiServer
) -> None:
    create(client, FIRST)
    check_dependency(client, "foundation", parse_dependency(f"afterok:{FIRST},singleton"))
    with pytest.raises(NotFoundError, match="there is no job 101 in namespace foundation"):
        check_dependency(client, "foundation", parse_dependency(f"afterok:{FIRST},after:101+5"))


def test_outcomes_that_can_still_change_kill_nothing(
    python: ClusterClient, server: ApiServer
) -> None:
    create(python, FIRST)
    (job,) = create(python, SECOND, "-d", f"afterok:{FIRST}", "--kill-on-invalid-dep=yes")
    assert not Outcome(job, "waits").kill and Outcome(job, "never").kill
