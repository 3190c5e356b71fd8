"""Pods for real: namespaces, names, volumes, ends, and what controllers do about ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.emulator.cluster import Cluster
from tests.kubernetes.emulator.objects import EmulatorError
from tests.kubernetes.emulator.volumes import Storage

pytestmark = pytest.mark.kernel

PATH = "/usr/local/bin:/usr/bin:/bin"
SUBDOMAIN = "job.default.svc.cluster.local"


def job(command: str, count: int = 1, **more: Any) -> dict[str, Any]:
    """An Indexed Job whose pods run a command of the shell."""
    container = {
        "name": "main", "image": "tools", "command": ["sh", "-c", command],
        "env": [{"name": "INDEX", "valueFrom": {"fieldRef": {"fieldPath":
            "metadata.labels['batch.kubernetes.io/job-completion-index']"}}}],
        **more.pop("container", {}),
    }  # fmt: skip
    spec = {
        "subdomain": "job", "dnsConfig": {"searches": [SUBDOMAIN]},
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsUser": os.getuid(), "runAsGroup": os.getgid()},
        "containers": [container], **more.pop("pod", {}),
    }  # fmt: skip
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"},
        "spec": {"completionMode": "Indexed", "completions": count, "parallelism": count,
                 "backoffLimit": 0, "template": {"spec": spec}, **more},
    }  # fmt: skip


SERVICE = {
    "kind": "Service", "metadata": {"name": "job"},
    "spec": {"clusterIP": "None", "publishNotReadyAddresses": True,
             "selector": {"job-name": "job"}},
}  # fmt: skip


@pytest.fixture
def start(image: Path) -> Any:
    """Make a cluster for these manifests; checks afterwards that nothing is left."""
    begun: list[Cluster] = []

    def make(*manifests: dict[str, Any], **more: Any) -> Cluster:
        cluster = Cluster(manifests, images={"tools": image}, **more)
        begun.append(cluster)
        return cluster

    yield make
    for cluster in begun:
        if cluster.folder.exists():
            cluster.__exit__(None, None, None)
        assert not cluster.folder.exists()
        # What was killed just now may take a moment.
        deadline = time.monotonic() + 30
        while left := [p for p in _command_lines() if str(cluster.folder) in p]:
            assert time.monotonic() < deadline, left
            time.sleep(0.02)


def _command_lines() -> list[str]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(Path(f"/proc/{name}/cmdline").read_text(errors="replace"))
        except OSError:
            continue
    return found


def test_a_pod_is_a_machine_of_its_own(start: Callable[..., Cluster]) -> None:
    # What the kubelet makes of it: `$$` in the shell, and `$(id -u)`, which is no variable.
    command = "hostname; cat /etc/hostname; echo $$$$ $(id -u) $PWD; echo $(INDEX)"
    with start(job(command, container={"workingDir": "/new/folder"})) as cluster:
        outcome = cluster.finish()
        assert outcome.complete, cluster.logs()
        lines = cluster.pod(0).log().splitlines()
    assert lines == ["job-0", "job-0", f"1 {os.getuid()} /new/folder", "0"]


def test_pods_reach_each_other_by_name(start: Callable[..., Cluster]) -> None:
    serve = (
        "import os, socket, time\n"
        "if os.environ['INDEX'] == '0':\n"
        "    server = socket.create_server(('', 6818))\n"
        "    for _ in range(2):\n"
        "        peer, address = server.accept()\n"
        "        peer.sendall(address[0].encode())\n"
        "else:\n"
        "    for _ in range(1000):\n"
        "        try:\n"
        "            peer = socket.create_connection((NAME, 6818))\n"
        "            break\n"
        "        except OSError:\n"
        "            time.sleep(0.05)\n"
        "    mine = peer.getsockname()[0]\n"
        "    assert peer.recv(99).decode() == mine != '127.0.0.1', mine\n"
    )
    name = "('job-0', 'job-0.job', 'job-0.job.default.svc.cluster.local')[int(os.environ['INDEX'])]"
    command = {"command": ["python3", "-c", serve.replace("NAME", name)]}
    with start(job("", 3, container=command), SERVICE, names_lag=0.3) as cluster:
        assert cluster.finish().complete, cluster.logs()


RESOLVE = (
    "import socket\n"
    "for name in 'job-0', 'job-0.job', 'job-0.job.default.svc.cluster.local':\n"
    "    try: print(socket.gethostbyname(name))\n"
    "    except OSError: print('none')\n"
)


@pytest.mark.parametrize(
    ("lacking", "known"), [("service", 0), ("search", 2), ("ready", 0), ("selector", 0), ("", 3)]
)
def test_a_name_needs_all_that_makes_it(
    start: Callable[..., Cluster], lacking: str, known: int
) -> None:
    pod = {"dnsConfig": {}} if lacking == "search" else {}
    spec: dict[str, Any] = {**SERVICE["spec"]}  # type: ignore[dict-item]
    if lacking == "ready":
        del spec["publishNotReadyAddresses"]
    if lacking == "selector":
        spec["selector"] = {"job-name": "other"}
    manifests = [job("", pod=pod, container={"command": ["python3", "-c", RESOLVE]})]
    if lacking != "service":
        manifests.append({**SERVICE, "spec": spec})
    with start(*manifests) as cluster:
        assert cluster.finish().complete, cluster.logs()
        lines = cluster.pod(0).log().split()
        assert lines == ["none"] * (3 - known) + [cluster.pod(0).place.address] * known


def test_volumes_in_containers(start: Callable[..., Cluster], tmp_path: Path) -> None:
    claim = tmp_path / "claim"
    (claim / "deep/er").mkdir(parents=True)
    (claim / "deep/er/data").write_text("stored\n")
    mounts = [
        {"name": "config", "mountPath": "/run/config"},
        {"name": "config", "mountPath": "/one file", "subPath": "key"},
        {"name": "claim", "mountPath": "/data", "subPath": "deep/er", "readOnly": True},
        {"name": "claim", "mountPath": "/data/inside", "subPath": "new"},
        {"name": "shm", "mountPath": "/dev/shm"}, {"name": "work", "mountPath": "/scratch"},
    ]  # fmt: skip
    volumes = [
        {"name": "config", "configMap": {"name": "c", "defaultMode": 0o555}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "lustre"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "work", "emptyDir": {}},
    ]
    (claim / "deep/er/inside").mkdir()
    init = {"name": "init", "image": "tools",
            "command": ["sh", "-c", "echo '$(TEXT)' > /scratch/from"],
            "env": [{"name": "TEXT", "value": "init $$5"}],
            "volumeMounts": [{"name": "work", "mountPath": "/scratch"}]}  # fmt: skip
    command = (
        "cat /scratch/from '/one file' /data/data; stat -Lc %a /run/config/key; /run/config/run;"
        "echo kept > /data/inside/out; touch /data/x 2>/dev/null || echo read-only;"
        "touch /run/config/x 2>/dev/null || echo config read-only;"
        "head -c 2000000 /dev/zero > /dev/shm/x 2>/dev/null || echo full; stat -fc %T /dev/shm"
    )
    config = {"kind": "ConfigMap", "metadata": {"name": "c"},
              "data": {"key": "value\n", "run": "#!/bin/sh\necho ran\n"}}  # fmt: skip
    pod = {"volumes": volumes, "initContainers": [init]}
    manifest = job(command, pod=pod, container={"volumeMounts": mounts})
    with start(config, manifest, storage=Storage(claims={"lustre": claim})) as cluster:
        outcome = cluster.finish()
        log = cluster.pod(0).log()
    assert log.splitlines() == [
        "init $5", "value", "stored", "555", "ran", "read-only", "config read-only", "full",
        "tmpfs",
    ]  # fmt: skip
    assert outcome.complete
    assert (claim / "new/out").read_text() == "kept\n"


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({"args": ["sh", "-c", "echo $FROM_ENTRYPOINT"]}, "yes"),
        ({"command": ["sh", "-c", "echo ${FROM_ENTRYPOINT-none}"]}, "none"),
        ({"securityContext": {"readOnlyRootFilesystem": True},
          "command": ["sh", "-c", "touch /x 2>/dev/null || echo read-only"]}, "read-only"),
        ({"command": ["sh", "-c", "touch /x && echo writable"]}, "writable"),
        ({"securityContext": {"runAsUser": 0}, "command": ["id", "-u"]}, "0"),
        ({"command": ["sh", "-c", "echo ${HOME-none} ${TERM-none} ${SHELL-none} $HOSTNAME"]},
         "/ none none job-0"),
    ],
)  # fmt: skip
def test_containers(
    start: Callable[..., Cluster], container: dict[str, Any], expected: str
) -> None:
    manifest = job("", container=container)
    if "args" in container:
        del manifest["spec"]["template"]["spec"]["containers"][0]["command"]
    with start(manifest) as cluster:
        assert cluster.finish().complete, cluster.logs()
        assert cluster.pod(0).log().strip() == expected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"image": "absent"}, "ImagePullBackOff"),
        ({"securityContext": {"runAsUser": 0, "runAsNonRoot": True}}, "runs as root"),
        ({"securityContext": {"runAsUser": 4}}, "user 4 is not emulated"),
        ({"env": [{"name": "not.a-name", "value": ""}]}, "not emulated"),
        ({"volumeMounts": [{"name": "absent", "mountPath": "/x"}]}, "no volume"),
    ],
)
def test_pods_that_no_kubelet_would_start(
    start: Callable[..., Cluster], change: dict[str, Any], said: str
) -> None:
    with start(job("true", container=change)) as cluster, pytest.raises(EmulatorError, match=said):
        cluster.finish()


def test_only_the_first_process_is_asked_to_end_and_all_are_killed(
    start: Callable[..., Cluster],
) -> None:
    # Without a handler, the first process of a namespace does not hear SIGTERM.
    command = "(trap 'echo heard' TERM; while :; do sleep 0.1; done) & echo up; exec sleep 60"
    with start(job(command)) as cluster:
        cluster.wait(lambda: bool(cluster.history) and "up" in cluster.pod(0).log())
        began = time.monotonic()
        cluster.pod(0).terminate()
        outcome = cluster.finish()
        log = cluster.pod(0).log()
        took = time.monotonic() - began
    assert (outcome.reason, log) == ("BackoffLimitExceeded", "up\n")
    assert cluster.pod(0).end is not None and cluster.pod(0).end.status == 137
    assert took > 1  # the grace


@pytest.mark.parametrize("whose", ["pod", "job"])
def test_deadlines(
    start: Callable[..., Cluster], whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = {"activeDeadlineSeconds": 1000}
    pod = {"terminationGracePeriodSeconds": 30, **(limit if whose == "pod" else {})}
    command = "trap 'exit 4' TERM; echo up; while :; do sleep 0.05; done"
    clock = time.monotonic
    with start(job(command, 2, pod=pod, **(limit if whose == "job" else {}))) as cluster:
        cluster.wait(lambda: _ready(cluster, 2))
        assert all(row.end is None for row in cluster.history)
        monkeypatch.setattr(time, "monotonic", lambda: clock() + 1000)
        outcome = cluster.finish()
        statuses = {pod.end.status for pod in cluster.history if pod.end}
    assert outcome.reason == {"pod": "BackoffLimitExceeded", "job": "DeadlineExceeded"}[whose]
    assert statuses == {4}


WAIT = "echo $INDEX; test $INDEX = 0 && test -e /shared/go && exit 0; exec sleep 60"
RULES = {"podFailurePolicy": {"rules": [
    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
]}}  # fmt: skip


def test_a_lost_pod_is_replaced_alone(start: Callable[..., Cluster], tmp_path: Path) -> None:
    container = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    pod = {"volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "c"}}]}
    success = {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}}
    manifest = job(WAIT, 2, pod=pod, container=container, **RULES, **success)
    with start(manifest, SERVICE, storage=Storage(claims={"c": tmp_path})) as cluster:
        cluster.wait(lambda: [pod.log() for pod in cluster.history] == ["0\n", "1\n"])
        old = cluster.pod(1)
        cluster.lose_node(1)
        cluster.wait(lambda: cluster.pod(1) is not old and cluster.pod(1).log() == "1\n")
        assert cluster.pod(1).pod.hostname == old.pod.hostname
        assert cluster.pod(1).pod.name != old.pod.name
        hosts = (cluster.folder / "hosts").read_text()
        assert cluster.pod(1).place.address in hosts and old.place.address + " " not in hosts
        (tmp_path / "go").touch()
        cluster.evict(0, grace=0.1)
        outcome = cluster.finish()
    assert (outcome.complete, outcome.restarts) == (True, 0)
    assert [pod.pod.index for pod in cluster.history] == [0, 1, 1, 0]


def test_a_lost_node_is_silent_and_a_killed_container_is_not(
    start: Callable[..., Cluster],
) -> None:
    talk = (
        "import os, select, socket, sys\n"
        "if os.environ['INDEX'] != '0':\n"
        "    for _ in range(1000):\n"
        "        try: peer = socket.create_connection(('job-0', 6818)); break\n"
        "        except OSError: import time; time.sleep(0.05)\n"
        "    import signal; signal.pause()\n"
        "server = socket.create_server(('', 6818))\n"
        "peers = [server.accept()[0] for _ in range(2)]\n"
        "print('both', flush=True)\n"
        "first = select.select(peers, [], [], 100)[0][0]\n"
        "peers.sort(key=lambda peer: peer is not first)\n"
        "for peer in peers:\n"
        "    peer.settimeout(1.5)\n"
        "    try: print('ended' if not peer.recv(1) else '?')\n"
        "    except TimeoutError: print('silent')\n"
        "    except ConnectionResetError: print('reset')\n"
    )
    success = {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}}
    container = {"command": ["python3", "-c", talk]}
    policy = {"podFailurePolicy": {"rules": [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [137]}},
        *RULES["podFailurePolicy"]["rules"],
    ]}}  # fmt: skip
    with start(job("", 3, container=container, **policy, **success), SERVICE) as cluster:
        cluster.wait(lambda: bool(cluster.history) and "both" in cluster.pod(0).log())
        cluster.lose_node(1)
        cluster.pod(2).kill()
        assert cluster.finish().complete, cluster.logs()
        log = cluster.pod(0).log()
    assert sorted(log.split()[1:]) in (["ended", "silent"], ["reset", "silent"])


def jobset(manifest: dict[str, Any]) -> dict[str, Any]:
    """A JobSet of it, under Kueue, that starts again after a disruption."""
    rules = [{"name": "r", "action": "RestartJobSetAndIgnoreMaxRestarts",
              "onJobFailureReasons": ["PodFailurePolicy"]}]  # fmt: skip
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "job", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {
            "suspend": True, "network": {"subdomain": "job"},
            "failurePolicy": {"maxRestarts": 0, "rules": rules},
            "replicatedJobs": [{"name": "n", "template": {"spec": manifest["spec"]}}],
        },
    }  # fmt: skip


def test_a_set_starts_again_as_a_whole(start: Callable[..., Cluster]) -> None:
    env = [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath":
        "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"}}}]  # fmt: skip
    command = "trap 'echo asked; exit 0' TERM; echo up; test $N = 2 || while :; do sleep 0.05; done"
    policy = {"podFailurePolicy": {"rules": [{**RULES["podFailurePolicy"]["rules"][0],
                                              "action": "FailJob"}]}}  # fmt: skip
    pod = {"terminationGracePeriodSeconds": 30}
    manifest = jobset(job(command, 2, pod=pod, container={"env": env}, **policy))
    with start(manifest) as cluster:
        cluster.wait(lambda: _ready(cluster, 2))
        cluster.lose_node(1)
        cluster.wait(lambda: _ready(cluster, 4))
        assert cluster.history[0].log() == "up\nasked\n"
        cluster.suspend()  # Kueue's own evictions count nowhere
        cluster.wait(lambda: all(pod.end is not None for pod in cluster.history))
        for _ in range(5):
            cluster.tick()
        assert len(cluster.history) == 4
        cluster.resume()
        cluster.wait(lambda: _ready(cluster, 6))
        cluster.evict()
        outcome = cluster.finish()
    assert (outcome.complete, outcome.restarts) == (True, 2)
    assert [pod.pod.attempt for pod in cluster.history] == [0, 0, 1, 1, 1, 1, 2, 2]


def _ready(cluster: Cluster, count: int) -> bool:
    """Whether so many pods have begun, and the last two have said that they are up."""
    pods = cluster.history[-2:]
    return len(cluster.history) == count and all("up" in pod.log() for pod in pods)


def test_an_emulator_that_is_interrupted_leaves_nothing(start: Callable[..., Cluster]) -> None:
    others = set(_children(os.getpid()))
    with start(job("echo up; trap '' TERM INT; sleep 60 & wait", 2), SERVICE) as cluster:
        cluster.wait(lambda: bool(cluster.history) and "up" in cluster.pod(1).log())
        pids = [int(pid) for pid in _children(os.getpid()) if pid not in others]
        assert pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
