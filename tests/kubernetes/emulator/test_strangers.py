"""Who talks to the launcher's port without the job's token is not heard, from whichever pod."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyxis_py.kubernetes.launcher.wire import messages
from pyxis_py.kubernetes.launcher.zipapp import build_launcher
from tests.kubernetes.emulator.cluster import Cluster
from tests.kubernetes.emulator.jobs import TOKEN, cluster_for, render_script

pytestmark = pytest.mark.kernel

TREE = Path(__file__).resolve().parents[3]
Say = Callable[[str, "list[list[Any]]"], "list[str]"]
BODY = """\
#!/bin/bash
#SBATCH -N2
#SBATCH -t 10
#SBATCH -o out.txt
srun --ntasks-per-node=1 touch up.0
until [ -e go ]; do sleep 0.05; done
srun bash -c 'echo step $SLURM_STEP_ID' | sort -u
"""
# What is said, from another network namespace, to the job's pods; prints what came of each.
TALK = """\
import json, sys
from pyxis_py.kubernetes.launcher.wire import messages
from pyxis_py.kubernetes.launcher.wire.channel import open_channel
from pyxis_py.kubernetes.launcher.wire.loop import Loop

loop, found = Loop(), {}

def tell(number, what):
    found.setdefault(number, what)
    if len(found) == len(attempts):
        loop.stop()

def attempt(number, host, token, subject, kind, content):
    channel = open_channel(loop, (host, 6818), (token.encode(), subject.encode()))

    def ready():
        channel.send(kind, messages.encode(content))
        tell(number, "let in")

    channel.on_ready = ready
    channel.on_frame = lambda kind, payload: tell(number, "answered")
    channel.on_close = lambda reason: tell(number, "closed")

attempts = json.loads(sys.argv[1])
for number, words in enumerate(attempts):
    attempt(number, *words)
loop.call_later(60.0, loop.stop)
loop.run()
print(json.dumps([found.get(number) for number in range(len(attempts))]))
"""
SHOUT = """\
import json, os, socket, sys

def shout(host, opening):
    with socket.create_connection((host, 6818), 5) as stream:
        stream.settimeout(0.2)
        try:
            heard = stream.recv(4096)
        except TimeoutError:
            heard = b""
        stream.settimeout(60)
        try:
            # What the other side said, too: it must not take its own words for an answer.
            stream.sendall(bytes.fromhex(opening) + heard + os.urandom(512))
            while stream.recv(4096):
                pass
        except ConnectionError:
            pass
    return "closed"

print(json.dumps([shout(*words) for words in json.loads(sys.argv[1])]))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, image: Path) -> Iterator[Cluster]:
    """A job of two pods that waits; afterwards it has to go on as if nothing had been."""
    folder = tmp_path_factory.mktemp("strangers")
    (folder / "job.sh").write_text(BODY)
    rendering = render_script(folder / "job.sh", launcher=build_launcher(), job_id=4711)
    with cluster_for(rendering, image, folder) as cluster:
        cluster.wait(lambda: (folder / "up.0").exists())
        yield cluster
        (folder / "go").touch()
        assert cluster.finish().complete, cluster.logs()
        assert (folder / "out.txt").read_text() == "step 1\n"


@pytest.fixture(scope="module")
def say(cluster: Cluster) -> Say:
    """Say things from a pod that is not of the job."""
    words = cluster.stranger()

    def say(program: str, attempts: list[list[Any]]) -> list[str]:
        done = subprocess.run(
            [*words, sys.executable, "-c", program, json.dumps(attempts)], capture_output=True,
            env={**os.environ, "PYTHONPATH": str(TREE)}, text=True, timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found: list[str] = json.loads(done.stdout)
        return found

    return say


def _attempts(cluster: Cluster, index: int, tokens: list[tuple[str, str]]) -> list[list[Any]]:
    """Try to start a program in a pod, or a step on the batch host, with these tokens."""
    pod, host = cluster.pod(index), cluster.pod(0).pod.hostname
    content = {"step": 99, "argv": ["touch", f"{cluster.folder}/heard"], "request": {}}
    kind = messages.LAUNCH if index else messages.CREATE_STEP
    return [
        [pod.place.address, token, subject.format(own=f"{host} {index}"), kind, content]
        for token, subject in tokens
    ]


@pytest.mark.parametrize("index", [0, 1])
def test_no_one_is_let_in_without_the_token_of_the_job(
    cluster: Cluster, say: Say, index: int
) -> None:
    wrong = [("f" * 64, "{own}"), ("", "{own}"), (TOKEN[:-1], "{own}"), (TOKEN + "0", "{own}"),
             (TOKEN, f"other-4711-n-0-0 {index}"), (TOKEN, "")]  # fmt: skip
    found = say(TALK, _attempts(cluster, index, [*wrong, (TOKEN, "{own}")]))
    assert found == ["closed"] * len(wrong) + ["let in"]


@pytest.mark.parametrize("index", [0, 1])
def test_noise_is_hung_up_on(cluster: Cluster, say: Say, index: int) -> None:
    openings = ["", "00" * 64, "ff" * 64, b"GET / HTTP/1.0\r\n\r\n".hex(), "7fffffff" * 4]
    address = cluster.pod(index).place.address
    assert say(SHOUT, [[address, opening] for opening in openings]) == ["closed"] * 5
