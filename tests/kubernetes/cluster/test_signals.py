"""Signals for running jobs: through the API to the real launcher."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from enroot_py import NotFoundError, UnsupportedError, UsageError
from pyxis_py.kubernetes.access import failures
from pyxis_py.kubernetes.access.client import ClusterClient
from pyxis_py.kubernetes.cluster import signals
from pyxis_py.kubernetes.cluster.jobs import Job
from pyxis_py.kubernetes.cluster.submit import submit
from tests.kubernetes.cluster.api_server import ApiServer, Ended
from tests.kubernetes.cluster.controllers import pod
from tests.kubernetes.cluster.test_states import make_job
from tests.kubernetes.launcher.pods import Pods
from tests.kubernetes.samples import render, script


@pytest.mark.parametrize(("text", "name"), [
    ("USR1", "USR1"), ("sigusr1", "USR1"), ("SIGKILL", "KILL"), ("10", "10"),
])  # fmt: skip
def test_names_of_signals(text: str, name: str) -> None:
    assert signals.parse_signal_name(text) == name


@pytest.mark.parametrize("text", ["", "USR9", "0", "-9", "99", "SIG", "USR1;rm"])
def test_what_is_no_signal(text: str) -> None:
    with pytest.raises(UsageError, match="no such signal"):
        signals.parse_signal_name(text)


def test_the_program_is_the_launcher_of_the_pod() -> None:
    job = make_job(text=script("-p flat", "-J x"))
    command = signals.scancel_command(job, "USR1", batch=True, full=True)
    assert command[:3] == ["python3", "-IS", "-c"]
    assert command[4:] == ["/run/pyxis/launcher.pyz", "127.0.0.1 6818", "--signal=USR1",
                           "--batch", "--full", "--name=x"]  # fmt: skip


def test_a_python_that_was_brought_along_has_several_words() -> None:
    job = make_job(text=script("-p flat"))
    container = job.template["spec"]["containers"][0]
    container["command"] = ["/p/ld.so", "--library-path", "/p/lib", "/p/python3",
                            *container["command"][-2:]]  # fmt: skip
    command = signals.scancel_command(job, "USR1", batch=False, full=False)
    assert command[:5] == ["/p/ld.so", "--library-path", "/p/lib", "/p/python3", "-IS"]


def test_an_image_with_an_entrypoint_has_the_launcher_in_its_arguments() -> None:
    job = make_job(text=script("-p flat", "--container-entrypoint"))
    assert "/run/pyxis/launcher.pyz" in signals.scancel_command(job, "INT", batch=False, full=False)


def test_pods_of_another_kind_take_no_signals() -> None:
    job = make_job(text=script("-p flat"))
    job.template["spec"]["containers"][0]["command"] = ["sleep", "9"]
    with pytest.raises(UnsupportedError, match="do not run the launcher"):
        signals.scancel_command(job, "INT", batch=False, full=False)


def create(client: ClusterClient, *words: str) -> Job:
    """A submitted job."""
    text = script("-p flat", "-J test", *words)
    return submit(client, render(text, namespace="foundation").manifests).jobs[0]


@pytest.mark.network
def test_a_program_in_a_pod(client: ClusterClient, server: ApiServer) -> None:
    pod(server, create(client), 0)
    name = server.all("pods")[0]["metadata"]["name"]
    server.run_in_pod = lambda pod, command: Ended(command, 3, b"out\n", f"{command}".encode())
    status, output = client.execute("foundation", name, ["a b", "--c", "$d"])
    assert status == 3
    assert "out\n" in output and "['a b', '--c', '$d']" in output
    server.run_in_pod = lambda pod, command: Ended(command, 0, b"x" * 1000, b"")
    assert client.execute("foundation", name, ["true"]) == (0, "x" * 1000)
    with pytest.raises(NotFoundError):
        client.execute("foundation", "none", ["true"])


@pytest.mark.network
def test_only_what_runs_is_signalled(client: ClusterClient, server: ApiServer) -> None:
    job = create(client)
    with pytest.raises(UnsupportedError, match="does not run"):
        signals.send_signal(client, job, "USR1")
    pod(server, job, 0, "Pending")
    with pytest.raises(UnsupportedError, match="does not run"):
        signals.send_signal(client, job, "USR1")


@pytest.mark.network
def test_a_launcher_that_refuses(client: ClusterClient, server: ApiServer) -> None:
    job = create(client)
    pod(server, job, 0)
    server.run_in_pod = lambda pod, command: Ended(command, 1, b"", b"scancel: no\n")
    with pytest.raises(failures.ClusterError, match="takes no signal: scancel: no"):
        signals.send_signal(client, job, "USR1")


@pytest.mark.network
def test_elements_of_an_array_are_batch_hosts(python: ClusterClient, server: ApiServer) -> None:
    job = create(python, "--array=0-2")
    for index in range(3):
        pod(server, job, index)
    asked: list[str] = []

    def run(pod: str, command: list[str]) -> Ended:
        asked.append(pod.rpartition("-")[0][-1])
        return Ended(command, 0, b"", b"")

    server.run_in_pod = run
    signals.send_signal(python, job, "USR1", numbers=[1])
    signals.send_signal(python, job, "USR1")
    assert asked == ["1", "0", "1", "2"]


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Callable[[str], Pods]]:
    """Real launchers on loopback."""
    started: list[Pods] = []

    def start(text: str) -> Pods:
        started.append(Pods(tmp_path, f"#!/bin/bash\n{text}", 1))
        return started[0]

    yield start
    for running in started:
        running.close()


BODY = """
trap 'echo caught > caught; exit 7' USR1
echo ready > ready
while :; do sleep 0.05; done
"""


@pytest.mark.network
def test_the_real_launcher_passes_a_signal_on_to_the_batch_script(
    client: ClusterClient, server: ApiServer, pods: Callable[[str], Pods]
) -> None:
    running = pods(BODY)
    running.wait_for("ready")
    job = create(client)
    pod(server, job, 0)

    def run(name: str, command: list[str]) -> Ended:
        """As in the pod, but for the places where the test's launcher is."""
        own = {"127.0.0.1 6818": f"127.0.0.1 {running.port}", "/run/pyxis/launcher.pyz":
               str(running.folder / "run" / "launcher.pyz")}  # fmt: skip
        words = [_replaced(word, own) for word in command]
        environ = {
            "PATH": "/usr/bin:/bin", "SLURM_NODEID": "0", "SLURM_JOB_ID": "4711",
            "PYXIS_LAUNCHER_FOLDER": str(running.folder / "run"),
            "PYXIS_TOKEN_FOLDER": str(running.folder / "token"),
        }  # fmt: skip
        words[words.index("python3")] = sys.executable
        return subprocess.run(words, env=environ, capture_output=True, check=False, timeout=30)

    server.run_in_pod = run
    signals.send_signal(client, job, "USR1", batch=True)
    assert running.wait_for("caught") == "caught\n"
    assert running.wait() == 7


def _replaced(text: str, values: dict[str, Any]) -> str:
    for old, new in values.items():
        text = text.replace(old, new)
    return text
