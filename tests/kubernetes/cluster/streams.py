"""Answers of the stub API server, whole and in pieces: watches, logs, programs run in pods."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.kubernetes.cluster.kinds import Kind
from tests.kubernetes.cluster.objects import Key, Object, RefusalError, matches

WEBSOCKET_ID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""Source: RFC 6455, section 1.3."""


class Streams(http.server.BaseHTTPRequestHandler):
    """What a handler needs to answer; `server.api` is the ApiServer."""

    server: http.server.ThreadingHTTPServer

    @property
    def api(self) -> Any:
        """The ApiServer."""
        return self.server.api  # type: ignore[attr-defined]

    def answer_watch(self, kind: Kind, namespace: str, query: dict[str, str]) -> None:
        """Answer with events, until the time is over."""
        objects = self.api.objects
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        until = time.monotonic() + float(query.get("timeoutSeconds") or 60)
        self._start_chunks("application/json")
        seen = int(query.get("resourceVersion") or 0)
        if not seen:
            # Without a version a watch begins with what is there, and says where that ends.
            with objects.changed:
                seen, found = objects.version, objects.list(kind, namespace, labels, fields)
            for made in found:
                self._event("ADDED", made)
            marks = {"k8s.io/initial-events-end": "true"}
            metadata = {"resourceVersion": str(seen), "annotations": marks}
            if query.get("sendInitialEvents") == "true":
                self._event("BOOKMARK", {"apiVersion": kind.group_version, "kind": kind.kind,
                                         "metadata": metadata})  # fmt: skip
        while time.monotonic() < until and not self.api.stopping:
            with objects.changed:
                objects.collect()
                events = list(objects.since(seen))
                if not events:
                    objects.changed.wait(0.05)
            for number, event, key, made in events:
                seen = number
                same = (key.group_version, key.plural) == (kind.group_version, kind.plural)
                if same and namespace in ("", key.namespace) and matches(made, labels, fields):
                    self._event(event, made)
        self._chunk(b"")

    def _event(self, event: str, made: Object) -> None:
        self._chunk(json.dumps({"type": event, "object": made}).encode("utf-8") + b"\n")

    def answer_log(self, query: dict[str, str], key: Key) -> None:
        """Answer with what a pod wrote, and go on while it writes."""
        self.api.objects.get(key)
        where = (key.namespace, key.name)
        if where not in self.api.logs:
            text = f'container "main" in pod "{key.name}" is waiting to start: ContainerCreating'
            raise RefusalError(400, "BadRequest", text)
        tail = query.get("tailLines")
        lines = self.api.logs[where].splitlines(keepends=True)
        written = b"".join(lines[len(lines) - int(tail) :] if tail else lines)
        if query.get("follow") != "true":
            self.send_bytes(200, written, "text/plain")
            return
        self._start_chunks("text/plain")
        sent = 0
        while not self.api.stopping:
            # Asked first: what is written before the end counts.
            writes = where in self.api.open_logs
            rest = self.api.logs[where][sent:]
            sent += len(rest)
            if rest:
                self._chunk(rest)
            elif not writes:
                break
            else:
                time.sleep(0.02)
        self._chunk(b"")

    def answer_exec(self, key: Key) -> None:
        """Run a program in a pod: a WebSocket whose frames begin with the number of a stream."""
        self.api.objects.get(key)
        command = parse_qs(urlsplit(self.path).query)["command"]
        ended = self.api.run_in_pod(key.name, command)
        nonce = (self.headers["Sec-WebSocket-Key"] + WEBSOCKET_ID).encode("ascii")
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        accepted = base64.b64encode(hashlib.sha1(nonce).digest()).decode("ascii")
        self.send_header("Sec-WebSocket-Accept", accepted)
        spoken = self.headers["Sec-WebSocket-Protocol"].split(",")[0].strip()
        self.send_header("Sec-WebSocket-Protocol", spoken)
        self.end_headers()
        status: Object = {"metadata": {}, "status": "Success"}
        if ended.returncode:
            causes = [{"reason": "ExitCode", "message": str(ended.returncode)}]
            text = f"command terminated with non-zero exit code: exit status {ended.returncode}"
            status = {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                      "message": text, "details": {"causes": causes}}  # fmt: skip
        for stream, data in (1, ended.stdout), (2, ended.stderr), (3, json.dumps(status).encode()):
            if data:
                self._frame(0x82, bytes([stream]) + data)
        self._frame(0x88, b"\x03\xe8")
        self.close_connection = True
        # The client's own goodbye; what it says is of no interest.
        self.rfile.read(2)

    def _frame(self, head: int, payload: bytes) -> None:
        size = len(payload)
        length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
        self.wfile.write(bytes([head]) + length + payload)

    def _start_chunks(self, content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def send_document(self, code: int, document: Any) -> None:
        """Answer with JSON."""
        self.send_bytes(code, json.dumps(document).encode("utf-8"), "application/json")

    def send_bytes(self, code: int, body: bytes, content_type: str) -> None:
        """Answer with anything."""
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
