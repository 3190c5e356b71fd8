"""What a cluster's refusal means, in the project's words.

ClusterError
├── UnreachableError   no answer: network, certificate, configuration
├── LoginError         the cluster does not know who asks
├── ForbiddenError     the user's role does not allow it
├── MissingKindError   the kind of object is not installed
├── ConflictError      somebody else changed the object at the same time
└── RejectedError      a quota, a webhook or the validation says no

An object that is not there is a NotFoundError, a name that is taken an ExistsError.

Pure. Source: Kubernetes API, meta/v1 Status; its reasons are those of api/errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from enroot_py import EnrootError, ExistsError, NotFoundError
from pyxis_py.kubernetes.access.resources import PROVIDERS, Resource


class ClusterError(EnrootError):
    """A cluster, or the way to it, does not do what was asked."""


class UnreachableError(ClusterError):
    """No answer came."""


class LoginError(ClusterError):
    """The cluster does not know who asks."""


class ForbiddenError(ClusterError):
    """The user's role does not allow it."""


class MissingKindError(ClusterError):
    """The kind of object is not installed in the cluster."""


class ConflictError(ClusterError):
    """The object was changed by somebody else in between."""


class RejectedError(ClusterError):
    """A quota, a webhook or the API's validation refuses the object."""


@dataclass(frozen=True, slots=True)
class Status:
    """An answer that is no success.

    Attributes:
        code: the HTTP status, 0 where it is not known.
        reason: the one-word reason of a Status, "" where it is not known.
        message: the server's sentence.
    """

    code: int
    reason: str
    message: str


_NO_SUCH_PATH = ("404 page not found", "the server could not find the requested resource")
_RBAC = re.compile(r'User "([^"]*)" cannot (\w+) resource')
_WEBHOOK = re.compile(r'admission webhook "([^"]+)" denied the request: ?(.*)', re.DOTALL)
_QUOTA = re.compile(r"exceeded quota: ?(.*)", re.DOTALL)
_LONGEST = 2000
"""Characters of a server's sentence that are repeated."""


def failure(
    status: Status, verb: str, resource: Resource, name: str, namespace: str
) -> EnrootError:
    """Return the error for an answer.

    Args:
        verb: what was asked: create, get, list, patch, delete or read the log of.
        name: of the object, "" for a whole collection.
    """
    message = _shown(status.message)
    what = f"{resource.kind} {namespace}/{name}" if name else f"{resource.title} in {namespace}"
    if not namespace:
        what = f"{resource.title} in all namespaces"
    if status.reason == "Unauthorized" or status.code == 401:
        return LoginError(
            "The cluster does not know you: its answer is Unauthorized",
            hint="log in again, or choose another user with --context",
        )
    if _is_missing_kind(status, message):
        provider = PROVIDERS.get(resource.group, resource.group or "Kubernetes")
        return MissingKindError(
            f"The cluster has no {resource.kind} of {resource.api_version}",
            hint=f"{provider} has to be installed there; --target chooses what jobs are made of",
        )
    if status.reason == "NotFound" or status.code == 404:
        return _not_found(message, what)
    if status.reason == "AlreadyExists":
        return ExistsError(f"There is a {resource.kind} {namespace}/{name} already")
    if status.reason == "Conflict" or status.code == 409:
        return ConflictError(f"{what} was changed by somebody else: {message}", hint="try again")
    if status.reason == "Forbidden" or status.code == 403:
        return _forbidden(message, verb, what)
    if status.reason in ("BadRequest", "Invalid") or status.code in (400, 422):
        return _invalid(message, verb, what)
    return ClusterError(f"The cluster cannot {verb} {what}: {message}")


def _shown(text: str) -> str:
    """A server's words, without what could move a terminal's cursor."""
    text = text.strip()[:_LONGEST]
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)


def _is_missing_kind(status: Status, message: str) -> bool:
    if status.code not in (0, 404):
        return False
    return any(text in message for text in _NO_SUCH_PATH) or "no matches for kind" in message


def _not_found(message: str, what: str) -> EnrootError:
    if message.startswith("namespaces "):
        return NotFoundError(f"There is no namespace for {what}: {message}",
                             hint="choose one with --namespace")  # fmt: skip
    return NotFoundError(f"There is no {what}")


def _forbidden(message: str, verb: str, what: str) -> EnrootError:
    webhook, quota, rbac = (pattern.search(message) for pattern in (_WEBHOOK, _QUOTA, _RBAC))
    if webhook:
        return RejectedError(f"{webhook[1]} refuses {what}: {webhook[2]}")
    if quota:
        return RejectedError(
            f"The quota of the namespace refuses {what}: {quota[1]}",
            hint="ask for less, or cancel something",
        )
    if rbac:
        return ForbiddenError(
            f"As {rbac[1]} you may not {verb} {what}",
            hint="ask for a role that allows it, or choose another --namespace",
        )
    return ForbiddenError(f"The cluster forbids to {verb} {what}: {message}")


def _invalid(message: str, verb: str, what: str) -> EnrootError:
    webhook = _WEBHOOK.search(message)
    if webhook:
        return RejectedError(f"{webhook[1]} refuses {what}: {webhook[2]}")
    if verb == "read the log of":
        return NotFoundError(f"{what} has no log yet: {message}")
    return RejectedError(
        f"The cluster refuses {what}: {message}",
        hint="docs/kubernetes.md names the versions that manifests are made for",
    )


def unreachable(message: str) -> EnrootError:
    """Return the error for a request that got no answer, with what to look at first."""
    text = _shown(message)
    hint = "see whether `kubectl version` gets an answer"
    if "certificate" in text or "x509" in text:
        hint = "the kubeconfig's certificate-authority has to be the cluster's"
    elif "localhost:8080" in text or "context" in text or "kubeconfig" in text.lower():
        hint = "set KUBECONFIG, or give --kubeconfig and --context"
    return UnreachableError(f"No answer from the cluster: {text}", hint=hint)
