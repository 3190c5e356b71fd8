"""Where a registry's images are really fetched from: its own host, and mirrors before it.

    ENROOT_MIRRORS="docker.io=mirror.example:5000 nvcr.io=cache.example/nvidia,other.example"
    ENROOT_MIRRORS=/etc/enroot/mirrors            # the same words, any number of lines, # comments

Without the variable, `mirrors` in the user's and then in the system's configuration folder is read.
A mirror may be `http://…`, which needs no ENROOT_ALLOW_HTTP and never gets credentials then.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from enroot_py.errors import InvalidReferenceError, SettingsError
from enroot_py.image.reference import DOCKER_HUB, HUB_ALIASES, Reference, parse_reference
from enroot_py.log import printable
from enroot_py.settings import Settings

MIRRORS_FILE = "mirrors"
_MAX_FILE_SIZE = 1 << 20
_MIRROR = re.compile(r"(?:(https?)://)?([^/]+)(?:/(.*?))?/?")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One host that serves a repository.

    Attributes:
        scheme: "https" or "http".
        host: host, with its port if it has one.
        repository: the repository's name there.
        mirror: it is not the registry that the reference names.
        sends_credentials: accounts may be used here.
    """

    scheme: str
    host: str
    repository: str
    mirror: bool = False
    sends_credentials: bool = True

    def url(self, kind: str, name: str) -> str:
        """Return the URL of a manifest or blob: `kind` is "manifests", "blobs" or "tags"."""
        return f"{self.scheme}://{self.host}/v2/{self.repository}/{kind}/{name}"

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}"


def find_endpoints(reference: Reference, settings: Settings) -> tuple[Endpoint, ...]:
    """Return where to look for an image, in order; the registry itself comes last.

    Raises:
        SettingsError: if the mirrors cannot be read or understood.
    """
    scheme = "http" if always_http(settings) else "https"
    endpoints = []
    for text in load_mirrors(settings).get(reference.registry, ()):
        match = _MIRROR.fullmatch(text)
        assert match  # load_mirrors has checked it
        mirror_scheme, host, prefix = match.groups()
        repository = f"{prefix}/{reference.repository}" if prefix else reference.repository
        chosen = mirror_scheme or scheme
        endpoints.append(
            Endpoint(
                scheme=chosen,
                host=host.lower(),
                repository=repository,
                mirror=True,
                sends_credentials=chosen == "https" or always_http(settings),
            )
        )
    endpoints.append(Endpoint(scheme, reference.registry, reference.repository))
    return tuple(endpoints)


def always_http(settings: Settings) -> bool:
    """Tell whether registries are spoken to over plain HTTP."""
    return settings.allow_http and not _only_redirects(settings)


def redirects_to_http(settings: Settings) -> bool:
    """Tell whether a registry may redirect to plain HTTP (`ENROOT_ALLOW_HTTP=redirects`)."""
    return settings.allow_http


def _only_redirects(settings: Settings) -> bool:
    return settings.environment.get("ENROOT_ALLOW_HTTP", "").lower() == "redirects"


def load_mirrors(settings: Settings) -> dict[str, tuple[str, ...]]:
    """Return the mirrors of each registry, in order of preference.

    Raises:
        SettingsError: naming file and line.
    """
    text, origin = settings.mirrors, "ENROOT_MIRRORS"
    if text.startswith("/"):
        origin = text
        text = _read_file(origin, required=True)
    elif not text:
        for folder in (settings.config_path, settings.sysconf_path):
            origin = os.path.join(folder, MIRRORS_FILE)
            text = _read_file(origin, required=False)
            if text:
                break
    return _parse_mirrors(text, origin)


def _read_file(path: str, *, required: bool) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_FILE_SIZE)
    except (FileNotFoundError, NotADirectoryError) as error:
        if not required:
            return ""
        raise SettingsError(f"No such file: {path}", hint="ENROOT_MIRRORS names it") from error
    except OSError as error:
        raise SettingsError(f"Cannot read {path}: {error.strerror}") from error


def _parse_mirrors(text: str, origin: str) -> dict[str, tuple[str, ...]]:
    mirrors: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for word in line.partition("#")[0].replace(";", " ").split():
            registry, equals, places = word.partition("=")
            where = f"{origin}, line {number}" if origin.startswith("/") else origin
            registry = registry.lower()
            if registry in HUB_ALIASES:
                registry = DOCKER_HUB
            listed = tuple(place for place in places.split(",") if place)
            if not equals or not registry or not listed:
                raise _malformed(word, where)
            for place in listed:
                _check_mirror(place, word, where)
            mirrors[registry] = mirrors.get(registry, ()) + listed
    return mirrors


def _check_mirror(place: str, word: str, where: str) -> None:
    match = _MIRROR.fullmatch(place)
    if not match or "@" in place or "#" in place:
        raise _malformed(word, where)
    prefix = f"{match[3]}/" if match[3] else ""
    try:
        # What can be a reference's registry and repository can be a mirror's.
        parse_reference(f"docker://{match[2]}#{prefix}x")
    except InvalidReferenceError as error:
        raise _malformed(word, where) from error


def _malformed(word: str, where: str) -> SettingsError:
    return SettingsError(
        f"Invalid mirror in {where}: {printable(word)}",
        hint="expected REGISTRY=HOST[:PORT][/PREFIX][,HOST…], e.g. docker.io=mirror.example:5000",
    )
