"""Image references: `docker://[USER@][REGISTRY#]IMAGE[:TAG][@DIGEST]` and its relatives. Pure.

Says where an image is; does not ask anybody whether it is there. Local sources (folders, archives)
have no reference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from enroot_py.errors import InvalidReferenceError
from enroot_py.image.digest import Digest, parse_digest
from enroot_py.log import printable

DOCKER_HUB = "registry-1.docker.io"
"""Host that serves Docker Hub's images; its other names are replaced by this one."""

HUB_ALIASES = frozenset({"docker.io", "index.docker.io", DOCKER_HUB})
REGISTRY_SCHEMES = ("docker", "oras")
DAEMON_SCHEMES = ("dockerd", "podman")

_MISSPELT = re.compile(r"^(docker:/)?/*")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_USER = re.compile(r"[A-Za-z0-9_.!~*\\'()%;:&=+$,\-/<>?@]+")
_PASSWORD = re.compile(r"(//[^:#]*):[^#]*@(?!sha)")
_HOST = re.compile(r"([a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?)(\.[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?)*")
_ADDRESS6 = re.compile(r"\[[0-9a-f:.]{2,45}\]")
_PATH = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DAEMON_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9/._:-]*(@sha256:[0-9a-f]{64})?")
# What may follow "@" and be meant as a digest, even if not a good one, and not as a host and port.
_DIGEST_START = re.compile(r"(sha[0-9]*|md5|blake[0-9a-z]*)([+._-][a-z0-9]+)*:", re.IGNORECASE)

_FORM = "expected docker://[USER@][REGISTRY#]IMAGE[:TAG][@DIGEST]"


@dataclass(frozen=True, slots=True)
class Reference:
    """Where an image is.

    Attributes:
        scheme: "docker", "oras", "dockerd" or "podman".
        user: login name given in the reference, or ""; a password may follow it after a colon.
        registry: host with its port if it has one, in lower case ("nvcr.io", "[::1]:5000"); ""
            for a daemon.
        repository: path of the image in the registry ("library/ubuntu"); for a daemon its whole
            name, tag and all.
        tag: "latest" where neither tag nor digest is given; "" for a daemon. Of no effect beside a
            digest.
        digest: the digest asked for, or None.
    """

    scheme: str
    user: str = field(repr=False)
    registry: str
    repository: str
    tag: str
    digest: Digest | None = None

    def canonical(self) -> str:
        """Return the reference in one spelling, without user: the same image, the same text.

        Source: enroot 4.1.2 src/docker.sh, docker::_prepare_layers(), its provenance URI.
        """
        if self.scheme in DAEMON_SCHEMES:
            return f"{self.scheme}://{self.repository}"
        return f"{self.scheme}://{self.registry}#{self.repository}{self._suffix(':')}"

    def pinned(self, digest: Digest) -> Reference:
        """Return the reference to the same repository by digest: no tag, no user."""
        return replace(self, user="", tag="", digest=digest)

    def selector(self) -> str:
        """Return what a registry is asked for: the digest where there is one, else the tag."""
        return str(self.digest) if self.digest else self.tag

    def __str__(self) -> str:
        """The image as people write it: `nvcr.io/nvidia/cuda:12.4`, for messages."""
        if self.scheme in DAEMON_SCHEMES:
            return self.repository
        host = "docker.io" if self.registry == DOCKER_HUB else self.registry
        return f"{host}/{self.repository}{self._suffix(':')}"

    def _suffix(self, mark: str) -> str:
        return f"@{self.digest}" if self.digest else mark + self.tag


def parse_reference(uri: str) -> Reference:
    """Parse the URI of an image in a registry or a container engine.

    The part before the first `/` is a registry if it holds a dot or a colon or is `localhost`;
    otherwise it is a name on Docker Hub, unless `#` divides it from the image. A digest wins over
    a tag.

    Raises:
        InvalidReferenceError: naming the part that is wrong.

    Source: enroot 4.1.2 src/docker.sh, docker::_parse_uri() and docker::daemon::import().
    """
    match = _SCHEME.fullmatch(uri)
    if not match:
        name = _MISSPELT.sub("", uri)
        raise InvalidReferenceError(
            f"Invalid image reference: {printable(uri)}: no scheme",
            hint=f"for an image in a registry: docker://{printable(name)}" if name else _FORM,
        )
    scheme, rest = match[1], match[2]
    if scheme in DAEMON_SCHEMES:
        return _parse_daemon_name(scheme, rest, uri)
    if scheme not in REGISTRY_SCHEMES:
        known = ", ".join(f"{name}://" for name in REGISTRY_SCHEMES + DAEMON_SCHEMES)
        raise InvalidReferenceError(
            f"Invalid image reference: {printable(uri)}: unknown scheme", hint=f"known are {known}"
        )
    rest, digest = _split_digest(rest, uri)
    user, at, rest = rest.rpartition("@")
    if at and not _USER.fullmatch(user):
        raise _invalid(uri, "user name")
    if _DIGEST_START.match(rest):
        raise _invalid(uri, "digest")
    registry, path = _split_registry(rest, uri)
    path, tag = _split_tag(path, uri)
    if registry == DOCKER_HUB and "/" not in path:
        path = "library/" + path
    _check_repository(path, uri)
    if digest:
        tag = ""
    elif not tag:
        tag = "latest"
    return Reference(scheme, user, registry, path, tag, digest)


def default_name(reference: Reference) -> str:
    """Return the container name that `load` gives when none is asked for.

    Source: enroot 4.1.2 src/docker.sh, docker::load() and docker::daemon::import().
    """
    if reference.scheme in DAEMON_SCHEMES:
        return reference.repository.replace("/", "+").replace(":", "+").replace("@", "+")
    path = reference.repository
    if reference.registry == DOCKER_HUB:
        path = path.removeprefix("library/")
    return f"{path.replace('/', '+')}+{reference.selector()}"


def default_filename(reference: Reference) -> str:
    """Return the file name that `import` gives when none is asked for, without a folder."""
    return default_name(reference) + ".sqsh"


def _invalid(uri: str, part: str, hint: str = _FORM) -> InvalidReferenceError:
    # Whoever writes USER:PASSWORD@ gets it hidden: messages end up in job logs.
    shown = _PASSWORD.sub(r"\1:***@", printable(uri[:1000]))
    return InvalidReferenceError(f"Invalid image reference: {shown}: {part}", hint=hint)


def _parse_daemon_name(scheme: str, name: str, uri: str) -> Reference:
    # The name becomes an argument of the engine's command: it cannot begin with a dash.
    if not _DAEMON_NAME.fullmatch(name):
        raise _invalid(uri, "image name", f"expected {scheme}://IMAGE[:TAG]")
    return Reference(scheme, "", "", name, "")


def _split_digest(rest: str, uri: str) -> tuple[str, Digest | None]:
    head, at, tail = rest.rpartition("@")
    if not at or not _DIGEST_START.match(tail):
        return rest, None
    try:
        return head, parse_digest(tail)
    except InvalidReferenceError as error:
        raise _invalid(uri, str(error), error.hint) from error


def _split_registry(rest: str, uri: str) -> tuple[str, str]:
    """Divide `REGISTRY#IMAGE`, `REGISTRY/IMAGE` or `IMAGE`; no registry means Docker Hub."""
    head, mark, path = rest.partition("#")
    if not mark:
        head, mark, path = rest.partition("/")
        if not mark or not ("." in head or ":" in head or head.lower() == "localhost"):
            return DOCKER_HUB, rest
    registry = head.lower()
    if registry in HUB_ALIASES:
        return DOCKER_HUB, path
    _check_registry(registry, uri)
    return registry, path


def _check_registry(registry: str, uri: str) -> None:
    if not registry.isascii():
        raise _invalid(uri, "registry", "write an internationalised host name in its xn-- form")
    host, colon, port = registry.rpartition(":")
    if not colon or registry.endswith("]"):
        host, port = registry, "443"
    if not port.isdigit() or not 0 < int(port[:6]) < 65536 or len(host) > 253:
        raise _invalid(uri, "registry", "expected HOST or HOST:PORT before the image")
    if not (_HOST.fullmatch(host) or _ADDRESS6.fullmatch(host)):
        raise _invalid(uri, "registry", "expected HOST or HOST:PORT before the image")


def _split_tag(path: str, uri: str) -> tuple[str, str]:
    head, slash, last = path.rpartition("/")
    name, colon, tag = last.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise _invalid(uri, "tag", "expected letters, digits, dots, dashes and underscores")
    return head + slash + name, tag


def _check_repository(path: str, uri: str) -> None:
    if path != path.lower():
        raise _invalid(uri, "image name", f"names are in lower case: {printable(path.lower())}")
    if len(path) > 255 or not _PATH.fullmatch(path):
        raise _invalid(uri, "image name")
