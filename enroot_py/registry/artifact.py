"""Puts a single file into a registry as an artifact, with the oras library.

Fetching one needs no library: see `RegistryClient.get_artifact` and
docs/adr/0014-artifacts-with-oras.md. Accounts, trust and proxies are those of every other request.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any
from urllib.parse import urlsplit

import oras.container
import oras.oci
import oras.provider
import requests
import requests.auth
import urllib3

from enroot_py.errors import NotFoundError, RegistryError
from enroot_py.image.digest import Digest, digest_of
from enroot_py.image.reference import Reference
from enroot_py.registry.accounts.credentials import PasswordPrompt, ask_on_terminal
from enroot_py.registry.auth import Authenticator
from enroot_py.registry.connection import HEADER_TIMEOUT, ConnectionAdapter, find_proxy, tls_context
from enroot_py.registry.endpoints import Endpoint, always_http
from enroot_py.registry.failures import connection_error, server_text, shown_url, status_text
from enroot_py.registry.transport import Transport
from enroot_py.settings import Settings

SQUASHFS_TYPE = "application/vnd.enroot.image.v1.squashfs"
"""Media type of an image that is pushed as a single file."""

_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
_TITLE = "org.opencontainers.image.title"
_CHUNK = 64 << 20  # bytes held in memory at a time, and sent in one request


def push_artifact(
    path: str,
    reference: Reference,
    settings: Settings,
    *,
    media_type: str = SQUASHFS_TYPE,
    ask_password: PasswordPrompt = ask_on_terminal,
) -> Digest:
    """Push one file and tag it; returns the digest of its manifest.

    Args:
        path: of the file.
        reference: scheme "oras", with a tag.
        settings: credentials, authorities, proxies. Mirrors are not pushed to.
        media_type: what the file is.
        ask_password: as for RegistryClient.

    Raises:
        NotFoundError: if there is no such file.
        AuthenticationError: if the registry refuses.
        RegistryError: for everything between here and there.
    """
    if not os.path.isfile(path):
        raise NotFoundError(f"No such file: {path}")
    scheme = "http" if always_http(settings) else "https"
    endpoint = Endpoint(scheme, reference.registry, reference.repository)
    url = f"{scheme}://{endpoint.host}/v2/"
    authorization = _log_in(endpoint, settings, reference.user, ask_password)
    registry = _Registry(endpoint, settings, authorization)
    container = oras.container.Container(
        f"{reference.registry}/{reference.repository}:{reference.tag or 'latest'}"
    )
    try:
        response = _push(registry, container, path, media_type)
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise connection_error(error, url) from error
    except ValueError as error:
        raise RegistryError(f"{endpoint.host} does not take {reference}: {error}") from error
    body = response.request.body
    assert isinstance(body, bytes)
    return digest_of(body)


def _push(
    registry: _Registry, container: oras.container.Container, path: str, media_type: str
) -> requests.Response:
    layer = oras.oci.NewLayer(path, media_type=media_type)
    layer["annotations"] = {_TITLE: os.path.basename(path)}
    registry.upload_blob(path, container, layer, do_chunked=True, chunk_size=_CHUNK)
    with tempfile.NamedTemporaryFile() as empty:
        empty.write(b"{}")
        empty.flush()
        config = oras.oci.NewLayer(empty.name, media_type=_EMPTY_TYPE)
        registry.upload_blob(empty.name, container, config)
    manifest = {
        **oras.oci.NewManifest(),
        "artifactType": media_type,
        "config": config,
        "layers": [layer],
    }
    response: requests.Response = registry.upload_manifest(manifest, container)
    return response


def _log_in(endpoint: Endpoint, settings: Settings, user: str, ask_password: PasswordPrompt) -> str:
    """Return the Authorization header that allows pushing; "" if none is needed."""
    with Transport(settings) as transport:
        authenticator = Authenticator(
            endpoint, transport, user=user, ask_password=ask_password, actions="pull,push"
        )
        exchange = transport.request(f"{endpoint.scheme}://{endpoint.host}/v2/")
        if exchange.status == 401 and exchange.own:
            authenticator.answer(exchange, "")
        else:
            exchange.close()
        return authenticator.authorization


class _HostAuth(requests.auth.AuthBase):
    """Adds an Authorization header to requests to one host, and to no other."""

    def __init__(self, scheme: str, host: str, authorization: str) -> None:
        self._origin = (scheme, host)
        self._authorization = authorization

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        parts = urlsplit(request.url or "")
        if self._authorization and (parts.scheme, parts.netloc) == self._origin:
            request.headers["Authorization"] = self._authorization
        return request


class _Registry(oras.provider.Registry):  # type: ignore[misc]
    """The library's registry with our connections and our login instead of its own.

    The library's login would send an account to whatever address a registry names, and look for
    accounts by itself.
    """

    def __init__(self, endpoint: Endpoint, settings: Settings, authorization: str) -> None:
        super().__init__(hostname=endpoint.host, insecure=endpoint.scheme == "http")
        self._host = endpoint.host
        session = self.session
        session.trust_env = False
        session.auth = _HostAuth(endpoint.scheme, endpoint.host, authorization)
        context = tls_context(settings, endpoint.host)
        adapter = ConnectionAdapter(context, header_timeout=HEADER_TIMEOUT, connections=1)
        session.mount("https://", adapter)
        for scheme in ("http", "https"):
            proxy = find_proxy(f"{scheme}://{endpoint.host}/", settings.environment)
            if proxy:
                session.proxies[scheme] = proxy

    def do_request(
        self,
        url: str,
        method: str = "GET",
        data: Any = None,
        headers: dict[str, str] | None = None,
        json: dict[str, Any] | None = None,
        stream: bool = False,
    ) -> requests.Response:
        """Send a request; a refusal is an error here and not the start of another login."""
        response: requests.Response = self.session.request(
            method, url, data=data, json=json, headers=headers or {}, stream=stream
        )
        if response.status_code >= 400 and not (method == "HEAD" and response.status_code == 404):
            said = server_text(response.content, response.headers.get("Content-Type", ""), ())
            raise RegistryError(
                f"{self._host} refuses {method} {shown_url(url)}: "
                f"{status_text(response.status_code)}" + (f": {said}" if said else ""),
                hint="pushing needs an account that may write: see the credentials file",
            )
        return response
