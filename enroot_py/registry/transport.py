"""HTTP requests that keep their secrets, follow redirects with care and are patient.

One `Transport` serves any number of hosts and threads. It neither knows registries nor accounts:
the caller passes an Authorization header, and it goes to the host that it was meant for alone.
"""

from __future__ import annotations

import http.cookiejar
import random
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
import urllib3

from enroot_py import log
from enroot_py.errors import RegistryError
from enroot_py.registry.connection import (
    HEADER_TIMEOUT,
    ConnectionAdapter,
    find_proxy,
    tls_context,
)
from enroot_py.registry.endpoints import redirects_to_http
from enroot_py.registry.exchange import (
    IDLE_TIMEOUT,
    PASSING_STATUSES,
    Exchange,
    passing_error,
)
from enroot_py.registry.failures import TransferError, connection_error, shown_url
from enroot_py.settings import VERSION, Settings

MAX_REDIRECTS = 5
MIN_TRIES_AGAIN = 3
"""Tries after a failure that passes by itself, even with ENROOT_TRANSFER_RETRIES=0."""

MAX_WAIT = 30.0
"""Seconds between two tries at most."""

MAX_RETRY_AFTER = 120.0
"""Seconds that a server may ask for; more ends the work with a message that says so."""

UNLIMITED_CONNECTIONS = 64
"""Kept open for one host with ENROOT_MAX_CONNECTIONS=0."""

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_USER_AGENT = f"pyxis-enroot (enroot/{VERSION})"


class Patience:
    """Counts tries and waits between them.

    Args:
        retries: ENROOT_TRANSFER_RETRIES.
        sleep: waits for a number of seconds.
    """

    def __init__(self, retries: int, sleep: Callable[[float], None]) -> None:
        self._retries = retries
        self._sleep = sleep
        self._failures = 0

    def wait(self, error: TransferError) -> None:
        """Wait before another try.

        Raises:
            TransferError: `error` itself, when it is time to give up.
        """
        allowed = max(self._retries, MIN_TRIES_AGAIN) if error.patient else self._retries
        if self._failures >= allowed or (error.retry_after or 0) > MAX_RETRY_AFTER:
            raise error
        self._failures += 1
        pause = error.retry_after
        if pause is None:
            # Many nodes meet the same fault at the same moment: they must not come back together.
            pause = min(MAX_WAIT, 0.5 * 2 ** (self._failures - 1)) * random.uniform(0.75, 1.25)
        log.info(f"{error}; trying again in {pause:.1f} s")
        self._sleep(pause)

    def reset(self) -> None:
        """Begin to count anew: there was progress."""
        self._failures = 0


class Transport:
    """Sends requests. A context manager: closes its connections at the end.

    Args:
        settings: time limits, proxies, authorities.
        sleep: waits between tries.
        header_timeout: seconds until a response's header is complete.
        idle_timeout: seconds without a byte of a body.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        sleep: Callable[[float], None] = time.sleep,
        header_timeout: float = HEADER_TIMEOUT,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        self.settings = settings
        self._sleep = sleep
        limit = settings.transfer_timeout
        self._header_timeout = min(header_timeout, limit) if limit else header_timeout
        self._idle_timeout = min(idle_timeout, limit) if limit else idle_timeout
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.cookies.set_policy(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
        self._mounted: set[str] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Transport:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._session.close()

    def patience(self) -> Patience:
        """Return a new counter of tries."""
        return Patience(self.settings.transfer_retries, self._sleep)

    def request(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        authorization: str = "",
        form: Mapping[str, str] | None = None,
        once: bool = False,
    ) -> Exchange:
        """Send a GET, or a POST of a form, as often as patience lasts.

        Args:
            url: absolute.
            headers: further headers, no secrets.
            authorization: for the URL's own host only.
            form: fields of a form; never sent on to another host.
            once: leave it to the caller to be patient.

        Returns:
            Whatever answer came in the end, but none of PASSING_STATUSES.

        Raises:
            TransferError: if no answer came, or one of PASSING_STATUSES every time.
            RegistryError: if it cannot be sent, or a redirect leads where it must not.
        """
        patience = self.patience()
        while True:
            try:
                exchange = self._exchange(url, headers or {}, authorization, form)
                if exchange.status in PASSING_STATUSES:
                    raise passing_error(exchange)
                return exchange
            except TransferError as error:
                if once:
                    raise
                patience.wait(error)

    def _exchange(
        self, url: str, headers: Mapping[str, str], secret: str, form: Mapping[str, str] | None
    ) -> Exchange:
        """Send a request and follow its redirects."""
        asked = url
        limit = self.settings.transfer_timeout
        deadline = time.monotonic() + limit if limit else 0.0
        for _ in range(MAX_REDIRECTS + 1):
            response = self._send(url, headers, secret, form)
            if response.status_code not in _REDIRECTS or "location" not in response.headers:
                own = _keeps_secrets(asked, url)
                return Exchange(response, url, own, deadline, self._idle_timeout)
            target = self._redirect_target(response, url)
            self._drain(Exchange(response, url, True, deadline, self._idle_timeout))
            if not _keeps_secrets(url, target):
                secret = ""
                if form is not None:
                    raise RegistryError(
                        f"{shown_url(url)} sends its callers on to another host: "
                        f"{shown_url(target)}"
                    )
            url = target
        raise RegistryError(f"{shown_url(asked)} redirects without end")

    def _drain(self, exchange: Exchange) -> None:
        """Read what little comes with a redirect, so that the connection can be used again."""
        length = exchange.header("Content-Length")
        if length.isascii() and length.isdigit() and len(length) < 6:
            exchange.read(1 << 20)
        else:
            exchange.close()

    def _redirect_target(self, response: requests.Response, url: str) -> str:
        location = self._session.get_redirect_target(response) or ""
        try:
            target = urljoin(url, location)
            parts = urlsplit(target)
            host = parts.netloc.rpartition("@")[2]
            valid = bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        if not valid or parts.scheme not in ("http", "https"):
            raise RegistryError(f"{shown_url(url)} redirects to somewhere that is no web address")
        if parts.scheme == "http" and not redirects_to_http(self.settings):
            raise RegistryError(
                f"{shown_url(url)} redirects to plain HTTP: {shown_url(target)}",
                hint="ENROOT_ALLOW_HTTP=redirects allows that, and leaves the registry on HTTPS",
            )
        # A user name in a redirect would become an Authorization header.
        return parts._replace(netloc=host, fragment="").geturl()

    def _send(
        self, url: str, headers: Mapping[str, str], secret: str, form: Mapping[str, str] | None
    ) -> requests.Response:
        self._mount(url)
        proxy = find_proxy(url, self.settings.environment)
        sent = {"User-Agent": _USER_AGENT, "Accept-Encoding": "identity", **headers}
        if secret:
            sent["Authorization"] = secret
        # None waits for ever, which the library allows and its type annotations do not.
        connect: Any = self.settings.connect_timeout or None
        request = requests.Request("GET" if form is None else "POST", url, sent, data=form)
        try:
            # Not through the session's own send(): it prepares to follow redirects by itself.
            return self._session.get_adapter(url).send(
                self._session.prepare_request(request),
                stream=True,
                timeout=(connect, self._idle_timeout),
                proxies={"http": proxy, "https": proxy} if proxy else {},
            )
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise connection_error(error, url, proxy) from error

    def _mount(self, url: str) -> None:
        parts = urlsplit(url)
        prefix = f"{parts.scheme}://{parts.netloc}/"
        with self._lock:
            if prefix in self._mounted:
                return
            https = parts.scheme == "https"
            adapter = ConnectionAdapter(
                tls_context(self.settings, parts.netloc) if https else None,
                header_timeout=self._header_timeout,
                connections=self.settings.max_connections or UNLIMITED_CONNECTIONS,
            )
            self._session.mount(prefix, adapter)
            self._mounted.add(prefix)


def _keeps_secrets(first: str, second: str) -> bool:
    """Tell whether `second` is the same server as `first`, or its encrypted self."""
    one, other = urlsplit(first), urlsplit(second)
    if one.hostname != other.hostname:
        return False
    ports = one.port or _DEFAULT_PORTS[one.scheme], other.port or _DEFAULT_PORTS[other.scheme]
    if one.scheme == other.scheme:
        return ports[0] == ports[1]
    return one.scheme == "http" and ports == (80, 443)


_DEFAULT_PORTS = {"http": 80, "https": 443}
