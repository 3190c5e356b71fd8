"""Which account is used where: the credentials file, container tools' logins, a prompt.

An account belongs to the host that it is listed under. It is never tried on another one, with the
exceptions that `realm_belongs_to` lists (docs/adr/0011-credentials-and-realms.md).
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from enroot_py import log
from enroot_py.errors import AuthenticationError
from enroot_py.image.reference import DOCKER_HUB, HUB_ALIASES
from enroot_py.registry.accounts.netrc import read_credentials_file, read_small_file
from enroot_py.registry.accounts.password import find_password, run_helper
from enroot_py.settings import Settings

PasswordPrompt = Callable[[str, str], str]
"""Asks a person: `(host, user)` to the password, "" if nobody answers."""

_HUB_REALM = "auth.docker.io"
_KNOWN_REALMS = {_HUB_REALM: DOCKER_HUB, "authn.nvidia.com": "nvcr.io"}
"""Token servers whose accounts serve one registry of another name, and no other registry."""

_HELPER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_TOKEN_USER = "<token>"


@dataclass(frozen=True, slots=True)
class Credentials:
    """One account and where it was found.

    Attributes:
        user: login name.
        password: may be empty beside an identity token.
        identity_token: an OAuth2 refresh token, or "".
        source: for messages: "/home/me/.config/enroot/.credentials, machine nvcr.io".
        deliberate: the user wrote it for this program; a login of another tool is not.
    """

    user: str
    password: str = field(repr=False)
    identity_token: str = field(default="", repr=False)
    source: str = ""
    deliberate: bool = True

    def secrets(self) -> tuple[str, ...]:
        """Everything that must not be shown."""
        pair = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return tuple(text for text in (self.password, self.identity_token, pair) if text)


def find_credentials(
    settings: Settings, registry: str, repository: str, *, user: str = ""
) -> Credentials | None:
    """Return the account for a registry, None if there is none.

    enroot's credentials file first, `host:port` before the bare host; then the logins of docker,
    podman and skopeo.

    Args:
        settings: says where the files are.
        registry: host, with its port if it has one.
        repository: some tools keep accounts for parts of a registry.
        user: only this login will do; "" for any.

    Raises:
        AuthenticationError: if an entry is there but its password cannot be had.
    """
    found = _from_credentials_file(settings, registry, user)
    if found:
        return found
    return next(_from_logins(settings.environment, registry, repository, user), None)


def realm_belongs_to(realm: str, registry: str) -> bool:
    """Tell whether accounts of the host `realm` may be used for pulling from `registry`.

    A registry names its token server, and gets the token: were any account of that server used,
    a hostile registry could have tokens made for the private images of another.

    Args:
        realm: host of the token server, without port.
        registry: host of the registry, without port.
    """
    if realm in _KNOWN_REALMS:
        return _KNOWN_REALMS[realm] == registry
    if realm == registry:
        return True
    # Whoever names hosts below a domain owns it, so a parent vouches for its child and the other
    # way round; two children of one domain may be strangers (a.azurecr.io and b.azurecr.io).
    shorter, longer = sorted((realm, registry), key=len)
    return "." in shorter and longer.endswith("." + shorter) and not shorter[-1].isdigit()


def ask_on_terminal(host: str, user: str) -> str:
    """Ask for a password on the terminal; "" where there is none."""
    if not sys.stdin or not sys.stdin.isatty():
        return ""
    import getpass

    try:
        return getpass.getpass(f"Password of {log.printable(user)} at {host}: ")
    except (EOFError, OSError):
        return ""


def host_names(registry: str) -> tuple[str, ...]:
    """Return the names an account for `registry` may be listed under, best first."""
    host, port = split_port(registry)
    names = [registry, host] if port else [registry]
    if host in HUB_ALIASES:
        names += sorted(HUB_ALIASES - {host})
    return tuple(dict.fromkeys(names))


def split_port(host: str) -> tuple[str, str]:
    """Divide `HOST[:PORT]` into host and port ("" without one); brackets of IPv6 stay."""
    head, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        return host, ""
    return head, port


def _from_credentials_file(settings: Settings, registry: str, user: str) -> Credentials | None:
    file = read_credentials_file(settings.credentials_file)
    for name in host_names(registry):
        for entry in file.entries:
            if entry.machine == name and user in ("", entry.login):
                password = find_password(entry, file, settings.environment)
                return Credentials(entry.login, password, source=f"{file.path}, machine {name}")
    return None


def _from_logins(
    environ: Mapping[str, str], registry: str, repository: str, user: str
) -> Iterator[Credentials]:
    for path in _login_files(environ):
        document = _read_login_file(path)
        for found in _accounts(document, path, environ, registry, repository):
            if user in ("", found.user):
                yield found


def _login_files(environ: Mapping[str, str]) -> list[str]:
    """Where docker, podman and skopeo keep their logins.

    Source: containers-auth.json(5); docker login's documentation.
    """
    home = environ.get("HOME", "/")
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    docker = environ.get("DOCKER_CONFIG") or os.path.join(home, ".docker")
    paths = [environ.get("REGISTRY_AUTH_FILE", "")]
    if environ.get("XDG_RUNTIME_DIR"):
        paths.append(os.path.join(environ["XDG_RUNTIME_DIR"], "containers/auth.json"))
    paths.append(os.path.join(config, "containers/auth.json"))
    paths.append(os.path.join(docker, "config.json"))
    return [path for path in paths if path]


def _read_login_file(path: str) -> dict[str, object]:
    """Read another tool's file; what cannot be used is that tool's problem, and only warned of."""
    try:
        data, found = read_small_file(path)
    except OSError:
        return {}
    if found.st_uid not in (os.geteuid(), 0):
        return {}
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        log.warn_once(path, f"{path} is not valid JSON and is not used")
        return {}
    if not isinstance(document, dict):
        return {}
    if found.st_mode & 0o022:
        # Others could name a program to be run; an account is no worse for having been readable.
        document.pop("credHelpers", None)
        document.pop("credsStore", None)
    return document


def _accounts(
    document: dict[str, object],
    path: str,
    environ: Mapping[str, str],
    registry: str,
    repository: str,
) -> Iterator[Credentials]:
    names = host_names(registry)
    helpers = document.get("credHelpers")
    store = document.get("credsStore")
    accounts = document.get("auths")
    listed = {_login_key(key): value for key, value in _members(accounts)}
    per_host = {_login_key(key): value for key, value in _members(helpers)}
    for name in names:
        helper = per_host.get(name) or (store if name in listed else None)
        if isinstance(helper, str) and _HELPER_NAME.fullmatch(helper):
            found = _ask_helper(helper, _stored_key(accounts, name), environ)
            if found:
                yield found
    for name in names:
        parts = repository.split("/")
        for count in range(len(parts), -1, -1):
            account = listed.get("/".join([name, *parts[:count]]))
            found = _decode_account(account, f"{path}, {name}")
            if found:
                yield found


def _members(value: object) -> list[tuple[str, object]]:
    return list(value.items()) if isinstance(value, dict) else []


def _login_key(key: str) -> str:
    """`https://index.docker.io/v1/` and the like to a host, or a host and a path."""
    key = re.sub(r"^https?://", "", key)
    return re.sub(r"/v[12]/?$", "", key).rstrip("/").lower()


def _stored_key(accounts: object, name: str) -> str:
    """How docker spelled a host when it logged in: its helpers want that very text."""
    for key, _ in _members(accounts):
        if _login_key(key) == name:
            return key
    return name


def _decode_account(account: object, source: str) -> Credentials | None:
    if not isinstance(account, dict):
        return None
    token = account.get("identitytoken")
    identity = token if isinstance(token, str) else ""
    user, password = account.get("username"), account.get("password")
    encoded = account.get("auth")
    if isinstance(encoded, str) and encoded:
        try:
            decoded = base64.b64decode(encoded).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError):
            return None
        user, _, password = decoded.rstrip("\0").partition(":")
    if not isinstance(user, str) or not isinstance(password, str):
        user = password = ""
    if not (user and password) and not identity:
        return None
    return Credentials(user or _TOKEN_USER, password, identity, source, deliberate=False)


def _ask_helper(name: str, key: str, environ: Mapping[str, str]) -> Credentials | None:
    """Run `docker-credential-NAME get`. Source: docker-credential-helpers, README.md."""
    program = f"docker-credential-{name}"
    try:
        output = run_helper([program, "get"], environ, where=program, request=key.encode())
        answer = json.loads(output)
    except AuthenticationError as error:
        log.warn_once(program, str(error))
        return None
    except (ValueError, RecursionError):
        log.warn_once(program, f"{program} printed something other than JSON")
        return None
    if not isinstance(answer, dict):
        return None
    user, secret = answer.get("Username"), answer.get("Secret")
    if not isinstance(user, str) or not isinstance(secret, str) or not secret:
        return None
    if user == _TOKEN_USER:
        return Credentials(user, "", secret, source=program, deliberate=False)
    return Credentials(user, secret, source=program, deliberate=False)
