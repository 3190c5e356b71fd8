"""A Kubernetes API server on loopback: TLS, bearer tokens, strict validation, and no controllers.

It serves what kubectl and the Python client ask for: discovery, OpenAPI, objects with their
versions, watches and logs. Whatever Kueue, JobSet, Volcano or a kubelet would do is done by tests.
"""

from __future__ import annotations

import http.server
import json
import ssl
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from pyxis_py.kubernetes.render.queueing import GATES
from tests.kubernetes.cluster import documents
from tests.kubernetes.cluster.kinds import BUILT_IN, KINDS, Kind, faults
from tests.kubernetes.cluster.objects import (
    Key,
    Object,
    ObjectStore,
    RefusalError,
)
from tests.kubernetes.cluster.patches import patched
from tests.kubernetes.cluster.streams import Streams

CERTIFICATES = Path(__file__).resolve().parents[2] / "registry" / "certificates"
CA_FILE = CERTIFICATES / "ca.crt"
TOKEN = "token-of-user1"
Admission = Callable[[str, Object], None]
Ended = subprocess.CompletedProcess[bytes]


@dataclass(slots=True)
class Request:
    """What a client asked for."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    content_type: str
    agent: str


@dataclass
class ApiServer:
    """The server and what tests may change about it.

    Attributes:
        kubernetes: the version whose schemas hold.
        served: the kinds that are installed.
        forbidden: verbs and plurals that the user may not use.
        admission: webhooks; one that refuses raises RefusalError.
        logs: what pods have written, by namespace and name.
        open_logs: pods that still write.
        requests: everything that was asked, in order.
        unchecked: take objects of versions whose schemas are not at hand.
        run_in_pod: what running a program in a pod leads to.
    """

    kubernetes: str = "1.37.0"
    served: tuple[Kind, ...] = KINDS
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    admission: list[Admission] = field(default_factory=list)
    logs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    open_logs: set[tuple[str, str]] = field(default_factory=set)
    requests: list[Request] = field(default_factory=list)
    objects: ObjectStore = field(default_factory=ObjectStore)
    namespaces: tuple[str, ...] = ("default", "foundation")
    run_in_pod: Callable[[str, list[str]], Ended] = lambda pod, command: Ended(command, 0, b"", b"")
    unchecked: bool = False
    stopping: bool = False

    def __enter__(self) -> ApiServer:
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.api = self  # type: ignore[attr-defined]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATES / "server.crt", CERTIFICATES / "server.key")
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stopping = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def reset(self) -> None:
        """Forget everything that a test made or changed."""
        fresh = ApiServer()
        for name in ("kubernetes", "served", "forbidden", "admission", "logs", "open_logs",
                     "requests", "objects", "namespaces", "run_in_pod", "unchecked"):  # fmt: skip
            setattr(self, name, getattr(fresh, name))

    @property
    def url(self) -> str:
        """Scheme, address and port."""
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    def write_kubeconfig(
        self, path: Path, *, token: str = TOKEN, namespace: str = "foundation", url: str = ""
    ) -> Path:
        """Write a kubeconfig as an administrator would hand it out."""
        path.write_text(yaml.safe_dump({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": "stub",
                "cluster": {"server": url or self.url, "certificate-authority": str(CA_FILE)},
            }],
            "users": [{"name": "user1", "user": {"token": token}}],
            "contexts": [{
                "name": "training",
                "context": {"cluster": "stub", "user": "user1", "namespace": namespace},
            }],
            "current-context": "training",
        }), encoding="utf-8")  # fmt: skip
        path.chmod(0o600)
        return path

    def asked(self, *methods: str) -> list[str]:
        """Method and path of the requests for objects, in order."""
        return [
            f"{request.method} {request.path}"
            for request in self.requests
            if (request.method in methods or not methods) and "/namespaces/" in request.path
        ]

    def all(self, plural: str) -> list[Object]:
        """All objects of a plural (in every group), in order of creation."""
        found = self.objects.objects.items()
        return [made for key, made in found if key.plural == plural]

    def key(self, plural: str, name: str, group: str = "") -> Key:
        """The key of the only object of a name."""
        (found,) = (
            key
            for key in self.objects.objects
            if (key.plural, key.name) == (plural, name) and key.group_version.startswith(group)
        )
        return found


def _check_gates(current: Object, made: Object) -> None:
    """Kueue's webhook: gates can be taken away, and never be added to an object that is there."""
    gates = [
        set((row["metadata"].get("annotations") or {}).get(GATES, "").split(",")) - {""}
        for row in (current, made)
    ]
    if gates[1] - gates[0]:
        text = f"metadata.annotations[{GATES}]: Forbidden: cannot add gates after creation"
        raise RefusalError(
            403, "Forbidden", f'admission webhook "vjob.kb.io" denied the request: {text}'
        )


class _Handler(Streams):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    timeout = 30
    # Headers and body are written one after the other: each would wait for the other's receipt.
    disable_nagle_algorithm = True
    server: http.server.ThreadingHTTPServer

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing: the log is a list."""

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, ssl.SSLError, TimeoutError):
            self.close_connection = True

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        body = self._body()
        kind = (self.headers.get("Content-Type") or "").partition(";")[0]
        asked = Request(
            self.command, parts.path, query, body, kind, self.headers.get("User-Agent", "")
        )
        self.api.requests.append(asked)
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise RefusalError(401, "Unauthorized", "Unauthorized")
            self._answer(asked)
        except RefusalError as refusal:
            self._refuse(refusal)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, asked: Request) -> None:
        path = asked.path.strip("/")
        document = self._document(path)
        if document is not None:
            self.send_document(200, document)
            return
        words = path.split("/")
        root, rest = (words[1:2], words[2:]) if words[0] == "api" else (words[1:3], words[3:])
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        if root == ["v1"] and rest[:1] == ["namespaces"] and len(rest) == 2:
            self._namespace(rest[1])
            return
        kind = next(
            (kind for kind in self.api.served
             if (kind.group_version, kind.plural) == ("/".join(root), rest[0] if rest else "")),
            None,
        )  # fmt: skip
        if kind is None:
            self.send_bytes(404, b"404 page not found\n", "text/plain; charset=utf-8")
            return
        self._check_access(asked, kind, namespace)
        self.api.objects.collect()
        if len(rest) == 1:
            self._collection(asked, kind, namespace)
        elif rest[2:] == ["log"]:
            self.answer_log(asked.query, Key(kind.group_version, kind.plural, namespace, rest[1]))
        elif rest[2:] == ["exec"]:
            self.answer_exec(Key(kind.group_version, kind.plural, namespace, rest[1]))
        else:
            self._object(asked, kind, Key(kind.group_version, kind.plural, namespace, rest[1]))

    def _namespace(self, name: str) -> None:
        """kubectl looks whether the namespace is there before it says that an object is not."""
        if name not in self.api.namespaces:
            raise RefusalError(404, "NotFound", f'namespaces "{name}" not found')
        self.send_document(
            200, {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}
        )

    def _document(self, path: str) -> Any:
        api = self.api
        if path == "version":
            return documents.version(api.kubernetes)
        if path == "api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "apis":
            return documents.groups(api.served)
        if path == "openapi/v3":
            return documents.openapi_index(api.served)
        if path.startswith("openapi/v3/"):
            return documents.openapi(path[len("openapi/v3/") :], api.kubernetes, api.served)
        root = path.partition("/")[2]
        return documents.resources(root, api.served) if root else None

    def _check_access(self, asked: Request, kind: Kind, namespace: str) -> None:
        verb = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete",
                "PUT": "update"}[asked.method]  # fmt: skip
        if asked.method == "GET" and asked.path.endswith(kind.plural):
            verb = "list"
        if (verb, kind.plural) in self.api.forbidden:
            group = kind.group
            raise RefusalError(
                403, "Forbidden",
                f'{kind.plural}{"." if group else ""}{group} is forbidden: User "user1" cannot '
                f'{verb} resource "{kind.plural}" in API group "{group}" in the namespace '
                f'"{namespace}"',
            )  # fmt: skip

    def _collection(self, asked: Request, kind: Kind, namespace: str) -> None:
        objects, query = self.api.objects, asked.query
        if asked.method == "GET" and query.get("watch") in ("1", "true"):
            self.answer_watch(kind, namespace, query)
        elif asked.method == "GET":
            items = objects.list(
                kind, namespace, query.get("labelSelector", ""), query.get("fieldSelector", "")
            )
            self.send_document(200, {
                "kind": f"{kind.kind}List", "apiVersion": kind.group_version,
                "metadata": {"resourceVersion": str(objects.version)}, "items": items,
            })  # fmt: skip
        elif asked.method == "POST":
            manifest = json.loads(asked.body)
            self._admit("create", kind, manifest, namespace, query)
            made = objects.create(kind, namespace, manifest, dry_run=query.get("dryRun") == "All")
            self.send_document(201, made)
        else:
            raise RefusalError(405, "MethodNotAllowed", "the server does not allow this method")

    def _admit(
        self, verb: str, kind: Kind, manifest: Object, namespace: str, query: dict[str, str]
    ) -> None:
        if (manifest.get("apiVersion"), manifest.get("kind")) != (kind.group_version, kind.kind):
            text = "the API version or kind in the data does not match the URL"
            raise RefusalError(400, "BadRequest", text)
        if manifest["metadata"].get("namespace", namespace) != namespace:
            text = "the namespace of the provided object does not match the request"
            raise RefusalError(400, "BadRequest", text)
        name = manifest["metadata"].get("name", "")
        found = [] if self.api.unchecked else faults(manifest, self.api.kubernetes)
        unknown = [text for text in found if "Additional properties" in text]
        if unknown and query.get("fieldValidation") == "Strict":
            text = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            text += f"strict decoding error: {'; '.join(unknown)}"
            raise RefusalError(400, "BadRequest", text)
        if set(found) - set(unknown):
            text = f'{kind.kind}.{kind.group} "{name}" is invalid: {"; ".join(found)}'
            raise RefusalError(422, "Invalid", text)
        for webhook in self.api.admission:
            webhook(verb, manifest)

    def _object(self, asked: Request, kind: Kind, key: Key) -> None:
        objects, query = self.api.objects, asked.query
        dry_run = query.get("dryRun") == "All"
        if asked.method == "GET":
            self.send_document(200, objects.get(key))
        elif asked.method == "DELETE":
            options = json.loads(asked.body) if asked.body else {}
            propagation = options.get("propagationPolicy") or query.get("propagationPolicy")
            found = objects.get(key)
            uid = options.get("preconditions", {}).get("uid")
            if uid and uid != found["metadata"]["uid"]:
                raise RefusalError(409, "Conflict", f"the UID in the precondition ({uid}) differs")
            self.send_document(
                200, objects.delete(key, propagation or "Background", dry_run=dry_run)
            )
        elif asked.method == "PATCH":
            self._patch(asked, kind, key, dry_run)
        else:
            manifest = json.loads(asked.body)
            self._admit("update", kind, manifest, key.namespace, query)
            self.send_document(200, objects.update(key, manifest, dry_run=dry_run))

    def _patch(self, asked: Request, kind: Kind, key: Key, dry_run: bool) -> None:
        objects, apply = self.api.objects, asked.content_type == "application/apply-patch+yaml"
        if asked.content_type.startswith("application/strategic") and kind.group not in BUILT_IN:
            raise RefusalError(
                415, "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json-patch+json, application/merge-patch+json, "
                "application/apply-patch+yaml",
            )  # fmt: skip
        try:
            current = objects.get(key)
        except RefusalError:
            if not apply:
                raise
            manifest = yaml.safe_load(asked.body)
            self._admit("create", kind, manifest, key.namespace, asked.query)
            self.send_document(201, objects.create(kind, key.namespace, manifest, dry_run=dry_run))
            return
        made = patched(asked.content_type, current, asked.body)
        # The version is looked at before any webhook that validates.
        objects.check_version(key, made)
        self._admit("update", kind, made, key.namespace, asked.query)
        _check_gates(current, made)
        immutable = current.get("immutable") and any(
            made.get(name) != current.get(name) for name in ("data", "binaryData", "immutable")
        )
        if immutable:
            text = f'{kind.kind} "{key.name}" is invalid: data: Forbidden: field is immutable'
            raise RefusalError(422, "Invalid", text)
        self.send_document(200, objects.update(key, made, dry_run=dry_run))

    def _refuse(self, refusal: RefusalError) -> None:
        self.send_document(refusal.code, {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": refusal.message, "reason": refusal.reason, "code": refusal.code,
        })  # fmt: skip
