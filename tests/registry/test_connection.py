"""Whom connections trust and which proxy they take."""

from __future__ import annotations

import http.server
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests.adapters

from enroot_py.errors import RegistryError, SettingsError
from enroot_py.registry.connection import find_proxy, tls_context
from tests.registry.fake_registry import CA_FILE, CERTIFICATES, FakeRegistry
from tests.registry.images import ImageStore
from tests.registry.pulling import Pull, make_settings


def pull_over_tls(folder: Path, registry: FakeRegistry, **environ: str) -> None:
    settings = make_settings(folder, ENROOT_ALLOW_HTTP="", **environ)
    Pull(settings).run(f"docker://{registry.host}/t/one:1")


def test_an_unknown_authority_is_not_trusted(tmp_path: Path, store: ImageStore) -> None:
    with FakeRegistry(store, tls=True) as registry:
        with pytest.raises(RegistryError, match="is not trusted") as caught:
            pull_over_tls(tmp_path, registry)
        assert "certs.d" in caught.value.hint and "SSL_CERT_FILE" in caught.value.hint
        assert not registry.log


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "SSL_CERT_DIR"])
def test_authorities_from_variables(tmp_path: Path, store: ImageStore, variable: str) -> None:
    with FakeRegistry(store, tls=True) as registry:
        value = CERTIFICATES if variable == "SSL_CERT_DIR" else CA_FILE
        pull_over_tls(tmp_path, registry, **{variable: str(value)})


@pytest.mark.parametrize("folder", ["config", "etc"])
@pytest.mark.parametrize("with_port", [True, False])
def test_authorities_of_one_registry(
    tmp_path: Path, store: ImageStore, folder: str, with_port: bool
) -> None:
    with FakeRegistry(store, tls=True) as registry:
        name = registry.host if with_port else "127.0.0.1"
        place = tmp_path / folder / "certs.d" / name
        place.mkdir(parents=True)
        shutil.copy(CA_FILE, place / "ca.crt")
        pull_over_tls(tmp_path, registry)
        with pytest.raises(RegistryError, match="not trusted"):
            registry.host = registry.host.replace("127.0.0.1", "localhost")
            pull_over_tls(tmp_path, registry)


def test_a_certificate_for_another_name_is_refused(tmp_path: Path, store: ImageStore) -> None:
    with FakeRegistry(store, tls=True) as registry:
        registry.host = registry.host.replace("127.0.0.1", "127.0.0.2")
        registry._server.server_address = ("127.0.0.2", registry.port)
        with pytest.raises(RegistryError):
            pull_over_tls(tmp_path, registry, SSL_CERT_FILE=str(CA_FILE))


def test_a_client_certificate_is_loaded_with_its_key(tmp_path: Path, store: ImageStore) -> None:
    with FakeRegistry(store, tls=True) as registry:
        place = tmp_path / "config/certs.d" / registry.host
        place.mkdir(parents=True)
        shutil.copy(CA_FILE, place / "ca.crt")
        shutil.copy(CERTIFICATES / "server.crt", place / "client.cert")
        with pytest.raises(SettingsError, match="client.cert") as caught:
            pull_over_tls(tmp_path, registry)
        assert "client.key" in caught.value.hint
        shutil.copy(CERTIFICATES / "server.key", place / "client.key")
        pull_over_tls(tmp_path, registry)


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
@pytest.mark.parametrize("kind", ["missing", "junk"])
def test_certificates_that_cannot_be_used_are_named(
    tmp_path: Path, store: ImageStore, variable: str, kind: str
) -> None:
    path = tmp_path / "odd"
    if kind == "junk":
        path.write_text("not a certificate")
    with FakeRegistry(store, tls=True) as registry:
        with pytest.raises(SettingsError, match=str(path)) as caught:
            pull_over_tls(tmp_path, registry, **{variable: str(path)})
        assert variable in caught.value.hint


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("http://h/", {}, ""),
        ("http://h/", {"http_proxy": "http://p:1"}, "http://p:1"),
        ("http://h/", {"http_proxy": "p:1"}, "http://p:1"),
        ("http://h/", {"HTTP_PROXY": "http://p:1"}, ""),
        ("https://h/", {"http_proxy": "http://p:1"}, ""),
        ("https://h/", {"https_proxy": "http://p:1"}, "http://p:1"),
        ("https://h/", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://h/", {"https_proxy": "a:1", "HTTPS_PROXY": "b:1"}, "http://a:1"),
        ("https://h/", {"all_proxy": "socks5h://p:1"}, "socks5h://p:1"),
        ("http://h/", {"ALL_PROXY": "http://p:1"}, "http://p:1"),
        ("http://h/", {"http_proxy": ""}, ""),
    ],
)
def test_proxies(url: str, environ: dict[str, str], proxy: str) -> None:
    assert find_proxy(url, environ) == proxy


@pytest.mark.parametrize(
    ("host", "no_proxy", "exempt"),
    [
        ("h", "h", True),
        ("h", "*", True),
        ("h", "g, h", True),
        ("h", "g h", True),
        ("a.example", "example", True),
        ("a.example", ".example", True),
        ("aexample", "example", False),
        ("a.example.org", "example", False),
        ("A.example", "EXAMPLE", True),
        ("h:5000", "h:5000", True),
        ("h:5000", "h:5001", False),
        ("h", "h:5000", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("[::1]:5000", "::1", True),
        ("h", "", False),
        ("h", ",,", False),
        ("h", "10.0.0.0/99", False),
    ],
)
def test_hosts_without_proxy(host: str, no_proxy: str, exempt: bool) -> None:
    environ = {"http_proxy": "http://p:1", "no_proxy": no_proxy}
    assert (find_proxy(f"http://{host}/", environ) == "") == exempt


@pytest.mark.parametrize(
    "value",
    ["http://", "http://:1", "gopher://p:1", "http://u:hunter2@p:x", "http://p:99999", "::::"],
)
def test_odd_proxies_are_named_without_their_password(value: str) -> None:
    with pytest.raises(SettingsError, match="https_proxy") as caught:
        find_proxy("https://h/", {"https_proxy": value})
    assert "hunter2" not in str(caught.value)


class Proxy(http.server.BaseHTTPRequestHandler):
    """Forwards CONNECT, and notes what it was asked for."""

    seen: list[str] = []

    def do_CONNECT(self) -> None:
        self.seen.append(self.path)
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port))) as upstream:
            self.send_response(200)
            self.end_headers()
            threads = [
                threading.Thread(target=self._pump, args=ends)
                for ends in ((self.connection, upstream), (upstream, self.connection))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def running_proxy() -> Iterator[str]:
    Proxy.seen.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://u:hunter2@127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_https_goes_through_a_proxy_with_our_trust(tmp_path: Path, store: ImageStore) -> None:
    with running_proxy() as proxy, FakeRegistry(store, tls=True) as registry:
        pull_over_tls(tmp_path, registry, https_proxy=proxy, SSL_CERT_FILE=str(CA_FILE))
        assert set(Proxy.seen) == {registry.host}
        with pytest.raises(RegistryError, match="not trusted"):
            pull_over_tls(tmp_path, registry, https_proxy=proxy)
        Proxy.seen.clear()
        pull_over_tls(
            tmp_path,
            registry,
            https_proxy=proxy,
            no_proxy="127.0.0.0/8",
            SSL_CERT_FILE=str(CA_FILE),
        )
        assert not Proxy.seen


def test_a_proxy_that_is_not_there_is_named(tmp_path: Path, store: ImageStore) -> None:
    with FakeRegistry(store, tls=True) as registry:
        with pytest.raises(RegistryError, match="through the proxy 127.0.0.1:1:") as caught:
            pull_over_tls(tmp_path, registry, https_proxy="http://u:hunter2@127.0.0.1:1")
        assert "https_proxy" in caught.value.hint
        assert "hunter2" not in str(caught.value)


def test_authorities_that_a_library_brings_are_not_added(
    tmp_path: Path, store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests.adapters, "DEFAULT_CA_BUNDLE_PATH", str(CA_FILE))
    with (
        FakeRegistry(store, tls=True) as registry,
        pytest.raises(RegistryError, match="not trusted"),
    ):
        pull_over_tls(tmp_path, registry)


def test_named_authorities_replace_the_systems(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, SSL_CERT_FILE=str(CA_FILE))
    assert tls_context(settings, "r.io").cert_store_stats()["x509_ca"] == 1


def test_the_processs_own_environment_does_not_count(
    tmp_path: Path, store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings were made from another environment; the libraries must not look at this one."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", os.devnull)
    with FakeRegistry(store) as registry:
        Pull(make_settings(tmp_path)).run(f"docker://{registry.host}/t/one:1")
