"""Ask registries whether they answer: the name, the way there, the certificate, the protocol.

Source: OCI distribution specification 1.1, "Determining support".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from enroot_py.errors import EnrootError, UsageError
from enroot_py.image.reference import DOCKER_HUB, HUB_ALIASES
from enroot_py.log import printable
from enroot_py.operations.doctor.findings import Finding, Status, fault, ok
from enroot_py.registry.accounts.credentials import find_credentials
from enroot_py.registry.accounts.netrc import read_credentials_file
from enroot_py.registry.auth import Authenticator
from enroot_py.registry.endpoints import Endpoint, always_http, load_mirrors
from enroot_py.registry.transport import Transport
from enroot_py.settings import Settings

_PATIENCE = 10.0  # seconds to connect, and again to answer: a doctor must not hang
_MOST = 6  # hosts asked of their own accord; a screen has an end
_REPOSITORY = "enroot/doctor"  # rights are always asked for some repository; none of that name


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
        hosts = _unique([*_mirrors(settings), *_listed(settings)])
    except EnrootError as error:
        return [fault("registries", str(error), *([f"# {error.hint}"] if error.hint else []))]
    if hosts:
        return [_registry(host, settings) for host in hosts[:_MOST]]
    # Nobody said that images come from there: out of reach, it may never be missed.
    hub = _registry(DOCKER_HUB, settings)
    return [hub if hub.status is Status.OK else replace(hub, status=Status.NOTE)]


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
    try:
        account = find_credentials(settings, host, _REPOSITORY)
        status = _ask(Endpoint(scheme, host, _REPOSITORY), settings, account is not None)
    except EnrootError as error:
        return fault(subject, str(error), *([f"# {error.hint}"] if error.hint else []))
    if status == 200 and account:
        return ok(subject, f"answers ({scheme}, login from {account.source})")
    if status in (200, 401, 403):
        return ok(subject, f"answers ({scheme}, without a login)")
    return fault(
        subject,
        f"answers {status} to {scheme}://{host}/v2/: not a registry, or a proxy in between",
        f"curl -v {scheme}://{host}/v2/",
    )


def _ask(endpoint: Endpoint, settings: Settings, login: bool) -> int:
    """Return the status of the registry's root, with a login where one is to be used.

    Raises:
        AuthenticationError: if the login is refused.
        RegistryError: if no answer came.
    """
    url = f"{endpoint.scheme}://{endpoint.host}/v2/"
    with Transport(settings, header_timeout=_PATIENCE, idle_timeout=_PATIENCE) as transport:
        authenticator = Authenticator(
            endpoint, transport, user="", ask_password=lambda host, user: ""
        )
        exchange = transport.request(url, once=True)
        if exchange.status == 401 and login:
            authenticator.answer(exchange, "")
            exchange = transport.request(url, authorization=authenticator.authorization, once=True)
            if exchange.status == 401:
                raise authenticator.refusal(exchange)
        exchange.close()
        return exchange.status
