"""The connection between launcher processes as bytes: proof of the token, and frames that prove it.

Both sides prove that they hold the job's token without sending it, the one that connects first: a
stranger learns nothing but a random number. The proof covers the job and the node that is meant, so
that a connection which ended at another job's pod is refused. Keys made from both random numbers
sign every frame together with its place in the stream: frames cannot be forged, changed, replayed,
or moved. Nothing is encrypted, as between Slurm's daemons.

Pure: bytes in, bytes out. Source: RFC 2104 (HMAC), ISO/IEC 9798-4 for the order of the proofs.
"""

from __future__ import annotations

import hmac
import struct
from typing import NamedTuple

MAGIC = b"pyxis-launcher 1\n"
NONCE_SIZE = 32
PROOF_SIZE = 32
TAG_SIZE = 16
LARGEST_FRAME = 8 << 20
"""Bytes of a payload: an environment and arguments as large as the kernel takes them fit."""

_HEADER = struct.Struct(">IB")
_SEQUENCE = struct.Struct(">Q")


class ProtocolError(Exception):
    """The other side is no launcher of this job, or somebody changed what it sent."""


class Frame(NamedTuple):
    """One message: its kind (0 to 255) and its payload."""

    kind: int
    payload: bytes


class Session:
    """One side of a connection. Feed it what arrives; send what `take_outgoing` returns.

    Args:
        token: the job's secret.
        subject: the job and the node that is connected to; both sides have to mean the same.
        nonce: 32 random bytes, used for one connection only.
        server: whether the other side connected.
    """

    def __init__(self, token: bytes, subject: bytes, nonce: bytes, *, server: bool) -> None:
        if len(nonce) != NONCE_SIZE:
            raise ValueError("a nonce of the wrong size")
        self.established = False
        self._token = token
        self._subject = subject
        self._nonce = nonce
        self._server = server
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._transcript = b""
        self._send_key = self._receive_key = b""
        self._sent = self._received = 0
        if server:
            self._outgoing += MAGIC + nonce

    def take_outgoing(self) -> bytes:
        """Return the bytes to send, and forget them."""
        data = bytes(self._outgoing)
        del self._outgoing[:]
        return data

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes that arrived and return the frames that are complete.

        Raises:
            ProtocolError: if they do not come from a launcher that holds the token.
        """
        self._incoming += data
        if not self.established and not self._shake_hands():
            return []
        frames: list[Frame] = []
        while True:
            frame = self._next_frame()
            if frame is None:
                return frames
            frames.append(frame)

    def pack(self, kind: int, payload: bytes) -> bytes:
        """Return a frame as bytes; each goes out in the order in which it was packed.

        Raises:
            ProtocolError: before the other side has proved itself.
            ValueError: for a payload that the other side would refuse.
        """
        if not self.established:
            raise ProtocolError("nothing is sent before the other side has proved itself")
        if len(payload) > LARGEST_FRAME:
            raise ValueError(f"a message of {len(payload)} bytes is too large")
        body = _HEADER.pack(len(payload), kind) + payload
        tag = _tag(self._send_key, self._sent, body)
        self._sent += 1
        return body + tag

    def _shake_hands(self) -> bool:
        """Go on with the proofs; return whether they are complete."""
        if not self._transcript:
            want = len(MAGIC) + NONCE_SIZE + (PROOF_SIZE if self._server else 0)
        else:
            want = PROOF_SIZE
        # A stranger is told off by its first wrong byte, not after a time limit.
        head = bytes(self._incoming[: len(MAGIC)])
        if not self._transcript and not MAGIC.startswith(head):
            raise ProtocolError("not a launcher of this version")
        if len(self._incoming) < want:
            return False
        data = bytes(self._incoming[:want])
        del self._incoming[:want]
        if not self._transcript:
            return self._agree(data[len(MAGIC) :])
        self._check(b"server", data)
        self.established = True
        return True

    def _agree(self, data: bytes) -> bool:
        """Take the other side's random number (and proof, if it connected), and prove ourselves."""
        other, proof = data[:NONCE_SIZE], data[NONCE_SIZE:]
        nonces = self._nonce + other if self._server else other + self._nonce
        self._transcript = MAGIC + struct.pack(">I", len(self._subject)) + self._subject + nonces
        keys = self._prove(b"frames to the server"), self._prove(b"frames to the client")
        if not self._server:
            self._send_key, self._receive_key = keys
            self._outgoing += MAGIC + self._nonce + self._prove(b"client")
            return False
        self._receive_key, self._send_key = keys
        self._check(b"client", proof)
        self._outgoing += self._prove(b"server")
        self.established = True
        return True

    def _prove(self, who: bytes) -> bytes:
        return hmac.new(self._token, who + b"\0" + self._transcript, "sha256").digest()

    def _check(self, who: bytes, proof: bytes) -> None:
        if not hmac.compare_digest(self._prove(who), proof):
            raise ProtocolError("another token, another job, or another node")

    def _next_frame(self) -> Frame | None:
        if len(self._incoming) < _HEADER.size:
            return None
        length, kind = _HEADER.unpack_from(self._incoming)
        if length > LARGEST_FRAME:
            raise ProtocolError(f"a frame of {length} bytes")
        end = _HEADER.size + length
        if len(self._incoming) < end + TAG_SIZE:
            return None
        body = bytes(self._incoming[:end])
        tag = bytes(self._incoming[end : end + TAG_SIZE])
        del self._incoming[: end + TAG_SIZE]
        if not hmac.compare_digest(_tag(self._receive_key, self._received, body), tag):
            raise ProtocolError("a frame that was forged, changed or replayed")
        self._received += 1
        return Frame(kind, body[_HEADER.size :])


def _tag(key: bytes, sequence: int, body: bytes) -> bytes:
    return hmac.new(key, _SEQUENCE.pack(sequence) + body, "sha256").digest()[:TAG_SIZE]
