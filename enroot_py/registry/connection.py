"""Connections: whom they trust, which proxy they take, how long they wait for an answer.

Everything comes from the settings' environment, so that `enroot.conf` can set it; nothing is left
to the libraries' own guesses (~/.netrc, bundled certificates).
"""

from __future__ import annotations

import http.client
import ipaddress
import os
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import certifi
import requests.adapters
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from enroot_py.errors import SettingsError
from enroot_py.log import printable
from enroot_py.registry.accounts.credentials import split_port
from enroot_py.settings import Settings

HEADER_TIMEOUT = 120.0
"""Seconds from a request to the end of its response's header."""

_SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_OTHER_TOOLS = ("/etc/containers", "/etc/docker")


def certificate_folders(settings: Settings, host: str) -> tuple[str, ...]:
    """Return the existing folders with authorities and client certificates for one registry.

    `certs.d/HOST:PORT` and `certs.d/HOST` in the user's and the system's configuration folder, and
    where docker and podman have them.

    Source: containers-certs.d(5).
    """
    bases = (settings.config_path, settings.sysconf_path, *_OTHER_TOOLS)
    names = dict.fromkeys((host, split_port(host)[0]))
    paths = [os.path.join(base, "certs.d", name) for base in bases for name in names]
    return tuple(path for path in paths if os.path.isdir(path))


def tls_context(settings: Settings, host: str) -> ssl.SSLContext:
    """Return what a connection to `host` (with its port if it has one) trusts and shows.

    Raises:
        SettingsError: naming the variable or file that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    environ = settings.environment
    chosen = False
    for name in ("CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        if environ.get(name):
            _load_authorities(context, environ[name], name)
            chosen = True
            break
    for folder in filter(None, environ.get("SSL_CERT_DIR", "").split(":")):
        _load_folder(context, folder)
        chosen = True
    if not chosen:
        _load_system(context)
    for folder in certificate_folders(settings, host):
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if name.endswith((".crt", ".pem")):
                _load_authorities(context, path, folder)
            elif name.endswith(".cert"):
                _load_client(context, path, path[: -len("cert")] + "key")
    return context


def _load_authorities(context: ssl.SSLContext, path: str, origin: str) -> None:
    try:
        context.load_verify_locations(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"Cannot use the certificates of {path}: {error.strerror or error}",
            hint=f"{origin} names it; expected certificates in PEM form",
        ) from error


def _load_folder(context: ssl.SSLContext, folder: str) -> None:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise SettingsError(
            f"Cannot use the certificates of {folder}: {error.strerror}",
            hint="SSL_CERT_DIR names it",
        ) from error
    context.load_verify_locations(capath=folder)
    # OpenSSL finds only files named by hash (c_rehash); a folder without any is meant as it is.
    if not any(name.endswith(".0") for name in names):
        for name in names:
            if name.endswith((".crt", ".pem")):
                _load_authorities(context, os.path.join(folder, name), "SSL_CERT_DIR")


def _load_client(context: ssl.SSLContext, certificate: str, key: str) -> None:
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"Cannot use the client certificate {certificate}: {error.strerror or error}",
            hint=f"its key is expected in {key}, readable by you",
        ) from error


def _load_system(context: ssl.SSLContext) -> None:
    """Trust what the system trusts, as curl does: sites add their own authorities there."""
    paths = ssl.get_default_verify_paths()
    hashed = paths.capath and any(name.endswith(".0") for name in os.listdir(paths.capath))
    if paths.cafile or hashed:
        context.load_default_certs()
        return
    bundles = [path for path in _SYSTEM_BUNDLES if os.path.isfile(path)]
    context.load_verify_locations(cafile=bundles[0] if bundles else certifi.where())


def find_proxy(url: str, environ: Mapping[str, str]) -> str:
    """Return the proxy for a URL, with its scheme; "" for none.

    Raises:
        SettingsError: if the variable holds something that is no proxy.

    Source: curl(1), ENVIRONMENT: http_proxy in lower case only, the others in both.
    """
    parts = urlsplit(url)
    names = [f"{parts.scheme}_proxy", "all_proxy"]
    if parts.scheme == "https":
        names.insert(1, "HTTPS_PROXY")
    names.append("ALL_PROXY")
    name = next((name for name in names if environ.get(name)), "")
    if not name or _is_exempt(parts.hostname or "", parts.port, environ):
        return ""
    proxy = environ[name]
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    scheme, _, rest = proxy.partition("://")
    try:
        valid = bool(urlsplit(proxy).hostname) and urlsplit(proxy).port != 0
    except ValueError:
        valid = False
    if not valid or scheme.lower() not in (
        "http",
        "https",
        "socks4",
        "socks4a",
        "socks5",
        "socks5h",
    ):
        shown = printable(rest.rpartition("@")[2])
        raise SettingsError(f"Invalid proxy in {name}: {shown}", hint="expected http://HOST:PORT")
    return proxy


def _is_exempt(host: str, port: int | None, environ: Mapping[str, str]) -> bool:
    listed = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    for word in listed.replace(",", " ").split():
        name = word.lower().lstrip(".")
        head, colon, number = name.rpartition(":")
        if colon and number.isdigit() and "]" not in number and ":" not in head:
            if port is None or int(number) != port:
                continue
            name = head
        if name == "*" or host == name or host.endswith("." + name) or _in_network(host, name):
            return True
    return False


def _in_network(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


class ConnectionAdapter(requests.adapters.HTTPAdapter):
    """Connections with a given trust, whose headers must arrive in time.

    Args:
        context: for https; None for plain connections.
        header_timeout: seconds.
        connections: kept open at once for one host.
    """

    def __init__(
        self, context: ssl.SSLContext | None, *, header_timeout: float, connections: int
    ) -> None:
        self._context = context
        self._pools = _pool_classes(header_timeout)
        super().__init__(pool_connections=4, pool_maxsize=connections, max_retries=0)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        """Make the pools with our context."""
        super().init_poolmanager(*arguments, ssl_context=self._context, **options)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, proxy: Any, **options: Any) -> Any:
        """Make the pools behind a proxy with our context."""
        manager = super().proxy_manager_for(proxy, ssl_context=self._context, **options)
        manager.pool_classes_by_scheme = self._pools
        return manager

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """Leave trust to our context alone: the library would add the authorities it bundles."""
        conn.cert_reqs = "CERT_REQUIRED"
        conn.ca_certs = conn.ca_cert_dir = None


def _pool_classes(limit: float) -> dict[str, type[urllib3.HTTPConnectionPool]]:
    class Plain(_HeaderLimit, HTTPConnection):
        header_timeout = limit

    class Encrypted(_HeaderLimit, HTTPSConnection):
        header_timeout = limit

    class PlainPool(urllib3.HTTPConnectionPool):
        ConnectionCls = Plain

    class EncryptedPool(urllib3.HTTPSConnectionPool):
        ConnectionCls = Encrypted

    return {"http": PlainPool, "https": EncryptedPool}


class _HeaderLimit:
    """Ends a connection whose header does not arrive in time.

    The socket's own time limit starts again with every byte: a header that drips would never end.
    """

    header_timeout: float
    sock: socket.socket | None

    def getresponse(self) -> Any:
        expired = threading.Event()
        timer = threading.Timer(self.header_timeout, self._end, (expired,))
        timer.start()
        try:
            response = super().getresponse()  # type: ignore[misc]
        except (OSError, http.client.HTTPException) as error:
            if expired.is_set():
                raise self._expired() from error
            raise
        finally:
            timer.cancel()
        # The library takes a header that was cut off for a short one.
        if expired.is_set():
            response.close()
            raise self._expired()
        return response

    def _expired(self) -> TimeoutError:
        return TimeoutError(f"no answer within {self.header_timeout:g} s")

    def _end(self, expired: threading.Event) -> None:
        expired.set()
        if self.sock is not None:
            try:
                # Not SSLSocket's own method, which takes the TLS state away from the reader.
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)
            except OSError:
                pass  # it ended by itself meanwhile
