"""What a FakeRegistry can do wrong: actions for `FakeRegistry.fault`."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from tests.registry.fake_registry import Action, Handler, Response, refuse


def answer(status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Action:
    """Answer with this instead; without a body, with a usual error."""

    def act(handler: Handler, response: Response) -> Response:
        usual = refuse(status, "")
        return Response(
            status,
            body or usual.body,
            {**({} if body else usual.headers), **(headers or {})},
        )

    return act


def redirect(base: str, status: int = 307) -> Action:
    """Send the client to the same path under `base`, or to `base` itself if it has a path."""

    def act(handler: Handler, response: Response) -> Response:
        if response.status >= 400:
            return response
        location = base if urlsplit(base).path else base + urlsplit(handler.path).path
        return Response(status, b"", {"Location": location})

    return act


def change(**headers: str) -> Action:
    """Add or replace headers; `_` in a name stands for `-`."""

    def act(handler: Handler, response: Response) -> Response:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return Response(response.status, response.body, {**response.headers, **named})

    return act


def body(data: bytes) -> Action:
    """Send other bytes with the same headers."""

    def act(handler: Handler, response: Response) -> Response:
        return Response(response.status, data, response.headers)

    return act


def corrupt(at: int = -1) -> Action:
    """Flip the bits of one byte."""

    def act(handler: Handler, response: Response) -> Response:
        data = bytearray(response.body)
        if data:
            data[at] ^= 0xFF
        return Response(response.status, bytes(data), response.headers)

    return act


def truncate(size: int) -> Action:
    """Promise the whole body, send `size` bytes of it and close the connection in order."""

    def act(handler: Handler, response: Response) -> None:
        handler.send_head(response)
        handler.wfile.write(response.body[:size])
        handler.drop()

    return act


def reset(size: int) -> Action:
    """Send `size` bytes of the body, then reset the connection."""

    def act(handler: Handler, response: Response) -> None:
        handler.send_head(response)
        handler.wfile.write(response.body[:size])
        handler.wfile.flush()
        # Let the bytes get through: a reset makes the receiver's kernel drop what is unread.
        handler.registry.stopping.wait(0.05)
        handler.reset()

    return act


def drip(size: int, seconds: float) -> Action:
    """Send `size` bytes of the body at a time, with a pause after each piece."""

    def act(handler: Handler, response: Response) -> None:
        handler.send_head(response)
        for start in range(0, len(response.body), size):
            handler.wfile.write(response.body[start : start + size])
            handler.wfile.flush()
            if handler.registry.stopping.wait(seconds):
                break
        handler.drop()

    return act


def stall(size: int = 0) -> Action:
    """Send `size` bytes of the body, then nothing for as long as the server runs."""

    def act(handler: Handler, response: Response) -> None:
        handler.send_head(response)
        handler.wfile.write(response.body[:size])
        handler.wfile.flush()
        handler.registry.stopping.wait(30)
        handler.drop()

    return act


def endless_header() -> Action:
    """Send header lines for ever."""

    def act(handler: Handler, response: Response) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while not handler.registry.stopping.is_set():
            handler.wfile.write(b"X-Filler: " + b"x" * 100 + b"\r\n")

    return act


def dripping_header(seconds: float) -> Action:
    """Send one header line for ever, a byte at a time, with a pause after each."""

    def act(handler: Handler, response: Response) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Filler: ")
        while not handler.registry.stopping.wait(seconds):
            handler.wfile.write(b"x")

    return act


def without_ranges() -> Action:
    """Send the whole blob, whatever range was asked for."""

    def act(handler: Handler, response: Response) -> Response:
        if response.status != 206:
            return response
        digest = urlsplit(handler.path).path.rpartition("/")[2]
        return Response(200, handler.registry.images.blobs[digest])

    return act
