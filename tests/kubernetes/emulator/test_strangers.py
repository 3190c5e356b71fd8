"""Who talks to the launcher's port without the job's token is not heard, from whichever pod."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyxis_py.kubernetes.launcher.zipapp import build_launcher
from tests.kubernetes.emulator.cluster import Cluster
from tests.kubernetes.emulator.jobs import TOKEN, cluster_for, render_script

pytestmark = pytest.mark.kernel

TREE = Path(__file__).resolve().parents[3]
PORT = 6818
BODY = """\
#!/bin/bash
#SBATCH -N2
#SBATCH -t 10
#SBATCH -o out.txt
srun --ntasks-per-node=1 touch up.0
until [ -e go ]; do sleep 0.05; done
srun bash -c 'echo step $SLURM_STEP_ID' | sort -u
"""
# What is said, from another network namespace, to one of the job's pods; prints what came of it.
TALK = """\
import json, sys
from pyxis_py.kubernetes.launcher.wire import messages
from pyxis_py.kubernetes.launcher.wire.channel import open_channel
from pyxis_py.kubernetes.launcher.wire.loop import Loop

host, token, subject, kind, content = sys.argv[1:]
loop = Loop()
channel = open_channel(loop, (host, 6818), (token.encode(), subject.encode()))

def ready():
    print("let in", flush=True)
    channel.send(int(kind), messages.encode(json.loads(content)))

def frame(kind, payload):
    print("answer", kind, flush=True)
    loop.stop()

channel.on_ready = ready
channel.on_frame = frame
channel.on_close = lambda reason: (print("closed"), loop.stop())
loop.call_later(4.0, loop.stop)
loop.run()
"""
SHOUT = """\
import os, socket, sys, time

with socket.create_connection((sys.argv[1], 6818), 5) as stream:
    try:
        stream.settimeout(0.2)
        heard = stream.recv(4096)
    except TimeoutError:
        heard = b""
    stream.settimeout(15)
    try:
        stream.sendall(bytes.fromhex(sys.argv[2]) + heard + os.urandom(512))
        while stream.recv(4096):
            pass
    except OSError:
        pass
print("closed")
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
def say(cluster: Cluster) -> Callable[..., list[str]]:
    """Say something from a pod that is not of the job."""
    words = cluster.stranger()

    def say(*arguments: str) -> list[str]:
        done = subprocess.run(
            [*words, sys.executable, "-c", *arguments], capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(TREE)}, timeout=30, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.split("\n")[:-1]

    return say


def _launch(cluster: Cluster, index: int) -> str:
    """A message that would start a program in a pod, if it were heard."""
    return json.dumps({"step": 99, "argv": ["touch", f"{cluster.folder}/heard"], "index": index})


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize(
    ("token", "subject"),
    [("f" * 64, "own"), ("", "own"), (TOKEN[:-1], "own"), (TOKEN, "other"), (TOKEN, "")],
    ids=["wrong", "empty", "short", "of another job", "of no job"],
)
def test_no_one_is_let_in_without_the_token_of_the_job(
    cluster: Cluster, say: Callable[..., list[str]], index: int, token: str, subject: str
) -> None:
    pod = cluster.pod(index)
    host = cluster.pod(0).pod.hostname
    about = {"own": f"{host} {index}", "other": f"other-4711-n-0-0 {index}", "": ""}[subject]
    kind = "30" if index else "26"
    found = say(TALK, pod.place.address, token, about, kind, _launch(cluster, index))
    assert found == ["closed"]


@pytest.mark.parametrize("index", [0, 1])
def test_who_has_the_token_is_let_in(
    cluster: Cluster, say: Callable[..., list[str]], index: int
) -> None:
    subject = f"{cluster.pod(0).pod.hostname} {index}"
    found = say(
        TALK, cluster.pod(index).place.address, TOKEN, subject, "15" if index else "15", "{}"
    )
    assert found[0] == "let in"


@pytest.mark.parametrize(
    "opening", ["", "00" * 64, "ff" * 64, b"GET / HTTP/1.0\r\n\r\n".hex(), "7fffffff" * 4]
)
@pytest.mark.parametrize("index", [0, 1])
def test_noise_is_hung_up_on(
    cluster: Cluster, say: Callable[..., list[str]], index: int, opening: str
) -> None:
    assert say(SHOUT, cluster.pod(index).place.address, opening) == ["closed"]
