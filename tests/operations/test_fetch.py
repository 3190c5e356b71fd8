"""Layers on their way: order, how many at once, failures."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator

import pytest

from enroot_py.errors import NotFoundError
from enroot_py.image.digest import digest_of
from enroot_py.image.manifest import Descriptor
from enroot_py.operations.fetch import CalledOff, HeldLayer, LayerFetcher
from enroot_py.operations.progress import Progress

MIB = 1 << 20


def layers(*sizes: int) -> tuple[Descriptor, ...]:
    return tuple(Descriptor("", digest_of(b"%d" % at), size) for at, size in enumerate(sizes))


class Server:
    """Delivers layers when it is told to.

    Attributes:
        begun: numbers of the layers that were asked for, in order.
    """

    def __init__(self, wanted: tuple[Descriptor, ...]) -> None:
        self.wanted = wanted
        self.begun: list[int] = []
        self.changed = threading.Condition()
        self.allowed: dict[int, object] = {}
        self.reports: dict[int, Callable[[int], None]] = {}

    def obtain(
        self, layer: Descriptor, report: Callable[[int], None], called_off: Callable[[], bool]
    ) -> HeldLayer:
        number = self.wanted.index(layer)
        with self.changed:
            self.begun.append(number)
            self.reports[number] = report
            self.changed.notify_all()
        while True:
            with self.changed:
                if number in self.allowed:
                    break
                self.changed.wait(0.01)
            report(0)
        outcome = self.allowed[number]
        if isinstance(outcome, Exception):
            raise outcome
        file = tempfile.TemporaryFile(buffering=0)
        file.write(b"x" * 10)
        return HeldLayer(file)  # type: ignore[arg-type]

    def deliver(self, number: int, outcome: object = None) -> None:
        with self.changed:
            self.allowed[number] = outcome
            self.changed.notify_all()

    def wait_for(self, count: int) -> list[int]:
        """Wait until that many layers have begun, and a moment more for one too many.

        Returns them by number: each has a thread of its own, and any of these may be the first.
        """
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.begun) >= count, timeout=60)
            self.changed.wait_for(lambda: len(self.begun) > count, timeout=0.1)
            return sorted(self.begun)


@pytest.fixture
def start() -> Iterator[Callable[..., tuple[Server, LayerFetcher]]]:
    def begin(wanted: tuple[Descriptor, ...], connections: int = 10) -> tuple[Server, LayerFetcher]:
        server = Server(wanted)
        fetcher = LayerFetcher(
            wanted, {}, server.obtain, connections=connections, progress=Progress()
        )
        return server, fetcher

    yield begin


def test_small_layers_run_side_by_side_up_to_the_number_of_connections(
    start: Callable[..., tuple[Server, LayerFetcher]],
) -> None:
    server, fetcher = start(layers(*[MIB] * 12), connections=5)
    with fetcher:
        assert server.wait_for(5) == [0, 1, 2, 3, 4]
        server.deliver(3)
        assert server.wait_for(6) == [0, 1, 2, 3, 4, 5]
        for number in range(12):
            server.deliver(number)
        for layer in server.wanted:
            fetcher.wait_for(layer)
        assert sorted(server.begun) == list(range(12))


def test_of_large_layers_three_run_at_once_topmost_first(
    start: Callable[..., tuple[Server, LayerFetcher]],
) -> None:
    server, fetcher = start(layers(*[500 * MIB] * 6))
    with fetcher:
        assert server.wait_for(3) == [0, 1, 2]
        server.deliver(1)
        assert server.wait_for(4) == [0, 1, 2, 3]
        # One that is nearly there makes room when the others are small enough.
        for number in (0, 2, 3):
            server.reports[number](480 * MIB)
        assert server.wait_for(5) == [0, 1, 2, 3, 4]
        for number in range(6):
            server.deliver(number)
        for layer in server.wanted:
            fetcher.wait_for(layer)


def test_a_layer_that_is_there_twice_is_fetched_once_and_can_be_read_twice(
    start: Callable[..., tuple[Server, LayerFetcher]],
) -> None:
    one = layers(10)[0]
    server, fetcher = start((one, one))
    server.deliver(0)
    with fetcher:
        fetcher.wait_for(one)
        with fetcher.open(one) as first, fetcher.open(one) as second:
            assert first.read(4) == b"xxxx"
            assert second.read() == b"x" * 10
            assert first.read() == b"x" * 6
        assert server.begun == [0]


def test_the_first_failure_is_raised_at_once_and_calls_the_others_off(
    start: Callable[..., tuple[Server, LayerFetcher]],
) -> None:
    server, fetcher = start(layers(*[MIB] * 4))
    with pytest.raises(NotFoundError, match="layer 2"), fetcher:
        server.wait_for(4)
        server.deliver(2, NotFoundError("layer 2 is gone"))
        fetcher.wait_for(server.wanted[0])
    with pytest.raises(CalledOff):
        server.reports[0](1)


def test_what_is_not_wanted_any_more_is_not_begun(
    start: Callable[..., tuple[Server, LayerFetcher]],
) -> None:
    server, fetcher = start(layers(*[500 * MIB] * 8))
    with pytest.raises(KeyboardInterrupt), fetcher:
        server.wait_for(3)
        raise KeyboardInterrupt
    server.deliver(0)
    assert server.wait_for(3) == [0, 1, 2]
