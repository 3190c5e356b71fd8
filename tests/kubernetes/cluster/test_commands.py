"""`pyxis kube submit|status|logs|cancel|hold|release` as users type them."""

from __future__ import annotations

import base64
import json
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyxis_py.kubernetes.cluster.jobs import Job
from pyxis_py.kubernetes.launcher.zipapp import build_launcher
from tests.kubernetes.cluster.api_server import ApiServer
from tests.kubernetes.cluster.conftest import KUBECTL
from tests.kubernetes.cluster.controllers import (
    ADMITTED,
    add,
    condition,
    finish,
    jobs_of,
    key_of,
    pod,
    queue,
)
from tests.kubernetes.cluster.kinds import KINDS
from tests.kubernetes.cluster.objects import RefusalError
from tests.kubernetes.samples import PROFILE, SCRIPT, script

pytestmark = pytest.mark.network
PROGRAM = (sys.executable, "-m", "pyxis_py.cli.main", "kube")
NUMBER = re.compile(r"Submitted batch job (\d+)\n\Z")
PENDING = condition("QuotaReserved", "False", "Pending", "no quota")


class Login:
    """A shell of a user on a login node."""

    def __init__(self, server: ApiServer, folder: Path, kubeconfig: Path) -> None:
        self.server, self.folder = server, folder
        (folder / "job.sbatch").write_text(SCRIPT, encoding="utf-8")
        (folder / "cpu.sbatch").write_text(script("-p cpu"), encoding="utf-8")
        (folder / "site.yaml").write_text(PROFILE, encoding="utf-8")
        self.environ = {
            "PATH": f"{KUBECTL.parent}:/usr/bin:/bin",
            "HOME": os.environ["HOME"],
            "KUBECONFIG": str(kubeconfig),
            "PYXIS_KUBE_PROFILE": str(folder / "site.yaml"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(
        self, *words: str, given: str | None = None, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Type one command."""
        return subprocess.run(
            [*PROGRAM, *words], cwd=self.folder, input=given, capture_output=True, text=True,
            env={**self.environ, **environ}, check=False, timeout=90,
        )  # fmt: skip

    def submit(self, *words: str, **environ: str) -> int:
        """Submit a script and return its number."""
        done = self.run("submit", *words, **environ)
        match = NUMBER.match(done.stdout)
        assert done.returncode == 0 and match, done
        return int(match[1])

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Type a command that goes on."""
        return subprocess.Popen(
            [*PROGRAM, *words], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=self.environ, text=True,
        )  # fmt: skip


@pytest.fixture
def login(server: ApiServer, tmp_path: Path, kubeconfig: Path) -> Iterator[Login]:
    """With both clients there, and kubectl the one that is taken."""
    for name in ("cpu", "h100", "h100-dra"):
        for namespace in ("foundation", "default"):
            metadata = {"name": name, "namespace": namespace}
            add(server, {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
                         "metadata": metadata, "spec": {}})  # fmt: skip
    yield Login(server, tmp_path, kubeconfig)


def only(server: ApiServer) -> Job:
    """The only job."""
    (job,) = jobs_of(server)
    return job


@pytest.mark.parametrize("target", ["kueue", "kueue-job", "volcano", "slurm-bridge"])
@pytest.mark.parametrize("client", ["kubectl", "python"])
def test_the_life_of_a_job(login: Login, server: ApiServer, client: str, target: str) -> None:
    choice = f"--client={client}"
    number = login.submit("job.sbatch", "--target", target, choice)
    job = only(server)
    if job.in_kueue:
        queue(server, job, PENDING)
    assert login.run("hold", str(number), choice).returncode == 0
    done = login.run("status", choice)
    assert [line.split()[4] for line in done.stdout.splitlines()] == ["ST", "PD"], done
    assert f"{number}" in done.stdout and "(JobHeldUser)" in done.stdout
    assert login.run("release", str(number), choice).returncode == 0
    finish(server, only(server), 3)
    (row,) = json.loads(login.run("status", "--json", str(number), choice).stdout)["jobs"]
    assert (row["state"], row["exit_code"], row["job_id"]) == ("FAILED", 3, number)
    name = server.all("pods")[0]["metadata"]["name"]
    server.logs["foundation", name] = b"hello\n"
    assert login.run("logs", str(number), choice).stdout == "hello\n"
    assert login.run("cancel", str(number), choice).returncode == 0
    server.objects.collect()
    assert jobs_of(server) == []
    gone = login.run("status", str(number), choice)
    assert (
        gone.returncode == 1 and f"There is no job {number} in default, foundation" in gone.stderr
    )


def test_a_job_of_kubectl_goes_with_all_that_it_has(login: Login, server: ApiServer) -> None:
    for made in yaml.safe_load_all(login.run("render", "cpu.sbatch").stdout):
        add(server, made)
    assert login.run("cancel", "cpu.sbatch").returncode == 0
    server.objects.collect()
    assert {made["kind"] for made in server.objects.objects.values()} == {"LocalQueue"}


def test_the_pods_bring_the_launcher_of_this_package(login: Login, server: ApiServer) -> None:
    login.submit("cpu.sbatch")
    (made,) = server.all("configmaps")
    assert base64.b64decode(made["binaryData"]["launcher.pyz"]) == build_launcher()


def test_a_site_that_has_the_launcher_itself(login: Login, server: ApiServer) -> None:
    text = PROFILE.replace("cluster: {", "cluster: {launcherConfigMap: site-launcher, ")
    (login.folder / "site.yaml").write_text(text)
    done = login.run("submit", "cpu.sbatch")
    assert done.returncode == 1
    assert "The launcher's ConfigMap site-launcher is not in namespace default" in done.stderr
    add(server, {"apiVersion": "v1", "kind": "ConfigMap",
                 "metadata": {"name": "site-launcher", "namespace": "default"}})  # fmt: skip
    login.submit("cpu.sbatch")
    assert not any("binaryData" in made for made in server.all("configmaps"))


def test_what_sbatch_prints(login: Login, server: ApiServer) -> None:
    done = login.run("submit", "cpu.sbatch", "--parsable", "--job-id=77")
    assert (done.returncode, done.stdout) == (0, "77\n")
    assert "[approx-export]" in done.stderr and "ignored-parsable" not in done.stderr
    done = login.run("submit", "--quiet", "cpu.sbatch")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(jobs_of(server)) == 2


def test_a_script_from_standard_input(login: Login, server: ApiServer) -> None:
    done = login.run("submit", "-J", "piped", given=script("-p cpu"))
    assert NUMBER.match(done.stdout), done
    assert only(server).job_name == "piped"


def test_a_refusal_comes_before_any_request(login: Login, server: ApiServer) -> None:
    server.requests.clear()
    done = login.run("submit", "job.sbatch", "-L", "m:1")
    assert (done.returncode, done.stdout, server.requests) == (2, "", [])
    assert "no scheduler here counts licences [licenses]" in done.stderr


def test_only_testing(login: Login, server: ApiServer) -> None:
    done = login.run("submit", "--test-only", "job.sbatch")
    assert (done.returncode, done.stdout) == (0, "")
    assert "the cluster would take job llama-pretrain in namespace foundation" in done.stderr
    assert jobs_of(server) == []

    def webhook(verb: str, manifest: dict[str, Any]) -> None:
        raise RefusalError(403, "Forbidden", 'admission webhook "v.kb.io" denied the request: no')

    server.admission.append(webhook)
    done = login.run("submit", "--test-only", "job.sbatch")
    assert done.returncode == 1 and "v.kb.io refuses ConfigMap" in done.stderr


def test_a_number_that_is_taken_is_drawn_again(login: Login, server: ApiServer) -> None:
    taken = []

    def webhook(verb: str, manifest: dict[str, Any]) -> None:
        if verb == "create" and manifest["kind"] == "ConfigMap" and len(taken) < 2:
            taken.append(manifest["metadata"]["name"])
            raise RefusalError(409, "AlreadyExists", "configmaps already exists")

    server.admission.append(webhook)
    number = login.submit("cpu.sbatch")
    assert len(taken) == 2 and f"job-sbatch-{number}" not in taken
    assert len(server.all("configmaps")) == 1


def test_a_number_that_was_asked_for_is_not_replaced(login: Login, server: ApiServer) -> None:
    login.submit("cpu.sbatch", "--job-id=77")
    done = login.run("submit", "cpu.sbatch", "--job-id=77")
    assert done.returncode == 1 and "There is a ConfigMap default/cpu-sbatch-77" in done.stderr
    assert len(jobs_of(server)) == 1


def test_a_queue_that_is_not_there_is_said(login: Login, server: ApiServer) -> None:
    server.objects.objects.clear()
    done = login.run("submit", "job.sbatch")
    assert done.returncode == 0
    assert "pyxis: There is no LocalQueue h100 in namespace foundation" in done.stderr
    assert login.run("submit", "--quiet", "job.sbatch").stderr == ""


def test_a_dependency_on_nobody(login: Login, server: ApiServer) -> None:
    done = login.run("submit", "cpu.sbatch", "-d", "afterok:5")
    assert done.returncode == 1 and "--dependency: there is no job 5" in done.stderr
    assert jobs_of(server) == []


def test_dependencies_are_released(login: Login, server: ApiServer) -> None:
    login.submit("cpu.sbatch", "--job-id=1")
    login.submit("cpu.sbatch", "--job-id=2", "-d", "afterok:1")
    login.submit("cpu.sbatch", "--job-id=3", "-d", "afternotok:1")
    assert login.run("release", "--dependencies").stdout == ""
    first, second, third = jobs_of(server)
    assert second.gates == ("pyxis/dep-1",) and third.gates == ("pyxis/dep-1",)
    finish(server, first)
    done = login.run("release", "--dependencies", "--watch")
    assert (done.returncode, done.stdout) == (0, "Released job 2\n")
    done = login.run("release", "--dependencies")
    assert "job 3 can never start: afternotok:1" in done.stderr
    assert [job.gates for job in jobs_of(server)] == [(), (), ("pyxis/dep-1",)]


@pytest.mark.parametrize(("code", "status"), [(0, 0), (3, 3), (None, 1)])
def test_waiting_ends_with_the_status_of_the_job(
    login: Login, server: ApiServer, code: int | None, status: int
) -> None:
    waiting = login.start("submit", "--wait", "cpu.sbatch", "--client=python")
    assert waiting.stdout is not None
    assert NUMBER.match(waiting.stdout.readline())
    job = only(server)
    if code is None:
        for made in list(server.objects.objects.values()):
            if key_of(made) in server.objects.objects:
                server.objects.remove(key_of(made))
    else:
        finish(server, job, code)
    assert waiting.wait(60) == status
    _, errors = waiting.communicate()
    assert ("waiting for it failed" in errors) == (code is None)


def test_an_array_is_named_by_element(login: Login, server: ApiServer) -> None:
    text = script("-p flat", "--array=1,4")
    (login.folder / "array.sbatch").write_text(text)
    login.submit("array.sbatch", "--job-id=9")
    job = only(server)
    queue(server, job, *ADMITTED)
    for index in range(2):
        made = pod(server, job, index)
        where = (made["metadata"]["namespace"], made["metadata"]["name"])
        server.logs[where] = f"element {index}\n".encode()
    assert "9_[1-4:3]" in login.run("status", "9").stdout
    assert login.run("logs", "9_4").stdout == "element 1\n"
    assert "name one: 9_1; or --all" in login.run("logs", "9").stderr
    assert "Array 9 has no element 2" in login.run("logs", "9_2").stderr
    assert login.run("logs", "9", "--all").stdout == "0: element 0\n1: element 1\n"
    assert login.run("cancel", "9_4").returncode == 0
    assert [made["metadata"]["name"][-7] for made in server.all("pods")] == ["0"]


def test_elements_that_are_jobs(login: Login, server: ApiServer) -> None:
    (login.folder / "wide.sbatch").write_text(script("-p flat", "--array=1,4", "-N2"))
    login.submit("wide.sbatch", "--job-id=9")
    rows = login.run("status", "--noheader").stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["9_1", "9_4"]
    assert "9 means several jobs: 9_1, 9_4" in login.run("logs", "9").stderr
    assert login.run("cancel", "9_4").returncode == 0
    server.objects.collect()
    assert [job.title for job in jobs_of(server)] == ["9_1"]


def test_others_jobs_are_seen_but_not_touched(login: Login, server: ApiServer) -> None:
    login.submit("cpu.sbatch", "--job-id=9")
    job = only(server)
    for made in server.objects.objects.values():
        made["metadata"].get("labels", {})["pyxis/user"] = "bob"
    assert login.run("status", "--noheader").stdout == ""
    assert "bob" in login.run("status", "-a").stdout
    assert "bob" in login.run("status", "-u", "bob").stdout
    assert "bob" in login.run("status", "9").stdout
    for verb in ("cancel", "hold", "release"):
        done = login.run(verb, "9")
        assert done.returncode == 1 and "Job 9 is bob's, not" in done.stderr
    assert server.asked("DELETE", "PATCH") == [
        path for path in server.asked("DELETE", "PATCH") if job.resource.plural not in path
    ]
    assert login.run("cancel", "9", "-u", "bob").returncode == 0


def test_what_is_not_ours_is_no_job(login: Login, server: ApiServer) -> None:
    login.submit("cpu.sbatch", "--job-id=9")
    for made in server.all("jobsets"):
        made["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "helm"
    done = login.run("cancel", "9")
    assert done.returncode == 1 and "There is no job 9" in done.stderr
    assert len(server.all("jobsets")) == 1


def test_one_failure_does_not_keep_the_others(login: Login, server: ApiServer) -> None:
    login.submit("cpu.sbatch", "--job-id=9")
    done = login.run("cancel", "8", "9")
    assert done.returncode == 1 and "There is no job 8" in done.stderr
    server.objects.collect()
    assert jobs_of(server) == []


def test_states_are_chosen_and_explained(login: Login, server: ApiServer) -> None:
    login.submit("cpu.sbatch", "--job-id=9")
    queue(server, only(server), PENDING)
    assert "9" in login.run("status", "-t", "pending,R").stdout
    assert login.run("status", "-t", "R", "--noheader").stdout == ""
    assert login.run("status", "--long").stdout.endswith("9: Resources: no quota\n")
    assert "'X' is none of PD" in login.run("status", "-t", "x").stderr


def test_namespaces(login: Login, server: ApiServer) -> None:
    login.submit("cpu.sbatch", "--job-id=9")
    login.submit("job.sbatch", "--job-id=8")
    rows = {name: login.run("status", "--noheader", *words).stdout.count("\n") for name, words in {
        "profile": (), "one": ("-n", "foundation"), "none": ("-n", "elsewhere"), "all": ("-A",),
    }.items()}  # fmt: skip
    assert rows == {"profile": 2, "one": 1, "none": 0, "all": 2}
    alone = login.run("status", "--noheader", PYXIS_KUBE_PROFILE="")
    assert [line.split()[0] for line in alone.stdout.splitlines()] == ["8"]


@pytest.mark.parametrize("client", ["kubectl", "python"])
def test_without_a_profile_jobs_go_where_the_context_says(
    login: Login, server: ApiServer, client: str
) -> None:
    login.environ["PYXIS_KUBE_PROFILE"] = ""
    login.submit("cpu.sbatch", f"--client={client}", "--job-id=9")
    assert only(server).namespace == "foundation"
    rows = login.run("status", "--noheader", f"--client={client}").stdout
    assert rows.split()[0] == "9"
    login.submit("cpu.sbatch", f"--client={client}", "--namespace=default", "--job-id=10")
    assert [job.namespace for job in jobs_of(server)] == ["foundation", "default"]


def test_namespaces_that_may_not_be_seen_are_left_out(login: Login, server: ApiServer) -> None:
    login.submit("cpu.sbatch", "--job-id=9")
    server.forbidden.update({("list", "jobs"), ("list", "pods"), ("list", "workloads")})
    assert login.run("status", "--noheader").stdout.split()[0] == "9"
    server.forbidden.add(("list", "jobsets"))
    done = login.run("status")
    assert done.returncode == 1 and "As user1 you may not list jobsets" in done.stderr


def test_a_cluster_without_volcano_has_no_volcano_jobs(login: Login, server: ApiServer) -> None:
    server.served = tuple(kind for kind in KINDS if "volcano" not in kind.group)
    login.submit("cpu.sbatch", "--job-id=9")
    assert login.run("status", "--noheader").stdout.split()[0] == "9"
    done = login.run("submit", "cpu.sbatch", "--target=volcano")
    assert done.returncode == 1
    assert "The cluster has no Job of batch.volcano.sh/v1alpha1" in done.stderr
    assert "Volcano has to be installed there" in done.stderr


@pytest.mark.parametrize("client", ["kubectl", "python"])
def test_no_cluster(login: Login, server: ApiServer, client: str) -> None:
    for words in (("submit", "cpu.sbatch"), ("status",), ("cancel", "9")):
        done = login.run(*words, f"--client={client}", "--kubeconfig=/nonexistent")
        assert done.returncode == 1 and "No answer from the cluster" in done.stderr, done
        assert "Traceback" not in done.stderr
    done = login.run("status", f"--client={client}", KUBECONFIG="/nonexistent")
    assert done.returncode == 1 and "No answer from the cluster" in done.stderr, done


@pytest.mark.parametrize("more", [(), ("--follow",)])
def test_a_node_that_the_job_does_not_have_is_not_waited_for(
    login: Login, server: ApiServer, more: tuple[str, ...]
) -> None:
    number = login.submit("cpu.sbatch")
    done = login.run("logs", str(number), "--node=1", *more)
    assert done.returncode == 1
    assert f"--node: job {number} has no node 1\npyxis: its only one is 0" in done.stderr


def test_logs_are_followed_until_the_job_ends(login: Login, server: ApiServer) -> None:
    login.submit("cpu.sbatch", "--job-id=9")
    job = only(server)
    queue(server, job, *ADMITTED)
    made = pod(server, job, 0)
    where = (made["metadata"]["namespace"], made["metadata"]["name"])
    server.logs[where] = b"one\n"
    server.open_logs.add(where)
    following = login.start("logs", "-f", "9")
    assert following.stdout is not None
    assert following.stdout.readline() == "one\n"
    server.logs[where] += b"two\n"
    server.open_logs.clear()
    assert following.communicate(timeout=60)[0] == "two\n"
    assert following.returncode == 0


def test_a_closed_pipe_ends_following_quietly(login: Login, server: ApiServer) -> None:
    login.submit("cpu.sbatch", "--job-id=9")
    made = pod(server, only(server), 0)
    where = (made["metadata"]["namespace"], made["metadata"]["name"])
    server.logs[where] = b"one\n"
    server.open_logs.add(where)
    following = login.start("logs", "-f", "9")
    assert following.stdout is not None and following.stderr is not None
    following.stdout.readline()
    following.stdout.close()
    writer = threading.Timer(0.2, lambda: server.logs.update({where: b"one\n" + b"x\n" * 9}))
    writer.start()
    assert following.wait(60) == 141
    assert following.stderr.read() == ""
    following.stderr.close()
    writer.join()


@pytest.mark.parametrize(("words", "message"), [
    (("release",), "which job?"),
    (("release", "--watch", "9"), "--watch belongs to --dependencies"),
    (("logs", "9", "--all", "--node=1"), "--all and --node exclude each other"),
    (("hold", "a\nb"), "neither a job's number nor its name"),
    (("status", "--client=curl"), "'curl' is none of kubectl, python"),
    (("submit", "cpu.sbatch", "--client=curl"), "'curl' is none of kubectl, python"),
    (("hold", "9"), "There is no job 9"),
    (("release", "9"), "There is no job 9"),
])  # fmt: skip
def test_wrong_words(login: Login, words: tuple[str, ...], message: str) -> None:
    done = login.run(*words)
    assert done.returncode == 1 and message in done.stderr


def test_nothing_secret_is_shown(login: Login, server: ApiServer) -> None:
    value = "hf_abcdefghijklmnop"
    log = login.folder / "seen"
    record = login.folder / "bin" / "kubectl"
    record.parent.mkdir()
    note = f'tr "\\0" " " < /proc/$$/cmdline >> {log}\nprintf "%s\\n" "$@" >> {log}'
    record.write_text(f'#!/bin/sh\n{note}\nexec {KUBECTL} "$@"\n')
    record.chmod(record.stat().st_mode | stat.S_IXUSR)
    login.environ["PATH"] = f"{record.parent}:{login.environ['PATH']}"
    done = login.run("submit", "job.sbatch", "--export=HF_TOKEN,PLAIN", HF_TOKEN=value, PLAIN="x")
    assert NUMBER.match(done.stdout), done
    (secret,) = server.all("secrets")
    tokens = [base64.b64decode(text) for text in secret["data"].values()]
    assert value.encode() in tokens and len(tokens) == 2
    for text in (done.stdout, done.stderr, log.read_text()):
        assert not any(token.decode() in text for token in tokens)
    for request in server.requests:
        if not request.path.endswith("/secrets"):
            assert not any(token in request.body for token in tokens), request.path
    status = login.run("status", "--json", "-l")
    assert not any(token.decode() in status.stdout for token in tokens)


def test_the_state_of_a_pod_reaches_the_table(login: Login, server: ApiServer) -> None:
    login.submit("cpu.sbatch", "--job-id=9")
    job = only(server)
    queue(server, job, *ADMITTED)
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    made = pod(server, job, 0, "Pending", state=waiting)
    assert "CF" in login.run("status").stdout and "(ImagePullBackOff)" in login.run("status").stdout
    server.objects.remove(key_of(made))
    pod(server, job, 0, node="gpu-7", serial="ccccc")
    assert login.run("status", "--noheader").stdout.split()[-1] == "gpu-7"
    finish(server, job, 124)
    assert login.run("status", "--noheader").stdout.split()[4] == "TO"


def test_a_signal_instead_of_the_end(login: Login, server: ApiServer) -> None:
    login.submit("cpu.sbatch", "--job-id=9")
    pod(server, only(server), 0)
    asked: list[list[str]] = []

    def run(name: str, command: list[str]) -> subprocess.CompletedProcess[bytes]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, b"", b"")

    server.run_in_pod = run
    assert login.run("cancel", "9", "--signal=USR1", "--batch").returncode == 0
    assert "--signal=USR1" in asked[0] and "--batch" in asked[0]
    assert len(jobs_of(server)) == 1
    assert "no such signal: 'X'" in login.run("cancel", "9", "-s", "X").stderr
    assert "belong to --signal" in login.run("cancel", "9", "--full").stderr
    assert login.run("cancel", "8", "-s", "USR1").returncode == 1
