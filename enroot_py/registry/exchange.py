"""Answers of servers: their bodies as they arrive, and whether asking again may help."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterator
from dataclasses import dataclass

import requests
import urllib3

from enroot_py.errors import RegistryError
from enroot_py.registry.failures import TransferError, connection_error, shown_url, status_text

IDLE_TIMEOUT = 60.0
"""Seconds without a single byte, and over which MIN_SPEED is measured."""

MIN_SPEED = 1024
"""Bytes a second; a body that arrives more slowly is given up and asked for again."""

PIECE_SIZE = 256 << 10
PASSING_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Exchange:
    """A response whose body has not been read yet.

    Attributes:
        response: of the library; to be closed by who reads it.
        url: where it came from in the end.
        own: it came from the very host that was asked, not from one that it redirected to.
        deadline: moment (of time.monotonic) when the body must be complete, 0 for none.
        slow_window: seconds over which MIN_SPEED is measured.
    """

    response: requests.Response
    url: str
    own: bool
    deadline: float = 0.0
    slow_window: float = IDLE_TIMEOUT

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.response.status_code

    def header(self, name: str) -> str:
        """Return a header, "" if there is none."""
        value: str = self.response.headers.get(name, "")
        return value

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it arrives and is stored, compressed or not.

        Raises:
            TransferError: if the connection breaks, the body ends early, comes too slowly or takes
                longer than ENROOT_TRANSFER_TIMEOUT.
        """
        started, received = time.monotonic(), 0
        raw: urllib3.HTTPResponse = self.response.raw
        while True:
            try:
                # One system call at a time: a full read would wait for a body that drips.
                piece = raw.read1(PIECE_SIZE)
            except (urllib3.exceptions.HTTPError, OSError) as error:
                raise connection_error(error, self.url) from error
            if not piece:
                return
            yield piece
            received += len(piece)
            now = time.monotonic()
            if self.deadline and now > self.deadline:
                raise TransferError(
                    f"{shown_url(self.url)} was not finished in time",
                    hint="ENROOT_TRANSFER_TIMEOUT sets the limit",
                    patient=False,
                )
            if now - started > self.slow_window:
                if received < MIN_SPEED * (now - started):
                    raise TransferError(f"{shown_url(self.url)} arrives too slowly")
                started, received = now, 0

    def read(self, limit: int) -> bytes:
        """Read a body of `limit` bytes at most, and close the response.

        Raises:
            RegistryError: if it is longer.
            TransferError: as `pieces` does.
        """
        body = bytearray()
        with self.response:
            for piece in self.pieces():
                body += piece
                if len(body) > limit:
                    raise RegistryError(
                        f"Answer of {shown_url(self.url)} is longer than {limit} bytes"
                    )
        return bytes(body)

    def close(self) -> None:
        """Give the response up."""
        self.response.close()


def passing_error(exchange: Exchange) -> TransferError:
    """Turn one of PASSING_STATUSES into an error, and close the response."""
    exchange.close()
    return TransferError(
        f"{shown_url(exchange.url)} answers {status_text(exchange.status)}",
        status=exchange.status,
        retry_after=_seconds(exchange.header("Retry-After")),
    )


def _seconds(text: str) -> float | None:
    """Parse Retry-After: seconds or a date. Source: RFC 9110, 10.2.3."""
    text = text.strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = email.utils.parsedate_to_datetime(text)
        return max(0.0, moment.timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
