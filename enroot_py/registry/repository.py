"""One repository at one endpoint: its manifests and blobs, fetched and checked.

Knows nothing of mirrors or platforms: `client` decides which repository is asked for what.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from enroot_py import log
from enroot_py.errors import (
    DigestMismatchError,
    InvalidReferenceError,
    NotFoundError,
    RegistryError,
)
from enroot_py.image.digest import Digest, digest_of, parse_digest
from enroot_py.image.manifest import (
    ACCEPTED_TYPES,
    MAX_MANIFEST_SIZE,
    Descriptor,
    Index,
    Manifest,
    parse_manifest,
)
from enroot_py.registry.auth import Authenticator
from enroot_py.registry.endpoints import Endpoint
from enroot_py.registry.exchange import Exchange
from enroot_py.registry.failures import (
    TransferError,
    no_such_tag,
    rate_limited,
    server_text,
    shown_url,
    status_text,
)
from enroot_py.registry.transport import Transport

MAX_TAGS_SIZE = 1 << 20
ENOUGH_PROGRESS = 1 << 20
"""Bytes after which a broken connection counts as the first one again."""

MAX_MISMATCHES = 2
"""Times that a blob is fetched in vain because its bytes are wrong."""

Progress = Callable[[int], None]
"""Told how many bytes of a blob are there, after each piece; falls when it starts anew."""

_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d*/(\d+|\*)")


class BlobTarget(Protocol):
    """Takes a blob's bytes, in order."""

    @property
    def offset(self) -> int:
        """Bytes that are there already; what follows them is fetched."""
        ...

    @property
    def hashed(self) -> bool:
        """`check` looks at the digest too; if not, what is there at first is fetched again."""
        ...

    def write(self, data: bytes, /) -> object:
        """Append bytes."""
        ...

    def restart(self) -> None:
        """Forget everything written: the bytes were not those of the blob."""
        ...

    def check(self) -> None:
        """Raise DigestMismatchError unless everything is there and right."""
        ...


@dataclass(frozen=True, slots=True)
class Document:
    """A manifest or index with its bytes and their digest."""

    parsed: Manifest | Index
    digest: Digest
    data: bytes


class Repository:
    """Reads one repository.

    Args:
        endpoint: where it is.
        transport: sends the requests.
        authenticator: of that endpoint.
    """

    def __init__(
        self, endpoint: Endpoint, transport: Transport, authenticator: Authenticator
    ) -> None:
        self.endpoint = endpoint
        self.transport = transport
        self.authenticator = authenticator

    def get_document(self, selector: str, asked: Digest | None) -> Document:
        """Fetch and check a manifest or an index.

        Args:
            selector: tag or digest.
            asked: the digest, if the selector is one.

        Raises:
            NotFoundError: listing similar tags, if there is no such tag.
            DigestMismatchError: if the bytes are not those asked for, or not those announced.
            RegistryError: for everything else.
        """
        log.info(f"Fetching the manifest of {self.endpoint}, {selector}")
        url = self.endpoint.url("manifests", selector)
        exchange = self.get(url, {"Accept": ", ".join(ACCEPTED_TYPES)})
        if exchange.status == 404:
            raise self._no_such_image(exchange, selector, asked)
        self._check_status(exchange)
        announced = exchange.header("Docker-Content-Digest").strip()
        content_type = exchange.header("Content-Type")
        data = exchange.read(MAX_MANIFEST_SIZE)
        for digest in filter(None, (asked, self._announced_digest(announced))):
            if not digest.matches(data):
                raise DigestMismatchError(
                    f"{self.endpoint.host} sends another manifest than {digest}",
                    hint="the registry, or a proxy on the way, is broken or hostile",
                )
        return Document(parse_manifest(data, content_type), asked or digest_of(data), data)

    def download(self, descriptor: Descriptor, target: BlobTarget, progress: Progress) -> None:
        """Write a blob to `target`; returns only when all its bytes are there and right.

        Raises:
            NotFoundError: if there is no such blob.
            DigestMismatchError: if its bytes are wrong again and again.
            RegistryError: for everything else.
        """
        _Download(self, descriptor, target, progress).run()

    def get(self, url: str, headers: Mapping[str, str], *, once: bool = False) -> Exchange:
        """Send a GET, logging in as often as it takes.

        Args:
            url: of this endpoint.
            headers: further headers.
            once: leave it to the caller to try again.

        Returns:
            The answer, whatever its status, but 401 and 429 of the endpoint itself.

        Raises:
            AuthenticationError, TransferError, RegistryError.
        """
        authorization = self.authenticator.authorization
        exchange = self._send(url, headers, authorization, once=once)
        if exchange.status != 401 or not exchange.own:
            return exchange
        self.authenticator.answer(exchange, authorization)
        exchange = self._send(url, headers, self.authenticator.authorization, once=once)
        if exchange.status == 401 and exchange.own:
            raise self.authenticator.refusal(exchange)
        return exchange

    def _send(
        self, url: str, headers: Mapping[str, str], authorization: str, *, once: bool
    ) -> Exchange:
        try:
            return self.transport.request(
                url, headers=headers, authorization=authorization, once=once
            )
        except TransferError as error:
            if error.status == 429 and not once:
                raise self.too_many(error) from error
            raise

    def too_many(self, error: TransferError) -> RegistryError:
        """Explain a 429 that stands."""
        account = self.authenticator.account
        return rate_limited(self.endpoint.host, account=account, retry_after=error.retry_after)

    def _check_status(self, exchange: Exchange) -> None:
        if exchange.status in (401, 403):
            raise self.authenticator.refusal(exchange)
        if exchange.status != 200:
            kind = exchange.header("Content-Type")
            said = server_text(exchange.read(MAX_TAGS_SIZE), kind, self.authenticator.secrets())
            raise RegistryError(
                f"{shown_url(exchange.url)} answers {status_text(exchange.status)}"
                + (f": {said}" if said else "")
            )

    def _announced_digest(self, text: str) -> Digest | None:
        if not text:
            return None
        try:
            return parse_digest(text)
        except InvalidReferenceError as error:
            raise DigestMismatchError(f"{self.endpoint.host} announces: {error}") from error

    def _no_such_image(
        self, exchange: Exchange, selector: str, asked: Digest | None
    ) -> NotFoundError:
        kind = exchange.header("Content-Type")
        said = server_text(exchange.read(MAX_TAGS_SIZE), kind, self.authenticator.secrets())
        tags = () if asked or self.endpoint.mirror else self._similar_tags(selector)
        return no_such_tag(
            str(self.endpoint),
            selector,
            endpoint_url=self.endpoint.url("tags", "list"),
            tags=tags,
            said=said,
        )

    def _similar_tags(self, tag: str) -> tuple[str, ...] | None:
        try:
            exchange = self.get(self.endpoint.url("tags", "list?n=1000"), {}, once=True)
            if exchange.status != 200:
                exchange.close()
                return None if exchange.status == 404 else ()
            document = json.loads(exchange.read(MAX_TAGS_SIZE))
            tags = [name for name in document["tags"] if isinstance(name, str)]
        except (RegistryError, ValueError, RecursionError, KeyError, TypeError):
            return ()  # only for a better message: the one without it is still right
        return tuple(difflib.get_close_matches(tag, tags, n=8, cutoff=0.4) or tags[-8:])


class _Download:
    """One blob on its way."""

    def __init__(
        self,
        repository: Repository,
        descriptor: Descriptor,
        target: BlobTarget,
        progress: Progress,
    ) -> None:
        self.repository = repository
        self.descriptor = descriptor
        self.target = target
        self.progress = progress
        # Bytes are hashed once: here, or by a target that does it anyway.
        self.hash = None if target.hashed else descriptor.digest.new_hash()

    def run(self) -> None:
        if self.hash and self.target.offset:
            self.target.restart()  # nobody has hashed what is there
        mismatches = 0
        while True:
            try:
                self.receive_all()
                self.check()
                return
            except DigestMismatchError as error:
                mismatches += 1
                if mismatches == MAX_MISMATCHES:
                    raise
                log.warn(f"{error}; fetching it again")
                self.restart()

    def restart(self) -> None:
        self.target.restart()
        self.hash = self.hash and self.descriptor.digest.new_hash()
        self.progress(0)

    def check(self) -> None:
        if self.hash and self.hash.hexdigest() != self.descriptor.digest.hex:
            raise self.mismatch("other bytes than")
        try:
            self.target.check()
        except DigestMismatchError as error:
            raise self.mismatch("other bytes than") from error

    def receive_all(self) -> None:
        """Receive what is missing, over as many connections as patience allows."""
        patience = self.repository.transport.patience()
        while self.target.offset < self.descriptor.size:
            before = self.target.offset
            try:
                self.receive_rest()
            except TransferError as error:
                if self.target.offset - before >= ENOUGH_PROGRESS:
                    patience.reset()
                try:
                    patience.wait(error)
                except TransferError:
                    if error.status == 429:
                        raise self.repository.too_many(error) from error
                    raise

    def receive_rest(self) -> None:
        exchange = self.open()
        size, skip = self.descriptor.size, self.skipped(exchange)
        with exchange.response:
            for piece in exchange.pieces():
                if skip:
                    skip, piece = max(0, skip - len(piece)), piece[skip:]
                if self.target.offset + len(piece) > size:
                    raise self.mismatch("more bytes than")
                if piece:
                    if self.hash:
                        self.hash.update(piece)
                    self.target.write(piece)
                    self.progress(self.target.offset)
        if self.target.offset < size:
            raise TransferError(
                f"{shown_url(exchange.url)} ended after {self.target.offset} of {size} bytes"
            )

    def open(self) -> Exchange:
        """Ask for what is missing."""
        url = self.repository.endpoint.url("blobs", str(self.descriptor.digest))
        offset = self.target.offset
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        exchange = self.repository.get(url, headers, once=True)
        if exchange.status in (200, 206):
            return exchange
        if exchange.status in (404, 410) and exchange.own:
            exchange.close()
            raise NotFoundError(f"{self.repository.endpoint} has no blob {self.descriptor.digest}")
        if exchange.status in (401, 403) and exchange.own:
            raise self.repository.authenticator.refusal(exchange)
        exchange.close()
        if exchange.status == 416:
            raise self.mismatch("fewer bytes than")
        # An address that the registry signed may have run out: the next try gets a new one.
        raise TransferError(f"{shown_url(exchange.url)} answers {status_text(exchange.status)}")

    def skipped(self, exchange: Exchange) -> int:
        """Return how many bytes at the start of a body are here already."""
        offset = self.target.offset
        if exchange.status == 200:
            return offset
        match = _CONTENT_RANGE.match(exchange.header("Content-Range"))
        start = int(match[1]) if match else -1
        if not 0 <= start <= offset:
            exchange.close()
            raise TransferError(f"{shown_url(exchange.url)} sends another range than asked for")
        return offset - start

    def mismatch(self, what: str) -> DigestMismatchError:
        return DigestMismatchError(
            f"{self.repository.endpoint} sends {what} those of {self.descriptor.digest} "
            f"({self.descriptor.size} bytes)",
            hint="the registry, or a proxy on the way, is broken or hostile",
        )
