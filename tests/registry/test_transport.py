"""Broken, slow and overloaded servers: what is tried again, how long, and what is said."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from enroot_py.errors import DigestMismatchError, RegistryError
from enroot_py.image.digest import parse_digest
from enroot_py.image.manifest import Descriptor
from tests.registry.fake_registry import CA_FILE, FakeRegistry
from tests.registry.faults import (
    answer,
    body,
    change,
    corrupt,
    drip,
    dripping_header,
    endless_header,
    redirect,
    reset,
    stall,
    truncate,
    without_ranges,
)
from tests.registry.images import ImageStore
from tests.registry.pulling import HashedTarget, Pull, Target, make_settings

SIZE = 3 << 20


@pytest.fixture(scope="module")
def blob() -> bytes:
    return os.urandom(SIZE)


def fetch(
    pull: Pull, registry: FakeRegistry, blob: bytes, target: Any = None
) -> tuple[Target, list[int]]:
    """Fetch one blob and return where it went and what progress was reported."""
    digest = "sha256:" + hashlib.sha256(blob).hexdigest()
    registry.images.blobs.setdefault(digest, blob)
    target = target or Target()
    seen: list[int] = []
    with pull.open(f"docker://{registry.host}/x:1") as client:
        client.download_blob(Descriptor("x", parse_digest(digest), len(blob)), target, seen.append)
    assert target.data == blob
    return target, seen


@pytest.mark.parametrize("broken_at", [0, 1, SIZE // 2, SIZE * 99 // 100, SIZE - 1])
@pytest.mark.parametrize("how", [truncate, reset])
def test_a_broken_transfer_is_taken_up_where_it_broke(
    pull: Pull, blob: bytes, how: Callable[[int], Any], broken_at: int
) -> None:
    with FakeRegistry() as registry:
        registry.fault("/blobs/", how(broken_at), times=1)
        target, seen = fetch(pull, registry, blob)
        assert target.restarts == 0
        assert seen == sorted(seen) and seen[-1] == SIZE
        ranges = [entry.headers.get("range") for entry in registry.log]
        assert len(ranges) == 2 and ranges[0] is None
        resumed = int((ranges[1] or "bytes=0-")[6:-1])
        assert resumed == broken_at if how is truncate else resumed <= broken_at
        assert len(pull.pauses) == 1 and 0 < pull.pauses[0] < 1


def test_a_server_without_ranges_sends_it_all_again_and_the_start_is_skipped(
    pull: Pull, blob: bytes
) -> None:
    with FakeRegistry() as registry:
        registry.fault("/blobs/", truncate(SIZE // 2), times=1)
        registry.fault("/blobs/", without_ranges())
        target, seen = fetch(pull, registry, blob)
        assert target.restarts == 0 and seen == sorted(seen)


@pytest.mark.parametrize("value", [f"bytes {SIZE // 2 + 9}-9/9", "bytes */9", "nonsense", ""])
def test_another_range_than_asked_for_is_not_taken(pull: Pull, blob: bytes, value: str) -> None:
    with FakeRegistry() as registry:
        registry.fault("/blobs/", truncate(SIZE // 2), times=1)
        registry.fault("/blobs/", change(Content_Range=value), times=1)
        fetch(pull, registry, blob)
        assert len(registry.log) == 3


def test_progress_makes_patience_last(pull: Pull, blob: bytes) -> None:
    """Every connection breaks after a mebibyte; there are more of them than tries."""
    large = blob * 4
    with FakeRegistry() as registry:
        registry.fault("/blobs/", truncate((1 << 20) + 1), times=11)
        fetch(pull, registry, large)
        assert len(registry.log) == 12


def test_without_progress_patience_ends(pull: Pull, blob: bytes) -> None:
    with FakeRegistry() as registry:
        registry.fault("/blobs/", truncate(10))
        with pytest.raises(RegistryError, match="bytes"):
            fetch(pull, registry, blob)
        assert len(registry.log) == 4
        assert pull.pauses == sorted(pull.pauses)


def test_what_a_target_has_already_is_not_fetched(pull: Pull, blob: bytes) -> None:
    with FakeRegistry() as registry:
        fetch(pull, registry, blob, HashedTarget(blob, blob[:1000]))
        assert registry.log[0].headers["range"] == "bytes=1000-"
        fetch(pull, registry, blob, HashedTarget(blob, blob))
        assert len(registry.log) == 1
        target, seen = fetch(pull, registry, blob, HashedTarget(blob, b"x" * 1000))
        assert target.restarts == 1 and 0 in seen


def test_what_nobody_has_hashed_is_fetched_again(pull: Pull, blob: bytes) -> None:
    with FakeRegistry() as registry:
        target, _ = fetch(pull, registry, blob, Target(blob[:1000]))
        assert target.restarts == 1
        assert len(registry.log) == 1 and "range" not in registry.log[0].headers


def test_corrupt_bytes_are_fetched_once_more(pull: Pull, blob: bytes) -> None:
    with FakeRegistry() as registry:
        registry.fault("/blobs/", corrupt(SIZE // 2), times=1)
        target, seen = fetch(pull, registry, blob)
        assert target.restarts == 1 and 0 in seen
        registry.fault("/blobs/", corrupt())
        with pytest.raises(DigestMismatchError, match="other bytes"):
            fetch(pull, registry, blob)


@pytest.mark.parametrize("bytes_sent", [0, SIZE - 1, SIZE + 1, SIZE * 3])
def test_bodies_of_another_size_are_refused(pull: Pull, blob: bytes, bytes_sent: int) -> None:
    with FakeRegistry() as registry:
        registry.fault("/blobs/", body((blob * 3)[:bytes_sent]))
        target = Target()
        with pytest.raises(RegistryError):
            fetch(pull, registry, blob, target)
        assert len(target.data) <= SIZE


def test_a_body_without_length_is_taken_to_its_end(pull: Pull, blob: bytes) -> None:
    def close_to_end(handler: Any, response: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + response.body)
        handler.drop()

    def chunked(handler: Any, response: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(response.body), 100_000):
            piece = response.body[start : start + 100_000]
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        handler.wfile.write(b"0\r\n\r\n")

    with FakeRegistry() as registry:
        registry.fault("/blobs/", close_to_end, times=1)
        registry.fault("/blobs/", chunked, times=1)
        fetch(pull, registry, blob)
        fetch(pull, registry, blob)
        assert not pull.pauses


def test_a_body_labelled_compressed_is_kept_as_it_is(pull: Pull, blob: bytes) -> None:
    with FakeRegistry() as registry:
        registry.fault("/blobs/", change(Content_Encoding="gzip"))
        fetch(pull, registry, blob)
        assert registry.log  # answered by the fault's action, so it is in the log


@pytest.mark.parametrize("part", ["/manifests/", "/blobs/"])
def test_a_rate_limit_is_waited_out(pull: Pull, store: ImageStore, part: str) -> None:
    with FakeRegistry(store) as registry:
        registry.fault(part, answer(429, headers={"Retry-After": "7"}), times=2)
        pull.run(f"docker://{registry.host}/t/one:1")
    assert pull.pauses == [7.0, 7.0]


@pytest.mark.parametrize("part", ["/manifests/", "/blobs/"])
@pytest.mark.parametrize("wait", ["1", "86400"])
def test_a_rate_limit_that_stays_is_said_with_what_helps(
    pull: Pull, store: ImageStore, part: str, wait: str
) -> None:
    with FakeRegistry(store) as registry:
        registry.fault(part, answer(429, headers={"Retry-After": wait}))
        with pytest.raises(RegistryError) as caught:
            pull.run(f"docker://{registry.host}/t/one:1")
    assert registry.host in str(caught.value)
    assert "limits the rate" in str(caught.value) and "anonymously" in str(caught.value)
    assert "log in" in caught.value.hint
    assert len(pull.pauses) == (3 if wait == "1" else 0)
    if wait != "1":
        assert f"wait {wait} s" in str(caught.value)


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_passing_faults_are_tried_again(pull: Pull, store: ImageStore, status: int) -> None:
    with FakeRegistry(store) as registry:
        registry.fault("/manifests/", answer(status), times=3)
        registry.fault("/blobs/", answer(status), times=3)
        pull.run(f"docker://{registry.host}/t/one:1")
        registry.fault("/manifests/", answer(status), times=4)
        with pytest.raises(RegistryError, match=str(status)):
            pull.run(f"docker://{registry.host}/t/one:1")


def test_more_retries_can_be_asked_for(tmp_path: Path, store: ImageStore) -> None:
    pull = Pull(make_settings(tmp_path, ENROOT_TRANSFER_RETRIES="8"))
    with FakeRegistry(store) as registry:
        registry.fault("/manifests/", answer(503), times=8)
        pull.run(f"docker://{registry.host}/t/one:1")
    assert len(pull.pauses) == 8
    assert max(pull.pauses) < 40


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        (lambda: "3", 3, 3),
        (lambda: " 3 ", 3, 3),
        (lambda: formatdate(time.time() + 110, usegmt=True), 60, 111),
        (lambda: formatdate(time.time() - 20, usegmt=True), 0, 0),
        (lambda: "soon", 0.1, 1),
        (lambda: "-5", 0.1, 1),
        (lambda: "", 0.1, 1),
    ],
)
def test_retry_after(
    pull: Pull, store: ImageStore, value: Callable[[], str], least: float, most: float
) -> None:
    with FakeRegistry(store) as registry:
        registry.fault("/manifests/", answer(503, headers={"Retry-After": value()}), times=1)
        pull.run(f"docker://{registry.host}/t/one:1")
    assert least <= pull.pauses[0] <= most


@pytest.mark.parametrize("fault", [stall(), stall(1000), drip(1, 0.02), drip(20, 0.05)])
def test_a_body_that_hangs_or_drips_is_given_up(pull: Pull, blob: bytes, fault: Any) -> None:
    pull.idle_timeout = 0.3
    with FakeRegistry() as registry:
        registry.fault("/blobs/", fault, times=1)
        fetch(pull, registry, blob)
        assert len(registry.log) >= 2
        registry.fault("/blobs/", fault)
        with pytest.raises(RegistryError):
            fetch(pull, registry, blob)


@pytest.mark.parametrize("fault", [endless_header(), dripping_header(0.05)])
def test_a_header_without_end_is_given_up(pull: Pull, store: ImageStore, fault: Any) -> None:
    pull.header_timeout = 1.0
    with FakeRegistry(store) as registry:
        registry.fault("/manifests/", fault, times=1)
        pull.run(f"docker://{registry.host}/t/one:1")
        assert pull.pauses


def test_the_body_of_a_redirect_is_not_read_to_its_end(pull: Pull, blob: bytes) -> None:
    def long_redirect(handler: Any, response: Any) -> None:
        location = f"http://{handler.headers['Host']}/v2/y/blobs/{handler.path.rpartition('/')[2]}"
        head = f"HTTP/1.1 307 X\r\nLocation: {location}\r\nContent-Length: 99999999999\r\n\r\n"
        handler.wfile.write(head.encode())
        handler.registry.stopping.wait(30)
        handler.drop()

    with FakeRegistry() as registry:
        registry.fault("/v2/x/blobs/", long_redirect)
        fetch(pull, registry, blob)


def test_the_transfer_timeout_ends_a_transfer(tmp_path: Path, blob: bytes) -> None:
    pull = Pull(make_settings(tmp_path, ENROOT_TRANSFER_TIMEOUT="0.5"))
    with FakeRegistry() as registry:
        registry.fault("/blobs/", drip(50_000, 0.1))
        with pytest.raises(RegistryError) as caught:
            fetch(pull, registry, blob)
        assert "ENROOT_TRANSFER_TIMEOUT" in caught.value.hint


def test_an_unknown_host_is_named(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="Unknown host: nothing.invalid") as caught:
        Pull(make_settings(tmp_path)).run("docker://nothing.invalid/x:1")
    assert caught.value.hint


def test_a_refused_connection_is_named(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{free.getsockname()[1]}"
        pull = Pull(make_settings(tmp_path))
        with pytest.raises(RegistryError, match=f"refused by {host}"):
            pull.run(f"docker://{host}/x:1")
        assert not pull.pauses
        pull = Pull(make_settings(tmp_path, ENROOT_TRANSFER_RETRIES="2"))
        with pytest.raises(RegistryError):
            pull.run(f"docker://{host}/x:1")
        assert len(pull.pauses) == 2


def test_a_server_that_answers_nonsense_is_given_up(pull: Pull, store: ImageStore) -> None:
    def nonsense(handler: Any, response: Any) -> None:
        handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        handler.drop()

    with FakeRegistry(store) as registry:
        registry.fault("/manifests/", nonsense)
        with pytest.raises(RegistryError, match=registry.host):
            pull.run(f"docker://{registry.host}/t/one:1")


def test_https_is_the_default(tmp_path: Path, store: ImageStore) -> None:
    settings = make_settings(tmp_path, ENROOT_ALLOW_HTTP="")
    with FakeRegistry(store) as registry:
        with pytest.raises(RegistryError, match="does not speak TLS") as caught:
            Pull(settings).run(f"docker://{registry.host}/t/one:1")
        assert "ENROOT_ALLOW_HTTP" in caught.value.hint
        assert not registry.log


def test_redirects_from_https_to_http_are_refused_unless_allowed(
    tmp_path: Path, store: ImageStore
) -> None:
    environ = {"SSL_CERT_FILE": str(CA_FILE)}
    with FakeRegistry(store) as storage, FakeRegistry(store, tls=True) as registry:
        registry.fault("/blobs/", redirect(storage.url))
        settings = make_settings(tmp_path, ENROOT_ALLOW_HTTP="", **environ)
        with pytest.raises(RegistryError, match="redirects to plain HTTP") as caught:
            Pull(settings).run(f"docker://{registry.host}/t/one:1")
        assert "ENROOT_ALLOW_HTTP=redirects" in caught.value.hint
        assert not storage.log
        settings = make_settings(tmp_path, ENROOT_ALLOW_HTTP="redirects", **environ)
        Pull(settings).run(f"docker://{registry.host}/t/one:1")
        assert len(storage.log) == 3
