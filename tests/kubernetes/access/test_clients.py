"""Both clients, the same requests and the same errors, against the stub API server."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from enroot_py import EnrootError, ExistsError, NotFoundError
from pyxis_py.kubernetes.access import failures
from pyxis_py.kubernetes.access.client import ClusterClient
from pyxis_py.kubernetes.access.kubectl import Kubectl
from pyxis_py.kubernetes.access.resources import CONFIG_MAP, JOBSET, POD, SECRET, Object
from tests.kubernetes.cluster.api_server import ApiServer
from tests.kubernetes.cluster.conftest import KUBECTL, open_client
from tests.kubernetes.cluster.kinds import KINDS
from tests.kubernetes.cluster.objects import Key, RefusalError
from tests.kubernetes.samples import SCRIPT, find, render

pytestmark = pytest.mark.network

NAME = "c-1"
KEY = Key("v1", "configmaps", "foundation", NAME)


def config_map(**data: str) -> Object:
    """A small object."""
    metadata = {"name": NAME, "namespace": "foundation", "labels": {"a": "b"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "data": data, "metadata": metadata}


def test_an_object_is_created_read_changed_and_deleted(
    client: ClusterClient, server: ApiServer
) -> None:
    made = client.create(config_map(x="1"))
    assert made["metadata"]["uid"]
    assert client.get(CONFIG_MAP, "foundation", NAME)["data"] == {"x": "1"}
    client.patch(CONFIG_MAP, "foundation", NAME, {"data": {"x": None, "y": "2"}})
    assert client.get(CONFIG_MAP, "foundation", NAME)["data"] == {"y": "2"}
    client.delete(made)
    assert server.objects.objects == {}


def test_lists_are_selected_by_labels_and_say_what_they_hold(client: ClusterClient) -> None:
    client.create(config_map())
    (found,) = client.list(CONFIG_MAP, "foundation", "a in (b,c)")
    assert (found["apiVersion"], found["kind"]) == ("v1", "ConfigMap")
    assert client.list(CONFIG_MAP, "", "a=b") == [found]
    assert client.list(CONFIG_MAP, "foundation", "a=c") == []
    assert client.list(CONFIG_MAP, "elsewhere") == []


def test_a_dry_run_creates_nothing(client: ClusterClient, server: ApiServer) -> None:
    assert client.create(config_map(), dry_run=True)["kind"] == "ConfigMap"
    assert server.objects.objects == {}


def test_the_namespace_is_that_of_the_context(client: ClusterClient) -> None:
    assert client.namespace == "foundation"


@pytest.mark.parametrize("kind", ["kubectl", "python"])
def test_a_context_without_a_namespace_means_default(
    kind: str, server: ApiServer, kubeconfig: Path
) -> None:
    server.write_kubeconfig(kubeconfig, namespace="")
    assert open_client(kind, kubeconfig).namespace == "default"


def test_a_deletion_means_that_object_and_no_namesake(
    client: ClusterClient, server: ApiServer
) -> None:
    made = client.create(config_map())
    made["metadata"]["uid"] = "another"
    with pytest.raises(failures.ConflictError):
        client.delete(made)
    assert KEY in server.objects.objects


def test_a_patch_of_an_old_version_is_a_conflict(client: ClusterClient) -> None:
    made = client.create(config_map())
    version = made["metadata"]["resourceVersion"]
    client.patch(CONFIG_MAP, "foundation", NAME, {"metadata": {"labels": {"n": "1"}}})
    with pytest.raises(failures.ConflictError):
        patch = {"metadata": {"resourceVersion": version, "labels": {"n": "2"}}}
        client.patch(CONFIG_MAP, "foundation", NAME, patch)


def test_unknown_fields_are_refused(client: ClusterClient) -> None:
    with pytest.raises(failures.RejectedError, match="strict decoding error"):
        client.create({**config_map(), "datas": {}})


def test_what_a_secret_holds_is_in_no_argument(
    server: ApiServer, kubeconfig: Path, tmp_path: Path
) -> None:
    record = tmp_path / "kubectl"
    log = tmp_path / "words"
    record.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >> {log}\nenv >> {log}\nexec {KUBECTL} "$@"\n'
    )
    record.chmod(record.stat().st_mode | stat.S_IXUSR)
    client = ClusterClient(Kubectl(str(record), kubeconfig=str(kubeconfig)))
    secret = find(render(SCRIPT), "Secret")
    made = client.create(secret)
    client.patch(SECRET, "foundation", secret["metadata"]["name"], {"metadata": {"labels": {}}})
    client.delete({**secret, "metadata": made["metadata"]})
    words = log.read_text()
    assert "create" in words and "patch" in words and "delete" in words
    assert secret["stringData"]["token"] not in words


def refuse(code: int, reason: str, message: str) -> Callable[[str, Object], None]:
    """A webhook that says no."""

    def webhook(verb: str, manifest: Object) -> None:
        raise RefusalError(code, reason, message)

    return webhook


def test_a_name_that_is_taken(client: ClusterClient) -> None:
    client.create(config_map())
    with pytest.raises(ExistsError, match="There is a ConfigMap foundation/c-1 already"):
        client.create(config_map())


@pytest.mark.parametrize(("webhook", "kind", "message"), [
    (refuse(403, "Forbidden", 'configmaps "c-1" is forbidden: exceeded quota: small, requested: '
            "configmaps=1"), failures.RejectedError, "quota of the namespace refuses"),
    (refuse(403, "Forbidden", 'admission webhook "v.kb.io" denied the request: spec: no'),
     failures.RejectedError, "v.kb.io refuses ConfigMap foundation/c-1: spec: no"),
    (refuse(400, "BadRequest", 'admission webhook "v.kb.io" denied the request: spec: no'),
     failures.RejectedError, "v.kb.io refuses ConfigMap foundation/c-1: spec: no"),
    (refuse(422, "Invalid", 'ConfigMap "c-1" is invalid: data: wrong'),
     failures.RejectedError, "data: wrong"),
    (refuse(404, "NotFound", 'namespaces "foundation" not found'), NotFoundError, "no namespace"),
    (refuse(500, "InternalError", "Internal error occurred: failed calling webhook"),
     failures.ClusterError, "failed calling webhook"),
])  # fmt: skip
def test_a_server_that_refuses(
    client: ClusterClient, server: ApiServer, webhook: Any, kind: type[EnrootError], message: str
) -> None:
    server.admission.append(webhook)
    with pytest.raises(kind, match=message) as caught:
        client.create(config_map())
    assert type(caught.value) is kind


def test_what_the_role_does_not_allow(client: ClusterClient, server: ApiServer) -> None:
    server.forbidden.update({("create", "configmaps"), ("get", "jobsets"), ("patch", "jobsets")})
    with pytest.raises(failures.ForbiddenError, match="As user1 you may not create ConfigMap"):
        client.create(config_map())
    with pytest.raises(failures.ForbiddenError, match="As user1 you may not get JobSet"):
        client.get(JOBSET, "foundation", "x")
    with pytest.raises(failures.ForbiddenError):
        client.patch(JOBSET, "foundation", "x", {})


def test_what_is_not_there(client: ClusterClient) -> None:
    with pytest.raises(NotFoundError, match="There is no JobSet foundation/x"):
        client.get(JOBSET, "foundation", "x")
    with pytest.raises(NotFoundError):
        client.patch(JOBSET, "foundation", "x", {"spec": {}})
    with pytest.raises(NotFoundError):
        list(client.log("foundation", "x"))


def test_a_kind_that_is_not_installed(client: ClusterClient, server: ApiServer) -> None:
    server.served = tuple(kind for kind in KINDS if kind.kind != "JobSet")
    for act in (
        lambda: client.create(find(render(SCRIPT), "JobSet")),
        lambda: client.get(JOBSET, "foundation", "x"),
        lambda: client.list(JOBSET, "foundation"),
        lambda: client.patch(JOBSET, "foundation", "x", {}),
    ):
        with pytest.raises(failures.MissingKindError, match="The cluster has no JobSet"):
            act()


@pytest.mark.parametrize("kind", ["kubectl", "python"])
def test_a_token_that_is_not_known(kind: str, server: ApiServer, kubeconfig: Path) -> None:
    server.write_kubeconfig(kubeconfig, token="expired-token")
    with pytest.raises(failures.LoginError) as caught:
        open_client(kind, kubeconfig).get(JOBSET, "foundation", "x")
    assert "expired-token" not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize("kind", ["kubectl", "python"])
@pytest.mark.parametrize("fault", ["certificate", "refused", "missing", "broken", "context"])
def test_no_answer(kind: str, fault: str, server: ApiServer, kubeconfig: Path) -> None:
    if fault == "refused":
        server.write_kubeconfig(kubeconfig, url="https://127.0.0.1:9")
    elif fault == "missing":
        kubeconfig.unlink()
    elif fault == "broken":
        kubeconfig.write_text("{[")
    elif fault == "context":
        kubeconfig.write_text(kubeconfig.read_text().replace("current-context: training",
                                                             "current-context: other"))  # fmt: skip
    else:
        text = kubeconfig.read_text()
        start = text.index("certificate-authority: ")
        end = text.index("\n", start)
        kubeconfig.write_text(text[:start] + "tls-server-name: localhost" + text[end:])
    with pytest.raises(failures.UnreachableError, match="No answer from the cluster") as caught:
        client = open_client(kind, kubeconfig)
        client.get(JOBSET, client.namespace, "x")
    assert caught.value.hint


def test_logs_come_in_order_and_to_their_end(client: ClusterClient, server: ApiServer) -> None:
    add_pod(server, "p")
    server.logs["foundation", "p"] = b"one\ntwo\nthree\n"
    assert b"".join(client.log("foundation", "p")) == b"one\ntwo\nthree\n"
    assert b"".join(client.log("foundation", "p", tail=1)) == b"three\n"


def test_logs_are_followed_piece_by_piece(client: ClusterClient, server: ApiServer) -> None:
    add_pod(server, "p")
    server.logs["foundation", "p"] = b"one\n"
    server.open_logs.add(("foundation", "p"))
    pieces = iter(client.log("foundation", "p", follow=True))
    assert next(pieces) == b"one\n"
    server.logs["foundation", "p"] += b"two\n"
    assert next(pieces) == b"two\n"
    server.open_logs.clear()
    assert list(pieces) == []


def test_a_log_of_a_pod_that_has_not_begun(client: ClusterClient, server: ApiServer) -> None:
    add_pod(server, "p")
    with pytest.raises(NotFoundError, match="ContainerCreating"):
        list(client.log("foundation", "p"))


def add_pod(server: ApiServer, name: str) -> None:
    """A pod that nobody made."""
    kind = next(kind for kind in KINDS if kind.kind == "Pod")
    metadata = {"name": name, "labels": {}}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}}
    server.objects.create(kind, "foundation", manifest, dry_run=False)


def test_a_stream_that_is_closed_leaves_no_kubectl_behind(
    server: ApiServer, kubeconfig: Path
) -> None:
    others = _children()
    add_pod(server, "p")
    server.logs["foundation", "p"] = b"one\n"
    server.open_logs.add(("foundation", "p"))
    stream = open_client("kubectl", kubeconfig).log("foundation", "p", follow=True)
    pieces = iter(stream)
    assert next(pieces) == b"one\n"
    assert len(_children() - others) == 1
    stream.close()
    assert list(pieces) == []
    assert _children() <= others


def test_a_stream_that_nobody_reads_on_leaves_no_kubectl_behind(
    server: ApiServer, kubeconfig: Path
) -> None:
    others = _children()
    add_pod(server, "p")
    server.logs["foundation", "p"] = b"one\n"
    server.open_logs.add(("foundation", "p"))
    pieces = iter(open_client("kubectl", kubeconfig).log("foundation", "p", follow=True))
    assert next(pieces) == b"one\n"
    pieces.close()
    assert _children() <= others


def _children() -> set[str]:
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(path.read_text().split())


@pytest.mark.parametrize(("program", "message"), [("/nonexistent/kubectl", "Cannot run")])
def test_a_program_that_cannot_be_run(program: str, message: str) -> None:
    client = ClusterClient(Kubectl(program))
    with pytest.raises(failures.ClusterError, match=message):
        client.get(POD, "a", "x")


def test_an_answer_that_is_no_object(tmp_path: Path) -> None:
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\ncat > /dev/null\necho '[1]'\n")
    program.chmod(0o755)
    with pytest.raises(failures.ClusterError, match="Not an object"):
        ClusterClient(Kubectl(str(program))).get(POD, "a", "x")


def test_a_complaint_that_nobody_knows(tmp_path: Path) -> None:
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\necho 'Warning: old' >&2\necho 'strange things' >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(failures.ClusterError, match="kubectl cannot get .*: strange things"):
        ClusterClient(Kubectl(str(program))).get(POD, "a", "x")


def test_requests_name_this_program(python: ClusterClient, server: ApiServer) -> None:
    python.create(config_map())
    assert server.requests[-1].agent == "pyxis"
    assert json.loads(server.requests[-1].body)["kind"] == "ConfigMap"
    assert server.requests[-1].query == {"fieldValidation": "Strict", "fieldManager": "pyxis"}
