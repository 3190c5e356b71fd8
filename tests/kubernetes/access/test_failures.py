"""A server's answers become errors that say what to do."""

from __future__ import annotations

import pytest

from enroot_py import EnrootError, ExistsError, NotFoundError
from pyxis_py.kubernetes.access.failures import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    LoginError,
    MissingKindError,
    RejectedError,
    Status,
    failure,
    unreachable,
)
from pyxis_py.kubernetes.access.resources import COMMAND, JOBSET, SECRET, Resource

RBAC = ('secrets is forbidden: User "user1" cannot create resource "secrets" in API group "" in '
        'the namespace "a"')  # fmt: skip
QUOTA = 'secrets "x" is forbidden: exceeded quota: gpus, requested: gpu=8, used: gpu=64'
HOOK = 'admission webhook "vjobset.kb.io" denied the request: no LocalQueue'


@pytest.mark.parametrize(("status", "kind", "message"), [
    (Status(401, "Unauthorized", "Unauthorized"), LoginError, "does not know you"),
    (Status(0, "Unauthorized", "x"), LoginError, "does not know you"),
    (Status(404, "", "404 page not found"), MissingKindError, "has no JobSet of jobset.x-k8s.io"),
    (Status(0, "NotFound", "the server could not find the requested resource"), MissingKindError,
     "has no JobSet"),
    (Status(0, "", 'no matches for kind "JobSet"'), MissingKindError, "has no JobSet"),
    (Status(404, "NotFound", 'jobsets "x" not found'), NotFoundError, "There is no JobSet a/x"),
    (Status(404, "NotFound", 'namespaces "a" not found'), NotFoundError, "no namespace"),
    (Status(409, "AlreadyExists", "x"), ExistsError, "There is a JobSet a/x already"),
    (Status(409, "Conflict", "newer"), ConflictError, "changed by somebody else: newer"),
    (Status(403, "Forbidden", RBAC), ForbiddenError, "As user1 you may not create JobSet a/x"),
    (Status(403, "Forbidden", QUOTA), RejectedError, "quota of the namespace refuses JobSet a/x"),
    (Status(403, "Forbidden", HOOK), RejectedError, "vjobset.kb.io refuses JobSet a/x: no Local"),
    (Status(403, "Forbidden", "no"), ForbiddenError, "forbids to create JobSet a/x: no"),
    (Status(400, "BadRequest", HOOK), RejectedError, "vjobset.kb.io refuses"),
    (Status(422, "Invalid", "spec: wrong"), RejectedError, "refuses JobSet a/x: spec: wrong"),
    (Status(500, "InternalError", "etcd"), ClusterError, "cannot create JobSet a/x: etcd"),
    (Status(0, "", "odd"), ClusterError, "cannot create JobSet a/x: odd"),
])  # fmt: skip
def test_an_answer_and_its_error(status: Status, kind: type[EnrootError], message: str) -> None:
    error = failure(status, "create", JOBSET, "x", "a")
    assert type(error) is kind
    assert message in str(error)


@pytest.mark.parametrize(("resource", "hint"), [
    (JOBSET, "JobSet has to be installed"),
    (COMMAND, "Volcano has to be installed"),
    (Resource("example.org/v1", "Thing", "things"), "example.org has to be installed"),
    (SECRET, "Kubernetes has to be installed"),
])  # fmt: skip
def test_a_missing_kind_names_what_brings_it(resource: Resource, hint: str) -> None:
    assert hint in failure(Status(404, "", "404 page not found"), "list", resource, "", "a").hint


def test_collections_are_named_by_their_place() -> None:
    text = Status(500, "", "x")
    assert "jobsets.jobset.x-k8s.io in a" in str(failure(text, "list", JOBSET, "", "a"))
    assert "in all namespaces" in str(failure(text, "list", JOBSET, "", ""))


def test_a_log_that_is_not_there_yet_is_not_found() -> None:
    status = Status(400, "BadRequest", 'container "main" is waiting to start')
    assert type(failure(status, "read the log of", JOBSET, "x", "a")) is NotFoundError


def test_a_long_answer_is_cut() -> None:
    assert len(str(failure(Status(500, "", "x" * 10**6), "get", JOBSET, "x", "a"))) < 2200


def test_a_servers_words_cannot_reach_the_terminal() -> None:
    text = str(failure(Status(500, "", "a\x1b[2Jb\nc"), "get", JOBSET, "x", "a"))
    assert "a\\x1b[2Jb\nc" in text
    assert "\x1b" not in str(unreachable("\x1b"))


@pytest.mark.parametrize(("message", "hint"), [
    ("x509: certificate signed by unknown authority", "certificate-authority"),
    ("connection to the server localhost:8080 was refused", "KUBECONFIG"),
    ('context "x" does not exist', "KUBECONFIG"),
    ("dial tcp 10.0.0.1:443: i/o timeout", "kubectl version"),
])  # fmt: skip
def test_no_answer_says_what_to_look_at(message: str, hint: str) -> None:
    assert hint in unreachable(message).hint
