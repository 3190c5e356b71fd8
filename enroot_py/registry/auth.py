"""Answers a registry's challenge: Basic, or a bearer token from the server that it names.

One `Authenticator` per endpoint and repository; its tokens serve all threads and are renewed when
the registry no longer takes them. Nothing is kept on disk: a token of yesterday's public pull can
not stand in the way of today's private one.

Source: distribution-spec's token authentication (docs/spec/auth), RFC 7235, RFC 6750.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

from enroot_py import log
from enroot_py.errors import AuthenticationError, RegistryError
from enroot_py.registry.accounts.credentials import (
    Credentials,
    PasswordPrompt,
    find_credentials,
    realm_belongs_to,
)
from enroot_py.registry.endpoints import Endpoint, always_http
from enroot_py.registry.exchange import Exchange
from enroot_py.registry.failures import refused, server_text, shown_url, status_text
from enroot_py.registry.transport import Transport

MAX_TOKEN_ANSWER = 1 << 20
_CLIENT_ID = "pyxis-enroot"
_ZERO_USER = "00000000-0000-0000-0000-000000000000"
"""The user that Azure's documentation gives its refresh tokens as passwords to."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PARAMETER = re.compile(r'([!#$%&\'*+.^_`|~0-9A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))')
_TOKEN68 = re.compile(r"[A-Za-z0-9._~+/-]+=*(?=\s*(,|$))")
# Answers of token servers that know only one of the two ways to ask.
_OTHER_METHOD = frozenset({404, 405, 501})


@dataclass(frozen=True, slots=True)
class Challenge:
    """One challenge of a WWW-Authenticate header.

    Attributes:
        scheme: in lower case: "basic", "bearer", …
        parameters: name in lower case to value.
    """

    scheme: str
    parameters: dict[str, str]


def parse_challenges(header: str) -> tuple[Challenge, ...]:
    """Parse a WWW-Authenticate header, or several that were joined by commas.

    What cannot be understood is passed over. Source: RFC 9110, 11.6.1.
    """
    challenges: list[Challenge] = []
    at = 0
    while at < len(header):
        if header[at] in ", \t":
            at += 1
        elif challenges and (parameter := _PARAMETER.match(header, at)):
            value = parameter[2] if parameter[3] is None else parameter[3]
            name = parameter[1].lower()
            challenges[-1].parameters.setdefault(name, re.sub(r"\\(.)", r"\1", value))
            at = parameter.end()
        elif token := _TOKEN.match(header, at):
            challenges.append(Challenge(token[0].lower(), {}))
            at = token.end()
            rest = header[at:].lstrip(" \t")
            if (token68 := _TOKEN68.match(rest)) and header[at : at + 1] in " \t":
                at = len(header) - len(rest) + token68.end()
        else:
            at += 1
    return tuple(challenges)


class Authenticator:
    """Gets, keeps and renews the right to use one repository at one endpoint.

    Args:
        endpoint: what is pulled from.
        transport: sends the token requests.
        user: login name asked for in the reference, possibly with `:PASSWORD`; "" for any.
        ask_password: asks a person when a login name is given and no password known.
        actions: what is to be allowed: "pull" or "pull,push".
    """

    def __init__(
        self,
        endpoint: Endpoint,
        transport: Transport,
        *,
        user: str,
        ask_password: PasswordPrompt,
        actions: str = "pull",
    ) -> None:
        self._endpoint = endpoint
        self._scope = f"repository:{endpoint.repository}:{actions}"
        self._follows_scope = actions == "pull"
        self._transport = transport
        self._settings = transport.settings
        self._user, _, self._password = user.partition(":")
        self._ask_password = ask_password
        self._lock = threading.Lock()
        self._authorization = ""
        self._credentials: Credentials | None = None
        self._searched: set[str] = set()
        self._secrets: set[str] = set()

    @property
    def authorization(self) -> str:
        """The Authorization header to send now; "" for none."""
        return self._authorization

    @property
    def account(self) -> str:
        """Who asks, for messages: never the secret."""
        if self._credentials is None:
            return "anonymously"
        return f"as {self._credentials.user} (credentials from {self._credentials.source})"

    def secrets(self) -> tuple[str, ...]:
        """Everything that must not be shown."""
        return tuple(sorted(self._secrets, key=len, reverse=True))

    def answer(self, exchange: Exchange, rejected: str) -> None:
        """Get a new authorization after a 401.

        Args:
            exchange: the refusal, its body unread; it came from the endpoint itself.
            rejected: the Authorization header that was sent with the request.

        Raises:
            AuthenticationError: if there is nothing left to try.
        """
        with self._lock:
            if self._authorization != rejected:
                exchange.close()  # another thread was refused as well, and has renewed it
                return
            challenges = parse_challenges(exchange.header("WWW-Authenticate"))
            said = self._said(exchange)
            by_scheme = {challenge.scheme: challenge for challenge in reversed(challenges)}
            if "bearer" in by_scheme:
                self._authorization = self._bearer(by_scheme["bearer"])
            elif "basic" in by_scheme:
                self._authorization = self._basic(rejected, said)
            else:
                raise self._unknown_challenge(challenges, said)

    def refusal(self, exchange: Exchange) -> RegistryError:
        """Explain a 401 or 403 that stands, and close the response."""
        said = self._said(exchange)
        return refused(
            exchange.status,
            self._endpoint.host,
            f"to give {self._endpoint.repository}",
            account=self.account,
            said=said,
            hint=self._refusal_hint(),
        )

    def _said(self, exchange: Exchange) -> str:
        kind = exchange.header("Content-Type")
        try:
            body = exchange.read(1 << 20)
        except RegistryError:
            return ""
        return server_text(body, kind, self.secrets())

    def _refusal_hint(self) -> str:
        path = self._settings.credentials_file
        host = self._endpoint.host
        if self._credentials is None:
            return (
                "it does not exist, or needs an account: put "
                f"'machine {host} login USER password SECRET' into {path}"
            )
        return f"check that the image exists and the account may read it (in {path} or a login)"

    def _unknown_challenge(
        self, challenges: tuple[Challenge, ...], said: str
    ) -> AuthenticationError:
        kinds = ", ".join(log.printable(challenge.scheme) for challenge in challenges)
        words = f": {said}" if said else ""
        if not kinds:
            return AuthenticationError(
                f"{self._endpoint.host} refuses {self._endpoint.repository} {self.account} "
                f"and does not say how to log in: {status_text(401)}{words}",
                hint=self._refusal_hint(),
            )
        return AuthenticationError(
            f"{self._endpoint.host} wants an unsupported kind of login: {kinds}{words}",
            hint="Basic and Bearer are supported",
        )

    def _find(self, realm_host: str = "") -> Credentials | None:
        """Look for an account, once per host, and say which one it is."""
        if self._credentials is None and realm_host not in self._searched:
            self._searched.add(realm_host)
            self._credentials = self._search(realm_host)
            if self._credentials:
                self._secrets.update(self._credentials.secrets())
                log.info(f"Authenticating with {self._endpoint.host} {self.account}")
        return self._credentials

    def _search(self, realm_host: str) -> Credentials | None:
        endpoint, user = self._endpoint, self._user
        if not endpoint.sends_credentials:
            return None
        if self._password:
            return Credentials(user, self._password, source="the image reference")
        found = find_credentials(self._settings, endpoint.host, endpoint.repository, user=user)
        if not found and realm_host:
            found = self._search_realm(realm_host)
        if not found and user:
            password = self._ask_password(endpoint.host, user)
            if not password:
                raise AuthenticationError(
                    f"No password for {user} at {endpoint.host}",
                    hint=f"put 'machine {endpoint.host} login {user} password SECRET' into "
                    f"{self._settings.credentials_file}",
                )
            found = Credentials(user, password, source="the prompt")
        return found

    def _search_realm(self, realm_host: str) -> Credentials | None:
        registry_name = urlsplit(f"//{self._endpoint.host}").hostname or ""
        realm_name = urlsplit(f"//{realm_host}").hostname or ""
        found = find_credentials(self._settings, realm_host, "", user=self._user)
        if not found or self._user or realm_belongs_to(realm_name, registry_name):
            return found
        log.warn(
            f"{self._endpoint.host} asks for a token of {realm_host}; the account for "
            f"{realm_host} is not used, because nothing shows that the two belong together"
        )
        return None

    def _basic(self, rejected: str, said: str) -> str:
        credentials = self._find()
        if not credentials or not credentials.password:
            words = f": {said}" if said else ""
            raise AuthenticationError(
                f"{self._endpoint.host} needs an account for {self._endpoint.repository}: "
                f"{status_text(401)}{words}",
                hint=self._refusal_hint(),
            )
        header = _basic_header(credentials)
        if header == rejected:
            raise refused(
                401,
                self._endpoint.host,
                f"to give {self._endpoint.repository}",
                account=self.account,
                said=said,
                hint=self._refusal_hint(),
            )
        return header

    def _bearer(self, challenge: Challenge) -> str:
        realm = challenge.parameters.get("realm", "")
        realm_host = self._check_realm(realm)
        credentials = self._find(realm_host)
        fields = [("service", challenge.parameters.get("service", ""))]
        scope = challenge.parameters.get("scope", "") if self._follows_scope else ""
        scope = scope or self._scope
        fields += [("scope", part) for part in scope.split()]
        exchange = self._ask_for_token(realm, [pair for pair in fields if pair[1]], credentials)
        if exchange.status in (401, 403) and credentials and not credentials.deliberate:
            # A login of another tool that has run out is no reason to refuse a public image.
            log.warn(f"{realm_host} refuses the login {self.account}; asking anonymously")
            exchange.close()
            self._credentials = None
            exchange = self._ask_for_token(realm, [pair for pair in fields if pair[1]], None)
        token = self._read_token(exchange, realm_host)
        self._secrets.add(token)
        return f"Bearer {token}"

    def _check_realm(self, realm: str) -> str:
        """Return host and port of the token server, if it may be talked to."""
        try:
            parts = urlsplit(realm)
            valid = bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        if not valid or parts.scheme not in ("http", "https"):
            raise AuthenticationError(
                f"{self._endpoint.host} names no token server that could be asked"
            )
        insecure = self._endpoint.scheme == "http" or always_http(self._settings)
        if parts.scheme == "http" and not insecure:
            raise AuthenticationError(
                f"{self._endpoint.host} names a token server on plain HTTP: {shown_url(realm)}",
                hint="credentials and tokens go over HTTPS only, unless ENROOT_ALLOW_HTTP=yes",
            )
        return parts.netloc.rpartition("@")[2].lower()

    def _ask_for_token(
        self, realm: str, fields: list[tuple[str, str]], credentials: Credentials | None
    ) -> Exchange:
        """Ask in the way that suits the account, and in the other one if that is unknown there."""
        if credentials is None:
            return self._get_token(realm, fields, None)
        if credentials.identity_token:
            exchange = self._post_token(realm, fields, credentials)
            if exchange.status not in _OTHER_METHOD:
                return exchange
            exchange.close()
            secret = credentials.identity_token
            return self._get_token(realm, fields, Credentials(credentials.user, secret))
        exchange = self._get_token(realm, fields, credentials)
        other = exchange.status in _OTHER_METHOD
        if other or (credentials.user == _ZERO_USER and exchange.status in (400, 401, 403)):
            exchange.close()
            return self._post_token(realm, fields, credentials)
        return exchange

    def _get_token(
        self, realm: str, fields: list[tuple[str, str]], credentials: Credentials | None
    ) -> Exchange:
        parts = urlsplit(realm)
        present = parse_qsl(parts.query, keep_blank_values=True)
        names = {name for name, _ in present}
        query = present + [pair for pair in fields if pair[0] not in names]
        if credentials:
            query.append(("account", credentials.user))
        host = parts.netloc.rpartition("@")[2]
        url = parts._replace(netloc=host, query=urlencode(query), fragment="").geturl()
        header = _basic_header(credentials) if credentials else ""
        return self._transport.request(url, authorization=header)

    def _post_token(
        self, realm: str, fields: list[tuple[str, str]], credentials: Credentials
    ) -> Exchange:
        form = {name: value for name, value in fields if name != "scope"}
        form["scope"] = " ".join(value for name, value in fields if name == "scope")
        form["client_id"] = _CLIENT_ID
        refresh = credentials.identity_token
        if not refresh and credentials.user == _ZERO_USER:
            refresh = credentials.password
        if refresh:
            form |= {"grant_type": "refresh_token", "refresh_token": refresh}
        else:
            form |= {
                "grant_type": "password",
                "username": credentials.user,
                "password": credentials.password,
            }
        return self._transport.request(realm, form=form)

    def _read_token(self, exchange: Exchange, realm_host: str) -> str:
        status, kind = exchange.status, exchange.header("Content-Type")
        body = exchange.read(MAX_TOKEN_ANSWER)
        if status >= 400:
            raise refused(
                status,
                realm_host,
                f"a token for {self._endpoint}",
                account=self.account,
                said=server_text(body, kind, self.secrets()),
                hint=self._refusal_hint(),
            )
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            document = None
        token = None
        if isinstance(document, dict):
            token = document.get("token") or document.get("access_token")
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise AuthenticationError(
                f"{realm_host} answers {status_text(status)} without a token for {self._endpoint}"
            )
        return token


def _basic_header(credentials: Credentials) -> str:
    pair = f"{credentials.user}:{credentials.password}".encode()
    return "Basic " + base64.b64encode(pair).decode()
