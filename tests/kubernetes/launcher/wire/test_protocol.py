"""The connection between launcher processes, hostile ends first."""

from __future__ import annotations

import hashlib
import hmac
import struct

import pytest

from pyxis_py.kubernetes.launcher.wire.protocol import (
    LARGEST_FRAME,
    MAGIC,
    NONCE_SIZE,
    PROOF_SIZE,
    Frame,
    ProtocolError,
    Session,
)

TOKEN = b"0123456789abcdef" * 4
SUBJECT = b"node-0 0"


def side(
    *, server: bool, token: bytes = TOKEN, subject: bytes = SUBJECT, nonce: int = 1
) -> Session:
    return Session(token, subject, bytes([nonce + server]) * NONCE_SIZE, server=server)


def shake(server: Session, client: Session) -> tuple[bytes, bytes]:
    """Let both talk until they have nothing to say; return what each has said."""
    said = b"", b""
    for _ in range(4):
        from_server, from_client = server.take_outgoing(), client.take_outgoing()
        said = said[0] + from_server, said[1] + from_client
        if from_server:
            client.feed(from_server)
        if from_client:
            server.feed(from_client)
    return said


def pair() -> tuple[Session, Session]:
    server, client = side(server=True), side(server=False)
    shake(server, client)
    return server, client


def test_both_sides_prove_themselves_and_exchange_frames() -> None:
    server, client = pair()
    assert server.established
    assert client.established
    assert server.feed(client.pack(7, b"to the server")) == [Frame(7, b"to the server")]
    assert client.feed(server.pack(8, b"")) == [Frame(8, b"")]


def test_neither_token_nor_anything_made_of_it_alone_travels() -> None:
    said = b"".join(shake(side(server=True), side(server=False)))
    assert TOKEN not in said
    assert hashlib.sha256(TOKEN).digest() not in said


@pytest.mark.parametrize("wrong", [{"token": b"x" * 64}, {"subject": b"node-0 1"},
                                   {"subject": b"other 0"}, {"subject": b""}])  # fmt: skip
def test_another_token_job_or_node_is_refused(wrong: dict[str, bytes]) -> None:
    server, client = side(server=True), side(server=False, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="another token"):
        shake(server, client)
    assert not server.established
    assert not client.established


def test_a_server_tells_strangers_nothing_but_a_random_number() -> None:
    server = side(server=True)
    assert server.take_outgoing() == MAGIC + bytes([2]) * NONCE_SIZE
    with pytest.raises(ProtocolError):
        server.feed(MAGIC + bytes(NONCE_SIZE + PROOF_SIZE))
    assert server.take_outgoing() == b""


def test_a_client_does_not_talk_to_a_server_that_only_echoes() -> None:
    client = side(server=False)
    client.feed(MAGIC + bytes(NONCE_SIZE))
    said = client.take_outgoing()
    with pytest.raises(ProtocolError):
        client.feed(said[-PROOF_SIZE:])


def test_the_proof_of_one_side_is_not_that_of_the_other() -> None:
    """With the same random number on both sides, too."""
    nonce = bytes(NONCE_SIZE)
    client = Session(TOKEN, SUBJECT, nonce, server=False)
    client.feed(MAGIC + nonce)
    proof = client.take_outgoing()[-PROOF_SIZE:]
    with pytest.raises(ProtocolError):
        client.feed(proof)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"pyxis-launcher 2\n",
                                  bytes(1), MAGIC[:-1] + b"\0"])  # fmt: skip
@pytest.mark.parametrize("server", [True, False])
def test_what_is_no_launcher_is_told_off_at_its_first_wrong_byte(data: bytes, server: bool) -> None:
    with pytest.raises(ProtocolError, match="not a launcher"):
        side(server=server).feed(data)


def test_nothing_is_sent_before_the_other_side_has_proved_itself() -> None:
    client = side(server=False)
    with pytest.raises(ProtocolError, match="nothing is sent"):
        client.pack(1, b"secret")
    client.feed(MAGIC + bytes(NONCE_SIZE))
    with pytest.raises(ProtocolError, match="nothing is sent"):
        client.pack(1, b"secret")


def test_every_changed_bit_of_a_frame_is_noticed() -> None:
    frame = pair()[1].pack(3, b"abc")
    for position in range(len(frame)):
        server, client = pair()
        data = bytearray(client.pack(3, b"abc"))
        data[position] ^= 1
        try:
            assert server.feed(bytes(data)) == []  # a longer length only makes it wait
            assert position < 4
        except ProtocolError:
            pass


def test_frames_cannot_be_replayed_left_out_or_moved() -> None:
    server, client = pair()
    first, second = client.pack(1, b"one"), client.pack(1, b"two")
    server.feed(first)
    with pytest.raises(ProtocolError, match="replayed"):
        server.feed(first)
    server, client = pair()
    client.pack(1, b"one")
    with pytest.raises(ProtocolError):
        server.feed(client.pack(1, b"two"))
    server, client = pair()
    with pytest.raises(ProtocolError):
        server.feed(second)


def test_a_frame_is_not_accepted_by_the_side_that_made_it() -> None:
    server, client = pair()
    with pytest.raises(ProtocolError):
        client.feed(client.pack(1, b"mine"))
    assert server.established


def test_a_recorded_connection_cannot_be_played_again() -> None:
    server, client = side(server=True), side(server=False)
    _, recorded = shake(server, client)
    recorded += client.pack(10, b"run this")
    with pytest.raises(ProtocolError):
        side(server=True, nonce=9).feed(recorded)


@pytest.mark.parametrize("length", [LARGEST_FRAME + 1, 0xFFFFFFFF])
def test_a_frame_that_is_too_large_is_refused_before_it_is_read(length: int) -> None:
    server, _ = pair()
    with pytest.raises(ProtocolError, match="a frame of"):
        server.feed(struct.pack(">IB", length, 1))


def test_a_payload_that_the_other_side_would_refuse_is_not_sent() -> None:
    with pytest.raises(ValueError, match="too large"):
        pair()[0].pack(1, bytes(LARGEST_FRAME + 1))


def test_the_largest_payload_passes() -> None:
    server, client = pair()
    assert len(server.feed(client.pack(1, bytes(LARGEST_FRAME)))[0].payload) == LARGEST_FRAME


def test_bytes_may_come_one_by_one() -> None:
    server, client = side(server=True), side(server=False)
    for _ in range(3):
        for byte in server.take_outgoing():
            client.feed(bytes([byte]))
        for byte in client.take_outgoing():
            server.feed(bytes([byte]))
    frames = []
    for byte in client.pack(1, b"one") + client.pack(2, b"two"):
        frames += server.feed(bytes([byte]))
    assert frames == [Frame(1, b"one"), Frame(2, b"two")]


def test_frames_that_come_with_the_last_proof_are_not_lost() -> None:
    server, client = side(server=True), side(server=False)
    client.feed(server.take_outgoing())
    server.feed(client.take_outgoing())
    proof = server.take_outgoing()
    assert client.feed(proof + server.pack(5, b"early")) == [Frame(5, b"early")]


def test_proofs_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(1) or real(a, b))
    server, client = pair()
    server.feed(client.pack(1, b""))
    assert len(compared) == 3
