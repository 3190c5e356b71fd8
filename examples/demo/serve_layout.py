"""Serve an OCI image layout read-only on loopback, as a registry would.

    python3 serve_layout.py FOLDER [PORT]

Prints the port once it listens. Every repository name serves the same layout; tags are the
`org.opencontainers.image.ref.name` annotations of its index. For trying things out, not for use.
Source: OCI distribution specification 1.1, "Pull".
"""

from __future__ import annotations

import http.server
import json
import re
import sys
from pathlib import Path

PATH = re.compile(r"/v2/(?P<name>[a-z0-9._/-]+)/(?P<kind>manifests|blobs)/(?P<reference>[^/]+)")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class LayoutHandler(http.server.BaseHTTPRequestHandler):
    """Answers GET and HEAD for manifests and blobs of one layout."""

    protocol_version = "HTTP/1.1"
    folder: Path

    def do_GET(self) -> None:
        if self.path in ("/v2", "/v2/"):
            self.answer(200, b"{}", "application/json")
            return
        match = PATH.fullmatch(self.path)
        digest = self.resolve(match["reference"]) if match else ""
        blob = self.folder / "blobs" / "sha256" / digest.removeprefix("sha256:")
        if not digest or not blob.is_file():
            self.answer(404, b'{"errors":[{"code":"NAME_UNKNOWN"}]}', "application/json")
            return
        data = blob.read_bytes()
        media_type = "application/octet-stream"
        if match and match["kind"] == "manifests":
            media_type = json.loads(data)["mediaType"]
        self.answer(200, data, media_type, digest)

    do_HEAD = do_GET

    def resolve(self, reference: str) -> str:
        """Turn a tag or a digest into a digest; "" if there is none."""
        if DIGEST.fullmatch(reference):
            return reference
        for entry in json.loads((self.folder / "index.json").read_text())["manifests"]:
            if entry["annotations"]["org.opencontainers.image.ref.name"] == reference:
                return str(entry["digest"])
        return ""

    def answer(self, status: int, body: bytes, media_type: str, digest: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent: the demo's own lines are what matters."""


def main() -> None:
    LayoutHandler.folder = Path(sys.argv[1])
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), LayoutHandler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
