"""Digests: `sha256:<hex>`, the names of blobs and manifests. Pure.

A digest names a file and a piece of a URL, so nothing is one before it has been parsed here.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from enroot_py.errors import InvalidReferenceError
from enroot_py.log import printable

_HEX_LENGTH = {"sha256": 64, "sha512": 128}
"""The registered algorithms. Source: OCI image-spec 1.1, descriptor.md, Registered Algorithms."""

_HEX_DIGITS = frozenset("0123456789abcdef")


class Hash(Protocol):
    """The part of hashlib's objects that is used on streams."""

    def update(self, data: bytes | bytearray | memoryview, /) -> None:
        """Take in more bytes."""
        ...

    def hexdigest(self) -> str:
        """Return the digest of the bytes so far, in lower-case hex digits."""
        ...


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """A content digest whose parts have been checked.

    Attributes:
        algorithm: "sha256" or "sha512".
        hex: the lower-case hex digits, 64 or 128 of them.
    """

    algorithm: str
    hex: str

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.hex}"

    def new_hash(self) -> Hash:
        """Return an empty hash object of this digest's algorithm."""
        return hashlib.new(self.algorithm)

    def matches(self, data: bytes) -> bool:
        """Tell whether `data` has this digest."""
        return hashlib.new(self.algorithm, data).hexdigest() == self.hex


def parse_digest(text: str) -> Digest:
    """Parse `ALGORITHM:HEX`.

    Raises:
        InvalidReferenceError: if the algorithm is unknown, or the digits are too many, too few,
            in upper case or none at all.
    """
    algorithm, colon, digits = text.partition(":")
    if not colon or algorithm not in _HEX_LENGTH:
        raise InvalidReferenceError(
            f"Not a digest: {printable(text[:200])}", hint="expected sha256:<64 hex digits>"
        )
    length = _HEX_LENGTH[algorithm]
    if len(digits) != length or not _HEX_DIGITS.issuperset(digits):
        raise InvalidReferenceError(
            f"Malformed digest: {printable(text[:200])}",
            hint=f"expected {algorithm}: followed by {length} lower-case hex digits",
        )
    return Digest(algorithm, digits)


def digest_of(data: bytes) -> Digest:
    """Return the sha256 digest of `data`."""
    return Digest("sha256", hashlib.sha256(data).hexdigest())
