"""A TCP connection of the loop: a session with its socket, and the listener that accepts them."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable

from pyxis_py.kubernetes.launcher.wire.loop import Loop, Timer
from pyxis_py.kubernetes.launcher.wire.protocol import NONCE_SIZE, ProtocolError, Session

HANDSHAKE_LIMIT = 10.0
"""Seconds until a connection has proved that it holds the token."""
LARGEST_CROWD = 256
"""Connections at one time that have not proved anything yet."""
HIGH_WATER = 1 << 20
"""Bytes waiting to be sent from which on whoever fills a channel should pause."""
SILENCE_LIMIT = 120
"""Seconds without any answer of the other machine after which it counts as lost."""
SILENCE = tuple(map(os.strerror, (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)))
"""Reasons of `on_close` that mean the machine, not the process."""


class Channel:
    """One connection. `on_close` is called once, with a reason ("" for an orderly end).

    Attributes:
        peer: the other side's address.
        on_frame: called with kind and payload of every frame.
        on_ready: called when both sides have proved themselves.
        on_drained: called whenever everything has been sent.
    """

    def __init__(self, loop: Loop, sock: socket.socket, session: Session) -> None:
        self.peer = ""
        self.closed = False
        self.on_frame: Callable[[int, bytes], None] = lambda kind, payload: None
        self.on_ready: Callable[[], None] = lambda: None
        self.on_close: Callable[[str], None] = lambda reason: None
        self.on_drained: Callable[[], None] = lambda: None
        self._loop = loop
        self._socket = sock
        self._session = session
        self._outgoing = bytearray()
        self._connecting = False
        self._reading = False
        self._deadline: Timer | None = loop.call_later(HANDSHAKE_LIMIT, self._too_slow)
        sock.setblocking(False)

    @property
    def established(self) -> bool:
        """Whether both sides have proved themselves."""
        return self._session.established

    @property
    def backlog(self) -> int:
        """Bytes that wait to be sent."""
        return len(self._outgoing)

    @property
    def local_address(self) -> str:
        """The address by which the other side sees this one."""
        return plain_address(self._socket.getsockname()[0])

    def start(self) -> None:
        """Begin to talk on a socket that is connected."""
        _tune(self._socket)
        self.peer = plain_address(self._socket.getpeername()[0])
        self._connecting = False
        self.resume()
        self._flush(self._session.take_outgoing())

    def connect(self, address: tuple[str, int]) -> None:
        """Begin to connect; failure comes through `on_close`."""
        code = self._socket.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            self._loop.call_later(0, lambda: self.close(os.strerror(code)))
            return
        self._connecting = True
        self._loop.on_writable(self._socket.fileno(), self._connected)

    def _connected(self) -> None:
        self._loop.on_writable(self._socket.fileno(), None)
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self.close(os.strerror(code))
        else:
            self.start()

    def send(self, kind: int, payload: bytes) -> None:
        """Queue a frame; on a closed channel it is lost, and `on_close` has told why."""
        if not self.closed:
            self._flush(self._session.pack(kind, payload))

    def pause(self) -> None:
        """Stop reading, so that the other side has to wait."""
        if self._reading and not self.closed:
            self._reading = False
            self._loop.on_readable(self._socket.fileno(), None)

    def resume(self) -> None:
        """Read again."""
        if not self._reading and not self.closed:
            self._reading = True
            self._loop.on_readable(self._socket.fileno(), self._readable)

    def close(self, reason: str = "") -> None:
        """Close the connection; what has not been sent is lost."""
        if self.closed:
            return
        self.closed = True
        if self._deadline is not None:
            self._deadline.cancel()
        fd = self._socket.fileno()
        self._loop.on_readable(fd, None)
        self._loop.on_writable(fd, None)
        self._socket.close()
        self.on_close(reason)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(256 * 1024)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(error.strerror or str(error))
            return
        if not data:
            self.close("" if self.established else "it closed the connection")
            return
        was_ready = self.established
        try:
            frames = self._session.feed(data)
        except ProtocolError as error:
            self.close(str(error))
            return
        self._flush(self._session.take_outgoing())
        if self.established and not was_ready:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            self.on_ready()
        for frame in frames:
            if self.closed:
                return
            self.on_frame(frame.kind, frame.payload)

    def _flush(self, data: bytes = b"") -> None:
        waited = bool(self._outgoing)
        self._outgoing += data
        if self.closed or self._connecting or not self._outgoing:
            return
        try:
            sent = self._socket.send(self._outgoing)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            reason = error.strerror or str(error)
            # Not here: whoever sends does not expect to be called back by it.
            self._loop.call_later(0, lambda: self.close(reason))
            return
        del self._outgoing[:sent]
        self._loop.on_writable(self._socket.fileno(), self._flush if self._outgoing else None)
        if waited and not self._outgoing:
            # Not here, either; and whatever sent the rest, those who paused have to hear of it.
            self._loop.call_later(0, self._drained)

    def _drained(self) -> None:
        if not self.closed:
            self.on_drained()

    def _too_slow(self) -> None:
        self.close(f"no answer within {HANDSHAKE_LIMIT:.0f} s")


class Listener:
    """Accepts connections and hands out those that have proved themselves."""

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        secret: tuple[bytes, bytes],
        on_channel: Callable[[Channel], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._token, self._subject = secret
        self._on_channel = on_channel
        self._strangers: set[Channel] = set()
        sock.setblocking(False)
        loop.on_readable(sock.fileno(), self._accept)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._socket.getsockname()[1])

    def _accept(self) -> None:
        try:
            sock, _ = self._socket.accept()
        except OSError:  # gone again, or out of descriptors: the next one may do
            return
        if len(self._strangers) >= LARGEST_CROWD:
            sock.close()
            return
        nonce = os.urandom(NONCE_SIZE)
        session = Session(self._token, self._subject, nonce, server=True)
        channel = Channel(self._loop, sock, session)
        self._strangers.add(channel)

        def ready() -> None:
            self._strangers.discard(channel)
            self._on_channel(channel)

        channel.on_ready = ready
        channel.on_close = lambda reason: self._strangers.discard(channel)
        try:
            channel.start()
        except OSError as error:
            channel.close(str(error))

    def close(self) -> None:
        """Accept no more; connections that were handed out stay."""
        self._loop.on_readable(self._socket.fileno(), None)
        self._socket.close()
        for channel in list(self._strangers):
            channel.close()


def open_channel(loop: Loop, address: tuple[str, int], secret: tuple[bytes, bytes]) -> Channel:
    """Return a channel that is connecting to a numeric address.

    Args:
        secret: the job's token, and the subject that the other side proves to be.
    """
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    session = Session(secret[0], secret[1], os.urandom(NONCE_SIZE), server=False)
    channel = Channel(loop, sock, session)
    channel.connect(address)
    return channel


def plain_address(address: str) -> str:
    """Return an IPv4 address as such where a socket of both families has it."""
    return address[7:] if address.startswith("::ffff:") and "." in address else address


def listen(address: str, port: int) -> socket.socket:
    """Return a listening socket; "" stands for all addresses, of both families if there are two.

    Raises:
        OSError: if the port is taken or the address is not one of this machine.
    """
    if address:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return _listening(family, address, port)
    try:
        return _listening(socket.AF_INET6, "::", port)
    except OSError as error:
        if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
        return _listening(socket.AF_INET, "0.0.0.0", port)


def _listening(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and address == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((address, port))
        sock.listen(1024)
    except OSError:
        sock.close()
        raise
    return sock


def _tune(sock: socket.socket) -> None:
    """Send at once, and notice a machine that has gone without a word."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE_LIMIT // 4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENCE_LIMIT // 8)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_LIMIT * 1000)
