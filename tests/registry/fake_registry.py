"""A registry on loopback that pulls are tried against: every refusal and every fault on demand.

    with FakeRegistry(store, auth=BasicAuth("u", "p")) as registry:
        registry.fault("/blobs/", reset(1000), times=1)     # actions: faults.py
        ...  # pull from registry.host
        assert [entry.path for entry in registry.log] == [...]

Runs in threads of this process, on a port of its own. Read-only: images come from an ImageStore.
"""

from __future__ import annotations

import base64
import binascii
import http.server
import json
import re
import secrets
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from tests.registry.images import ImageStore

CERTIFICATES = Path(__file__).resolve().parent / "certificates"
CA_FILE = CERTIFICATES / "ca.crt"
"""Signs the certificate of servers with `tls=True`: localhost, 127.0.0.1, *.test and ::1."""

_CONTENT = re.compile(r"/v2/(.+)/(manifests|blobs)/([^/]+)")


@dataclass
class Response:
    """What the registry would answer; actions change it or send it in their own way."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LogEntry:
    """One request as it came, and the status it got."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    form: Mapping[str, list[str]]
    status: int

    @property
    def authorization(self) -> str:
        """The Authorization header, "" if there was none."""
        return self.headers.get("authorization", "")

    @property
    def auth_kind(self) -> str:
        """ "Basic", "Bearer" or ""."""
        return self.authorization.partition(" ")[0]


Action = Callable[["Handler", Response], "Response | None"]
"""Changes a response and returns it, or sends it in its own way and returns None."""


class Auth(Protocol):
    """Decides who may read what."""

    def refusal(self, handler: Handler, repository: str) -> Response | None:
        """The answer to a request that is not allowed; None if it is."""
        ...


class NoAuth:
    """Everybody may read everything."""

    def refusal(self, handler: Handler, repository: str) -> Response | None:
        """None, always."""
        return None


@dataclass
class BasicAuth:
    """One account, asked for with a Basic challenge."""

    user: str
    password: str
    text_errors: bool = False
    challenge: str = 'Basic realm="fake"'

    def refusal(self, handler: Handler, repository: str) -> Response | None:
        """401 unless the account's name and password came along."""
        if handler.basic_credentials() == (self.user, self.password):
            return None
        return refuse(401, self.challenge, text=self.text_errors)


@dataclass
class BearerAuth:
    """Tokens of an issuer, which lives here (`/token`) or at `realm`.

    Attributes:
        issuer: gives the tokens out and knows them again.
        realm: URL of the token endpoint; "" for `/token` of this server.
        service: what the challenge calls this registry.
        scope: what the challenge asks for; None for the repository's pull, "" for no scope.
        text_errors: refuse in plain text.
    """

    issuer: TokenIssuer
    realm: str = ""
    service: str = "fake"
    scope: str | None = None
    text_errors: bool = False

    def refusal(self, handler: Handler, repository: str) -> Response | None:
        """401 with a challenge unless a living token for the repository came along."""
        kind, _, token = handler.headers.get("Authorization", "").partition(" ")
        if kind == "Bearer" and self.issuer.allows(token, repository):
            return None
        realm = self.realm or f"{handler.registry.url}/token"
        scope = f"repository:{repository}:pull" if self.scope is None else self.scope
        challenge = f'Bearer realm="{realm}",service="{self.service}"'
        challenge += f',scope="{scope}"' if scope else ""
        challenge += ',error="invalid_token"' if token else ""
        return refuse(401, challenge, text=self.text_errors)


class TokenIssuer:
    """Gives out bearer tokens by GET with Basic and by POST with a form, as real ones do.

    Args:
        accounts: user to password.
        public: repositories that anybody gets a token for; None for all.
        lifetime: seconds that a token lives.
        methods: those answered; others get 405.
        refresh_tokens: accepted by POST with grant_type=refresh_token.
        key: the member of the answer that holds the token.
        text_errors: refuse in plain text.
    """

    def __init__(
        self,
        accounts: Mapping[str, str] | None = None,
        *,
        public: set[str] | None = frozenset(),  # type: ignore[assignment]
        lifetime: float = 300,
        methods: tuple[str, ...] = ("GET", "POST"),
        refresh_tokens: set[str] | None = None,
        key: str = "token",
        text_errors: bool = False,
    ) -> None:
        self.accounts = dict(accounts or {})
        self.public = public
        self.lifetime = lifetime
        self.methods = methods
        self.refresh_tokens = refresh_tokens or set()
        self.key = key
        self.text_errors = text_errors
        self.tokens: dict[str, tuple[str, float]] = {}
        self.lock = threading.Lock()

    def allows(self, token: str, repository: str) -> bool:
        """Tell whether a token is alive and was given for the repository."""
        with self.lock:
            granted, until = self.tokens.get(token, ("", 0.0))
        return time.monotonic() < until and (not repository or granted == repository)

    def answer(self, handler: Handler) -> Response:
        """The token endpoint."""
        if handler.command not in self.methods:
            return refuse(405, "", text=self.text_errors)
        fields = handler.form if handler.command == "POST" else handler.query
        scope = fields.get("scope", [""])[0]
        repository = scope.split(":")[1] if scope.count(":") >= 2 else ""
        user = self._user(handler, fields)
        if user is None:
            return refuse(401, "", text=self.text_errors)
        if not user and self.public is not None and repository not in self.public:
            return refuse(401, "", text=self.text_errors)
        token = secrets.token_urlsafe(24)
        with self.lock:
            self.tokens[token] = (repository, time.monotonic() + self.lifetime)
        answer = {self.key: token, "expires_in": max(1, int(self.lifetime))}
        return Response(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _user(self, handler: Handler, fields: Mapping[str, list[str]]) -> str | None:
        """Who asks: a name, "" for nobody in particular, None for a wrong password."""
        grant = fields.get("grant_type", [""])[0]
        if handler.command == "POST" and grant == "refresh_token":
            return "refresh" if fields["refresh_token"][0] in self.refresh_tokens else None
        if handler.command == "POST" and grant == "password":
            given = fields["username"][0], fields["password"][0]
        else:
            basic = handler.basic_credentials()
            if basic is None:
                return "" if "Authorization" not in handler.headers else None
            given = basic
        return given[0] if self.accounts.get(given[0]) == given[1] else None


def refuse(status: int, challenge: str, *, text: bool = False) -> Response:
    """An error as registries word them, in JSON or in plain text."""
    headers = {"WWW-Authenticate": challenge} if challenge else {}
    if text:
        return Response(status, b"access refused\n", {**headers, "Content-Type": "text/plain"})
    codes = {401: "UNAUTHORIZED", 403: "DENIED", 404: "MANIFEST_UNKNOWN", 429: "TOOMANYREQUESTS"}
    error = {"code": codes.get(status, "UNKNOWN"), "message": f"status {status}"}
    body = json.dumps({"errors": [error]}).encode()
    return Response(status, body, {**headers, "Content-Type": "application/json"})


class FakeRegistry:
    """The server. A context manager: listens inside it, is gone after it.

    Attributes:
        images: what it serves.
        log: every request, in order of completion.
        host: "127.0.0.1:PORT", or with another address or name as asked for.
    """

    def __init__(
        self,
        images: ImageStore | None = None,
        *,
        auth: Auth | None = None,
        issuer: TokenIssuer | None = None,
        tls: bool = False,
        port: int = 0,
        address: str = "127.0.0.1",
        name: str = "",
    ) -> None:
        self.images = images or ImageStore()
        self.auth: Auth = auth or NoAuth()
        self.issuer = issuer or (auth.issuer if isinstance(auth, BearerAuth) else None)
        self.log: list[LogEntry] = []
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self._faults: list[tuple[str, Action, list[int]]] = []
        self._server = _Server((address, port), Handler, self)
        self._tls = tls
        self.port = self._server.server_address[1]
        self.host = f"{name or address}:{self.port}"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATES / "server.crt", CERTIFICATES / "server.key")
            # The handshake belongs into the connection's thread: a client that never shakes hands
            # must not stop the others.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        """Scheme and host, without a trailing slash."""
        return f"{'https' if self._tls else 'http'}://{self.host}"

    def fault(
        self, where: str, action: Action, *, times: int = 1 << 30, first: bool = False
    ) -> None:
        """Let `action` answer the next `times` requests whose path contains `where`.

        Faults for the same path take their turns in order; `first` goes before all others.
        """
        with self.lock:
            self._faults.insert(0 if first else len(self._faults), (where, action, [times]))

    def paths(self, part: str = "") -> list[str]:
        """Paths of the requests so far that contain `part`."""
        return [entry.path for entry in self.log if part in entry.path]

    def action_for(self, path: str) -> Action | None:
        """Take the next fault that applies to `path`."""
        with self.lock:
            for where, action, left in self._faults:
                if where in path and left[0] > 0:
                    left[0] -= 1
                    return action
        return None

    def __enter__(self) -> FakeRegistry:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.close_connections()
        self._server.server_close()
        self._thread.join()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = False
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(
        self, address: tuple[str, int], handler: type[Handler], registry: FakeRegistry
    ) -> None:
        self.registry = registry
        self._open: set[socket.socket] = set()
        super().__init__(address, handler)

    def process_request(self, request: object, client_address: object) -> None:
        assert isinstance(request, socket.socket)
        with self.registry.lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: object) -> None:
        assert isinstance(request, socket.socket)
        with self.registry.lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """Wake the threads that wait for a next request on a kept-alive connection."""
        with self.registry.lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away are what many tests are about."""


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # header and body go in two pieces
    server: _Server

    @property
    def registry(self) -> FakeRegistry:
        """The registry that this connection belongs to."""
        return self.server.registry

    def setup(self) -> None:
        """Shake hands, with a time limit, before the first request is read."""
        self.request.settimeout(30)
        if isinstance(self.request, ssl.SSLSocket):
            self.request.do_handshake()
        super().setup()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing: the log is a list."""

    def do_GET(self) -> None:
        """Answer a GET, a HEAD or a POST."""
        parts = urlsplit(self.path)
        self.query = parse_qs(parts.query, keep_blank_values=True)
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode("utf-8", "replace") if length else ""
        self.form = parse_qs(body, keep_blank_values=True)
        response: Response | None = self._response(parts.path)
        action = self.registry.action_for(parts.path)
        if action:
            assert response is not None
            response = action(self, response)
        if response is not None:
            self.send(response)

    do_HEAD = do_POST = do_PUT = do_PATCH = do_GET

    def _response(self, path: str) -> Response:
        registry = self.registry
        if path == "/token" and registry.issuer:
            return registry.issuer.answer(self)
        match = _CONTENT.fullmatch(path)
        tags = re.fullmatch(r"/v2/(.+)/tags/list", path)
        repository = match[1] if match else tags[1] if tags else ""
        refusal = registry.auth.refusal(self, repository)
        if refusal:
            return refusal
        if path in ("/v2", "/v2/"):
            return Response(200, b"{}", {"Content-Type": "application/json"})
        if tags:
            names = [tag for name, tag in registry.images.tags if name == repository]
            names = sorted(name for name in names if ":" not in name)
            return Response(200, json.dumps({"name": repository, "tags": names}).encode())
        if not match:
            return refuse(404, "")
        return self._blob(match[3]) if match[2] == "blobs" else self._manifest(match[1], match[3])

    def _manifest(self, repository: str, name: str) -> Response:
        found = self.registry.images.tags.get((repository, name))
        if not found:
            return refuse(404, "")
        digest, media_type = found
        headers = {"Content-Type": media_type, "Docker-Content-Digest": digest}
        return Response(200, self.registry.images.blobs[digest], headers)

    def _blob(self, digest: str) -> Response:
        body = self.registry.images.blobs.get(digest)
        if body is None:
            return refuse(404, "")
        headers = {"Content-Type": "application/octet-stream", "Accept-Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if not wanted:
            return Response(200, body, headers)
        start = int(wanted[1])
        if start >= len(body):
            return Response(416, b"", {"Content-Range": f"bytes */{len(body)}"})
        headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        return Response(206, body[start:], headers)

    def basic_credentials(self) -> tuple[str, str] | None:
        """Name and password of a Basic Authorization header, None without a good one."""
        kind, _, encoded = self.headers.get("Authorization", "").partition(" ")
        if kind != "Basic":
            return None
        try:
            user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        return user, password

    def send(self, response: Response) -> None:
        """Send a whole response."""
        self.send_head(response)
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def send_head(self, response: Response) -> None:
        """Send status and headers, and enter the request into the log."""
        entry = LogEntry(
            self.command,
            urlsplit(self.path).path,
            self.query,
            {key.lower(): value for key, value in self.headers.items()},
            self.form,
            response.status,
        )
        with self.registry.lock:
            self.registry.log.append(entry)
        self.send_response(response.status)
        headers = {"Content-Length": str(len(response.body)), **response.headers}
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()

    def drop(self) -> None:
        """End the connection after this response."""
        self.close_connection = True

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True
