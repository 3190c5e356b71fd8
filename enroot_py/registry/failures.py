"""What went wrong between here and a registry, in words: the thing, the cause, the remedy. Pure.

Texts from elsewhere are cut and escaped, URLs lose their query and user (both can hold secrets),
and known secrets are struck out of whatever is shown.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from urllib.parse import urlsplit

import requests

from enroot_py.errors import AuthenticationError, NotFoundError, RegistryError
from enroot_py.log import printable

MAX_SHOWN = 300
_HTTP_HINT = (
    "a registry without TLS needs ENROOT_ALLOW_HTTP=yes, in the environment or in enroot.conf"
)


class TransferError(RegistryError):
    """A request failed in a way that another try may mend.

    Attributes:
        retry_after: seconds that the server asks for, or None.
        patient: worth a few tries even if none are configured.
        status: the HTTP status that came, or 0.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        retry_after: float | None = None,
        patient: bool = True,
        status: int = 0,
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after
        self.patient = patient
        self.status = status


def shown_url(url: str) -> str:
    """Return a URL for messages: no user, no query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return printable(f"{parts.scheme}://{host}{parts.path}"[:MAX_SHOWN])


def connection_error(error: BaseException, url: str, proxy: str = "") -> RegistryError:
    """Explain why no answer came from `url`.

    Args:
        error: the library's exception; its causes are looked through.
        url: what was asked for.
        proxy: URL of the proxy that was used, or "".
    """
    causes = list(_causes(error))
    host = printable(urlsplit(url).netloc.rpartition("@")[2])
    if proxy and _is_proxy_failure(causes):
        proxy = printable(urlsplit(proxy).netloc.rpartition("@")[2])
        return TransferError(
            f"Cannot reach {host} through the proxy {proxy}: {_reason(causes)}",
            hint="check https_proxy, http_proxy, all_proxy and no_proxy",
            patient=False,
        )
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return TransferError(
                f"Unknown host: {host} ({cause.strerror})",
                hint=f"check the registry's name; ask for its address: getent hosts {host}",
                patient=cause.errno == socket.EAI_AGAIN,
            )
        if isinstance(cause, ssl.SSLCertVerificationError):
            return RegistryError(
                f"Certificate of {host} is not trusted: {printable(cause.verify_message)}",
                hint="put the authority's certificate into certs.d/"
                f"{host}/ca.crt in ENROOT_CONFIG_PATH, or name it in SSL_CERT_FILE",
            )
        if isinstance(cause, ssl.SSLError):
            return _tls_error(cause, host)
        if isinstance(cause, ConnectionRefusedError):
            return TransferError(
                f"Connection refused by {host}",
                hint="is the registry running, and the port right?",
                patient=False,
            )
        if isinstance(cause, requests.exceptions.InvalidSchema):
            return RegistryError(f"Cannot reach {host}: {printable(str(cause)[:MAX_SHOWN])}")
    if any(isinstance(cause, requests.exceptions.ConnectTimeout) for cause in causes):
        return TransferError(
            f"No connection to {host} in time",
            hint="is a firewall or a proxy in the way? ENROOT_CONNECT_TIMEOUT sets the limit",
            patient=False,
        )
    return TransferError(f"Connection to {host} failed: {_reason(causes)}")


def _tls_error(cause: ssl.SSLError, host: str) -> RegistryError:
    if cause.reason in ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST"):
        return RegistryError(f"{host} does not speak TLS", hint=_HTTP_HINT)
    if cause.reason is None or "EOF" in cause.reason:
        return TransferError(f"Connection to {host} failed: it ended during the TLS handshake")
    reason = (cause.reason or "").replace("_", " ").lower()
    return RegistryError(f"TLS with {host} failed: {printable(reason)}")


def _is_proxy_failure(causes: list[BaseException]) -> bool:
    return any(isinstance(cause, requests.exceptions.ProxyError) for cause in causes)


def _reason(causes: list[BaseException]) -> str:
    for cause in reversed(causes):
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return printable(cause.strerror)
        if isinstance(cause, TimeoutError):
            return printable(str(cause)) or "timed out"
    return printable(str(causes[-1])[:MAX_SHOWN])


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and everything it was made from, outermost first."""
    pending, seen = [error], set()
    while pending:
        cause = pending.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        inner = (getattr(cause, "reason", None), *cause.args, cause.__cause__, cause.__context__)
        pending += [one for one in inner if isinstance(one, BaseException)]


def status_text(status: int) -> str:
    """Return `404 Not Found` for 404."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def server_text(body: bytes, content_type: str, secrets: Iterable[str]) -> str:
    """Return what a server says about a refusal, fit to be shown; "" if it says nothing useful."""
    text = body[:65536].decode("utf-8", "replace")
    if "html" in content_type.lower():
        return ""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        pass
    else:
        text = "; ".join(_json_messages(document))
    for secret in secrets:
        text = text.replace(secret, "***")
    text = " ".join(text.split())
    return printable(text[:MAX_SHOWN] + ("…" if len(text) > MAX_SHOWN else ""))


def _json_messages(document: object) -> list[str]:
    """Messages of the distribution specification's, OAuth's and common other error bodies."""
    if not isinstance(document, dict):
        return []
    errors = document.get("errors")
    entries = errors if isinstance(errors, list) else [document]
    texts = []
    for entry in entries[:3]:
        if isinstance(entry, dict):
            for key in ("message", "error_description", "error", "details", "detail", "code"):
                if isinstance(entry.get(key), str) and entry[key]:
                    texts.append(entry[key])
                    break
    return texts


def refused(
    status: int, host: str, what: str, *, account: str, said: str, hint: str
) -> RegistryError:
    """Explain a 401 or 403.

    Args:
        status: of the response.
        host: who refused.
        what: what was asked for, as people write it.
        account: who asked: "anonymously" or "as USER (credentials from FILE)".
        said: the server's own words, fit to be shown.
        hint: what to try.
    """
    words = f": {said}" if said else ""
    return AuthenticationError(
        f"{host} refuses {what} {account}: {status_text(status)}{words}", hint=hint
    )


def rate_limited(host: str, *, account: str, retry_after: float | None) -> RegistryError:
    """Explain a 429 that patience did not mend."""
    wait = f"; it asks to wait {retry_after:g} s" if retry_after else ""
    login = (
        "log in for a higher limit (a line in the credentials file), or use a mirror"
        if account == "anonymously"
        else "try again later, or use a mirror (ENROOT_MIRRORS)"
    )
    return RegistryError(f"{host} limits the rate of requests {account} (429){wait}", hint=login)


def no_such_tag(
    image: str, tag: str, *, endpoint_url: str, tags: tuple[str, ...] | None, said: str
) -> NotFoundError:
    """Explain a 404 of a manifest.

    Args:
        image: registry and repository.
        tag: tag or digest that was asked for.
        endpoint_url: URL of the repository's list of tags.
        tags: what there is, nearest first; () if it could not be found out, None if the registry
            says that there is no such repository.
        said: the server's own words.
    """
    if tags:
        listed = printable(", ".join(tags))
        message = f"No such tag: {tag} of {image}; similar ones: {listed}"
    else:
        words = f" ({said})" if said else ""
        message = f"No such image: {image}, {tag}{words}"
    if tags is None:
        hint = (
            f"the registry has no {image.partition('/')[2]}, or shows it to its own accounts alone"
        )
        return NotFoundError(message, hint=f"check the name: {hint}")
    return NotFoundError(message, hint=f"list the tags: curl -s {shown_url(endpoint_url)}")
