"""What pods write: of one, of all, and while they write."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest

from enroot_py import NotFoundError
from pyxis_py.kubernetes.access.client import ClusterClient
from pyxis_py.kubernetes.cluster.jobs import Job
from pyxis_py.kubernetes.cluster.logs import copy_logs, select_pods, wait_for_pods
from pyxis_py.kubernetes.cluster.submit import submit
from tests.kubernetes.cluster.api_server import ApiServer
from tests.kubernetes.cluster.controllers import ADMITTED, ended, finish, key_of, pod, queue
from tests.kubernetes.samples import render, script

pytestmark = pytest.mark.network


def create(client: ClusterClient, server: ApiServer, target: Any = "kueue") -> Job:
    """A job of two nodes that was admitted."""
    text = script("-N2", "-p flat")
    (job,) = submit(client, render(text, target=target, namespace="foundation").manifests).jobs
    if job.in_kueue:
        queue(server, job, *ADMITTED)
    return job


def write(server: ApiServer, made: dict[str, Any], data: bytes, *, ends: bool = True) -> None:
    """A pod writes."""
    where = (made["metadata"]["namespace"], made["metadata"]["name"])
    server.logs[where] = server.logs.get(where, b"") + data
    (server.open_logs.discard if ends else server.open_logs.add)(where)


def copied(client: ClusterClient, job: Job, numbers: Any, **options: Any) -> bytes:
    """What is printed."""
    out = io.BytesIO()
    copy_logs(client, select_pods(client, job, numbers), out, **options)
    return out.getvalue()


@pytest.mark.parametrize("target", ["kueue", "kueue-job", "volcano", "slurm-bridge"])
def test_pods_by_their_number(client: ClusterClient, server: ApiServer, target: Any) -> None:
    job = create(client, server, target)
    write(server, pod(server, job, 1), b"agent\n")
    write(server, pod(server, job, 0), b"body\nline 2\n")
    assert copied(client, job, [0]) == b"body\nline 2\n"
    assert copied(client, job, [1]) == b"agent\n"
    assert copied(client, job, [0], tail=1) == b"line 2\n"
    assert copied(client, job, None, labels=True) == b"0: body\n0: line 2\n1: agent\n"


def test_the_latest_run_is_meant(client: ClusterClient, server: ApiServer) -> None:
    job = create(client, server)
    old = pod(server, job, 0, "Failed", state=ended(1, "Error"), serial="bbbbb")
    server.objects.objects[key_of(old)]["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    write(server, old, b"first run\n")
    write(server, pod(server, job, 0), b"second run\n")
    assert copied(client, job, [0]) == b"second run\n"


def test_bytes_are_not_touched(client: ClusterClient, server: ApiServer) -> None:
    job = create(client, server)
    data = bytes(range(256)) * 5000
    write(server, pod(server, job, 0), data)
    assert copied(client, job, [0]) == data


def test_a_last_line_without_an_end(python: ClusterClient, server: ApiServer) -> None:
    job = create(python, server)
    write(server, pod(server, job, 0), b"a\nb")
    write(server, pod(server, job, 1), b"")
    assert copied(python, job, None, labels=True) == b"0: a\n0: b\n"


def test_a_line_that_does_not_end_is_cut(python: ClusterClient, server: ApiServer) -> None:
    job = create(python, server)
    write(server, pod(server, job, 0), b"x" * 300_000)
    lines = copied(python, job, None, labels=True).split(b"\n")
    assert len(lines) > 2 and all(line.startswith(b"0: x") for line in lines[:-1])
    assert sum(line.count(b"x") for line in lines) == 300_000


def test_a_job_without_pods_says_how_it_is(python: ClusterClient, server: ApiServer) -> None:
    job = create(python, server)
    with pytest.raises(NotFoundError, match=r"Node 0 of job 412803917 has no pod: the job is CF"):
        select_pods(python, job, [0])
    with pytest.raises(NotFoundError, match="Node of job 412803917 has no pod"):
        select_pods(python, job, None)
    pod(server, job, 0)
    with pytest.raises(NotFoundError, match="Node 1 of job"):
        select_pods(python, job, [1])


def test_several_pods_are_followed_at_once(client: ClusterClient, server: ApiServer) -> None:
    job = create(client, server)
    pods = [pod(server, job, index) for index in range(2)]
    for made in pods:
        write(server, made, b"start\n", ends=False)
    out = Recorder()
    follower = threading.Thread(
        target=copy_logs, args=(client, select_pods(client, job, None), out),
        kwargs={"follow": True, "labels": True},
    )  # fmt: skip
    follower.start()
    out.wait_for(b"0: start\n", b"1: start\n")
    write(server, pods[1], b"second\n", ends=False)
    out.wait_for(b"1: second\n")
    write(server, pods[0], b"third\n")
    out.wait_for(b"0: third\n")
    write(server, pods[1], b"")
    follower.join(30)
    assert not follower.is_alive()
    assert sorted(out.data.splitlines()) == [b"0: start", b"0: third", b"1: second", b"1: start"]


class Recorder:
    """A stream that others can wait for."""

    def __init__(self) -> None:
        self.data = b""
        self._changed = threading.Condition()

    def write(self, data: bytes) -> None:
        with self._changed:
            self.data += data
            self._changed.notify_all()

    def flush(self) -> None:
        """Nothing is held back."""

    def wait_for(self, *texts: bytes) -> None:
        with self._changed:
            found = self._changed.wait_for(lambda: all(text in self.data for text in texts), 30)
            assert found, self.data


class ClosedError(Exception):
    """Whoever read is gone."""


class ClosedPipe:
    """A stream that nobody reads any more."""

    def write(self, data: bytes) -> None:
        raise ClosedError

    def flush(self) -> None:
        """Never reached."""


def test_a_reader_that_leaves_ends_all_streams(client: ClusterClient, server: ApiServer) -> None:
    job = create(client, server)
    for index in range(2):
        write(server, pod(server, job, index), b"start\n", ends=False)
    with pytest.raises(ClosedError):
        copy_logs(client, select_pods(client, job, None), ClosedPipe(), follow=True)
    assert not [thread for thread in threading.enumerate() if "drain" in thread.name]


def test_one_stream_that_fails_does_not_end_the_others(
    client: ClusterClient, server: ApiServer
) -> None:
    job = create(client, server)
    pods = [pod(server, job, index) for index in range(2)]
    write(server, pods[1], b"fine\n")
    out = io.BytesIO()
    with pytest.raises(NotFoundError, match="has no log yet"):
        copy_logs(client, pods, out, follow=True, labels=True)
    assert out.getvalue() == b"1: fine\n"


def test_following_waits_for_the_pod(python: ClusterClient, server: ApiServer) -> None:
    job = create(python, server)
    steps = iter((
        lambda: pod(server, job, 0, "Pending"),
        lambda: server.objects.remove(key_of(server.all("pods")[0])),
        lambda: pod(server, job, 0),
    ))  # fmt: skip
    pods = wait_for_pods(python, job, [0], sleep=lambda seconds: next(steps)())
    assert [made["status"]["phase"] for made in pods] == ["Running"]


def test_following_a_job_that_ended_shows_what_is_left(
    python: ClusterClient, server: ApiServer
) -> None:
    job = create(python, server)
    finish(server, job, 1)
    pods = wait_for_pods(python, job, [0], sleep=never)
    assert [made["status"]["phase"] for made in pods] == ["Failed"]


def test_following_a_job_that_ends_without_a_pod_ends_too(
    python: ClusterClient, server: ApiServer
) -> None:
    job = create(python, server)
    with pytest.raises(NotFoundError, match="Node 1 of job 412803917 has no pod: the job is F"):
        wait_for_pods(python, job, [1], sleep=lambda seconds: finish(server, job, 1))


def never(seconds: float) -> None:
    """Nobody has to wait here."""
    raise AssertionError(seconds)
