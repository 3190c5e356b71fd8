"""Ask registries whether they answer: the name, the way there, the certificate, the protocol.

Source: OCI distribution specification 1.1, "Determining support".
"""

from __future__ import annotations

from collections.abc import Sequence

import requests

from enroot_py.errors import EnrootError, UsageError
from enroot_py.image.reference import DOCKER_HUB, HUB_ALIASES
from enroot_py.log import printable
from enroot_py.operations.doctor.findings import Finding, fault, ok
from enroot_py.registry.connection import (
    ConnectionAdapter,
    find_proxy,
    tls_context,
)
from enroot_py.registry.credentials import find_credentials
from enroot_py.registry.endpoints import always_http, load_mirrors
from enroot_py.registry.failures import connection_error
from enroot_py.registry.netrc import read_credentials_file
from enroot_py.settings import Settings

_PATIENCE = 10.0  # seconds to connect, and again to answer: a doctor must not hang
_MOST = 6  # hosts asked of their own accord; a screen has an end


def examine_registries(asked: Sequence[str], settings: Settings) -> list[Finding]:
    """Return one finding for each registry.

    Args:
        asked: hosts, with their port if they have one; if there are none, mirrors and the hosts
            with credentials, else Docker Hub.
        settings: for credentials, mirrors, proxies, certificates.
    """
    if asked:
        return [_registry(host, settings) for host in _unique(asked)]
    try:
        hosts = _unique([*_mirrors(settings), *_listed(settings)]) or [DOCKER_HUB]
    except EnrootError as error:
        return [fault("registries", str(error), *([f"# {error.hint}"] if error.hint else []))]
    return [_registry(host, settings) for host in hosts[:_MOST]]


def _unique(hosts: Sequence[str]) -> list[str]:
    for host in hosts:
        if host.startswith("-"):
            raise UsageError(f"Invalid registry: {host}", hint="options come before registries")
    names = [host.removeprefix("https://").rstrip("/").lower() for host in hosts]
    return list(dict.fromkeys(DOCKER_HUB if name in HUB_ALIASES else name for name in names))


def _mirrors(settings: Settings) -> list[str]:
    places = [place for listed in load_mirrors(settings).values() for place in listed]
    return [
        scheme + separator + rest.partition("/")[0]
        for scheme, separator, rest in (_split_scheme(place) for place in places)
    ]


def _listed(settings: Settings) -> list[str]:
    return [entry.machine for entry in read_credentials_file(settings.credentials_file).entries]


def _split_scheme(place: str) -> tuple[str, str, str]:
    scheme, separator, rest = place.partition("://")
    return (scheme, separator, rest) if separator else ("", "", place)


def _registry(place: str, settings: Settings) -> Finding:
    scheme, _, host = _split_scheme(place)
    scheme = scheme or ("http" if always_http(settings) else "https")
    subject = f"registry {printable(host)}"
    url = f"{scheme}://{host}/v2/"
    try:
        response = _get(url, host, settings)
        account = find_credentials(settings, host, "")
    except EnrootError as error:
        return fault(subject, str(error), *([f"# {error.hint}"] if error.hint else []))
    who = f"login from {account.source}" if account else "no login"
    if response.status_code in (200, 401):
        return ok(subject, f"answers ({scheme}, {who})")
    if response.status_code == 403 and not account:
        return ok(subject, f"answers ({scheme}; it refuses everything without a login)")
    return fault(
        subject,
        f"answers {response.status_code} to {url}: not a registry, or a proxy in between",
        f"curl -v {url}",
    )


def _get(url: str, host: str, settings: Settings) -> requests.Response:
    proxy = find_proxy(url, settings.environment)
    context = tls_context(settings, host) if url.startswith("https:") else None
    with requests.Session() as session:
        session.trust_env = False
        adapter = ConnectionAdapter(context, header_timeout=_PATIENCE, connections=1)
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        try:
            return session.get(
                url,
                timeout=_PATIENCE,
                allow_redirects=False,
                stream=True,
                proxies={"http": proxy, "https": proxy} if proxy else {},
            )
        except (OSError, requests.RequestException, TimeoutError) as error:
            raise connection_error(error, url, proxy) from error
