"""Connections over loopback: who is let in, and who is not."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from pyxis_py.kubernetes.launcher.wire import channel as channels
from pyxis_py.kubernetes.launcher.wire.channel import (
    LARGEST_CROWD,
    Channel,
    Listener,
    listen,
    open_channel,
    plain_address,
)
from pyxis_py.kubernetes.launcher.wire.loop import Loop

TOKEN = b"0123456789abcdef" * 4
SUBJECT = b"node-0 0"


class Server:
    """A listener, and everything that those who were let in have sent."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.guests: list[Channel] = []
        self.frames: list[tuple[int, bytes]] = []
        sock = listen("127.0.0.1", 0)
        self.listener = Listener(loop, sock, (TOKEN, SUBJECT), self._welcome)

    def _welcome(self, channel: Channel) -> None:
        self.guests.append(channel)
        channel.on_frame = lambda kind, payload: self.frames.append((kind, payload))

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.listener.port

    def run_until(self, done: Callable[[], object], seconds: float = 100) -> None:
        deadline = time.monotonic() + seconds

        def check() -> None:
            if done() or time.monotonic() > deadline:
                self.loop.stop()
            else:
                self.loop.call_later(0.005, check)

        self.loop.stopped = False
        check()
        self.loop.run()
        assert done()


@pytest.fixture
def server() -> Iterator[Server]:
    loop = Loop()
    found = Server(loop)
    yield found
    for guest in found.guests:
        guest.close()
    found.listener.close()
    loop.close()


def closing(channel: Channel) -> list[str]:
    reasons: list[str] = []
    channel.on_close = reasons.append
    return reasons


def test_a_holder_of_the_token_is_let_in_and_heard(server: Server) -> None:
    channel = open_channel(server.loop, server.address, (TOKEN, SUBJECT))
    channel.on_ready = lambda: channel.send(5, b"hello")
    server.run_until(lambda: server.frames)
    assert server.frames == [(5, b"hello")]
    assert channel.peer == "127.0.0.1"
    server.guests[0].send(6, bytes(3_000_000))
    heard: list[int] = []
    channel.on_frame = lambda kind, payload: heard.append(len(payload))
    server.run_until(lambda: heard)
    assert heard == [3_000_000]
    channel.close()
    server.run_until(lambda: server.guests[0].closed)


@pytest.mark.parametrize("secret", [(b"another token" * 4, SUBJECT), (TOKEN, b"node-0 1")])
def test_another_token_or_node_is_not_let_in(server: Server, secret: tuple[bytes, bytes]) -> None:
    channel = open_channel(server.loop, server.address, secret)
    reasons = closing(channel)
    channel.on_ready = lambda: channel.send(5, b"hello")
    server.run_until(lambda: reasons)
    assert reasons == ["it closed the connection"]
    assert (server.guests, server.frames) == ([], [])


def test_garbage_is_cut_off_at_once(server: Server) -> None:
    with socket.create_connection(server.address) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        stranger.setblocking(False)
        received = bytearray()

        def ended() -> bool:
            try:
                data = stranger.recv(4096)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                return True
            received.extend(data)
            return not data

        server.run_until(ended)
    assert TOKEN not in received
    assert server.guests == []


def test_a_stranger_that_says_nothing_is_cut_off_after_a_while(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "HANDSHAKE_LIMIT", 0.05)
    with socket.create_connection(server.address) as stranger:
        stranger.setblocking(False)

        def ended() -> bool:
            try:
                return not stranger.recv(4096)
            except BlockingIOError:
                return False

        server.run_until(ended)


def test_a_crowd_of_strangers_does_not_keep_others_out_for_long(server: Server) -> None:
    strangers = [socket.create_connection(server.address) for _ in range(LARGEST_CROWD + 10)]
    server.run_until(lambda: True)
    for stranger in strangers[:20]:
        stranger.close()
    channel = None
    for _ in range(20):
        channel = open_channel(server.loop, server.address, (TOKEN, SUBJECT))
        reasons = closing(channel)
        server.run_until(lambda ended=reasons, opened=channel: ended or opened.established)
        if channel.established:
            break
    assert channel is not None
    assert channel.established
    for stranger in strangers[20:]:
        stranger.close()
    channel.close()


def test_a_port_where_nobody_listens_is_told(server: Server) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        channel = open_channel(server.loop, sock.getsockname(), (TOKEN, SUBJECT))
        reasons = closing(channel)
        server.run_until(lambda: reasons)
    assert reasons == ["Connection refused"]


def test_a_paused_channel_makes_the_other_side_wait(server: Server) -> None:
    channel = open_channel(server.loop, server.address, (TOKEN, SUBJECT))
    server.run_until(lambda: server.guests)
    guest = server.guests[0]
    guest.pause()
    for _ in range(20):
        channel.send(1, bytes(1 << 20))
    server.run_until(lambda: channel.backlog > 1 << 20)
    assert server.frames == []
    guest.resume()
    server.run_until(lambda: len(server.frames) == 20)
    channel.close()


def test_addresses_of_both_families_are_read_alike() -> None:
    assert plain_address("::ffff:10.0.0.1") == "10.0.0.1"
    assert plain_address("fd00::1") == "fd00::1"


def test_whoever_sends_the_rest_tells_that_it_is_sent(server: Server) -> None:
    """Otherwise tasks that wait for a slow srun wait for ever."""
    channel = open_channel(server.loop, server.address, (TOKEN, SUBJECT))
    server.run_until(lambda: server.guests)
    guest = server.guests[0]
    drained: list[int] = []
    channel.on_drained = lambda: drained.append(1)
    for _ in range(3):
        guest.pause()
        while not channel.backlog:  # the kernel takes more and more at once
            channel.send(1, bytes(1 << 20))
        guest.resume()
        while channel.backlog:
            # Only sends, no events of the loop's own, empty the channel.
            for callback in (guest._readable, lambda: channel.send(2, b"")):
                callback()
        count = len(drained)
        server.run_until(lambda before=count: len(drained) > before)
    channel.close()
