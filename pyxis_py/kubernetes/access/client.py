"""The few requests that jobs need, whichever program carries them to the cluster.

A transport carries: kubectl.py runs the user's kubectl, python_client.py uses the `kubernetes`
package. Secrets travel in request bodies alone, never in arguments or messages.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Protocol

from pyxis_py.kubernetes.access.resources import POD, Object, Resource, resource_of

Query = Mapping[str, str]


class ByteStream(Protocol):
    """An answer's bytes in pieces as they come."""

    def __iter__(self) -> Generator[bytes, None, None]:
        """Yield pieces; raises the errors of failures.py."""

    def close(self) -> None:
        """End it, from another thread as well: a reader then sees its end."""


class Transport(Protocol):
    """How requests get to the cluster. All methods raise the errors of failures.py."""

    @property
    def namespace(self) -> str:
        """The namespace of the current context, "" where it names none."""

    def send(self, method: str, target: Target, query: Query, body: Object | None = None) -> Object:
        """Send GET, POST or DELETE and return the answer."""

    def patch(self, target: Target, body: Object) -> None:
        """Send a merge patch."""

    def stream(self, target: Target, query: Query) -> ByteStream:
        """Send GET and return the answer's bytes as they come."""

    def execute(self, target: Target, command: Sequence[str]) -> tuple[int, str]:
        """Run a program in a pod's container `main`; return its status and what it printed."""

    def close(self) -> None:
        """Let go of connections."""


class Target:
    """What a request is about: an object, a part of it, or a collection."""

    __slots__ = ("name", "namespace", "part", "resource", "verb")

    def __init__(
        self, verb: str, resource: Resource, namespace: str, name: str = "", *, part: str = ""
    ) -> None:
        self.verb, self.resource, self.namespace = verb, resource, namespace
        self.name, self.part = name, part

    @property
    def path(self) -> str:
        """Path in the API; the name of an object to create belongs to its body."""
        name = "" if self.verb == "create" else self.name
        return self.resource.path(self.namespace, name, self.part)


class ClusterClient:
    """Requests in the terms of jobs. Owns its transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def namespace(self) -> str:
        """The namespace of the current context; `default` where it names none."""
        return self._transport.namespace or "default"

    def close(self) -> None:
        """Let go of connections."""
        self._transport.close()

    def create(self, manifest: Object, *, dry_run: bool = False) -> Object:
        """Create an object, which must not be there yet; unknown fields are an error.

        Raises:
            ExistsError: if there is one of its name.
        """
        metadata = manifest["metadata"]
        target = Target("create", resource_of(manifest), metadata["namespace"],
                        metadata.get("name", ""))  # fmt: skip
        query = {"fieldValidation": "Strict", "fieldManager": "pyxis"}
        if dry_run:
            query["dryRun"] = "All"
        return self._transport.send("POST", target, query, manifest)

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """Return an object.

        Raises:
            NotFoundError: if it is not there.
        """
        return self._transport.send("GET", Target("get", resource, namespace, name), {})

    def list(self, resource: Resource, namespace: str, selector: str = "") -> list[Object]:
        """Return the objects of a kind with these labels; namespace "" stands for all."""
        query = {"labelSelector": selector} if selector else {}
        answer = self._transport.send("GET", Target("list", resource, namespace), query)
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        # Items of a list do not repeat what they are.
        return [{**kind, **item} for item in answer.get("items") or ()]

    def patch(self, resource: Resource, namespace: str, name: str, patch: Object) -> None:
        """Change fields of an object; None takes a field away.

        Raises:
            ConflictError: if the patch names a resourceVersion that is not the current one.
        """
        self._transport.patch(Target("patch", resource, namespace, name), patch)

    def delete(self, made: Object, *, foreground: bool = False) -> None:
        """Delete exactly this object, not another one that took its name.

        Args:
            foreground: keep it, terminating, until all that it owns is gone.
        """
        metadata = made["metadata"]
        target = Target("delete", resource_of(made), metadata["namespace"], metadata["name"])
        self._transport.send("DELETE", target, {}, {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground" if foreground else "Background",
            "preconditions": {"uid": metadata["uid"]},
        })  # fmt: skip

    def delete_pod(self, pod: Object) -> None:
        """Delete one pod with its own grace period."""
        metadata = pod["metadata"]
        target = Target("delete", POD, metadata["namespace"], metadata["name"])
        body = {"apiVersion": "v1", "kind": "DeleteOptions",
                "preconditions": {"uid": metadata["uid"]}}  # fmt: skip
        self._transport.send("DELETE", target, {}, body)

    def log(
        self, namespace: str, pod: str, *, follow: bool = False, tail: int | None = None
    ) -> ByteStream:
        """Return what the container `main` of a pod wrote, in pieces as they come."""
        query = {"container": "main"}
        if follow:
            query["follow"] = "true"
        if tail is not None:
            query["tailLines"] = str(tail)
        target = Target("read the log of", POD, namespace, pod, part="log")
        return self._transport.stream(target, query)

    def execute(self, namespace: str, pod: str, command: Sequence[str]) -> tuple[int, str]:
        """Run a program in the container `main` of a pod; return its status and its output."""
        target = Target("run a program in", POD, namespace, pod, part="exec")
        return self._transport.execute(target, command)
