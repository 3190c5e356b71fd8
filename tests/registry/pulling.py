"""Pulls from a FakeRegistry with settings that see nothing of the machine's own configuration."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from enroot_py import log
from enroot_py.errors import DigestMismatchError
from enroot_py.image.platform import parse_platform
from enroot_py.image.reference import parse_reference
from enroot_py.registry.client import RegistryClient, ResolvedImage
from enroot_py.registry.transport import Transport
from enroot_py.settings import Settings, load_settings


class Target:
    """A blob in memory that is hashed by whoever writes it.

    Attributes:
        data: what was written since the last restart.
        restarts: how often everything was forgotten.
    """

    hashed = False

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.restarts = 0

    @property
    def offset(self) -> int:
        return len(self.data)

    def write(self, data: bytes, /) -> None:
        self.data += data

    def restart(self) -> None:
        self.data.clear()
        self.restarts += 1

    def check(self) -> None:
        """The writer checks."""


class HashedTarget(Target):
    """A blob in memory that knows what it must become, and may hold the start of it already."""

    hashed = True

    def __init__(self, expected: bytes, data: bytes = b"") -> None:
        super().__init__(data)
        self.expected = expected

    def check(self) -> None:
        if self.data != self.expected:
            raise DigestMismatchError("not the blob")


@dataclass
class Pull:
    """Everything about one pull.

    Attributes:
        settings: to pull with.
        arch: which image.
        pauses: seconds slept between tries; nothing really sleeps.
        messages: (level, text) of the log.
        layers: the blobs, base layer first.
        asked: (host, user) that a password was asked for.
        password: the answer to that.
    """

    settings: Settings
    arch: str = "x86_64"
    pauses: list[float] = field(default_factory=list)
    messages: list[tuple[str, str]] = field(default_factory=list)
    layers: list[bytes] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    password: str = ""
    idle_timeout: float = 60.0
    header_timeout: float = 60.0

    def run(self, uri: str) -> ResolvedImage:
        """Pull the whole image."""
        with self.open(uri) as client:
            image = client.get_manifest(parse_platform(self.arch))
            for layer in image.manifest.layers:
                target = Target()
                client.download_blob(layer, target)
                assert "sha256:" + hashlib.sha256(target.data).hexdigest() == str(layer.digest)
                self.layers.append(bytes(target.data))
        return image

    def open(self, uri: str) -> RegistryClient:
        """A client whose transport does not sleep; closed by `with`."""
        transport = Transport(
            self.settings,
            sleep=self.pauses.append,
            idle_timeout=self.idle_timeout,
            header_timeout=self.header_timeout,
        )
        log.set_sink(lambda level, text: self.messages.append((level, text)))
        client = RegistryClient(
            parse_reference(uri), self.settings, transport=transport, ask_password=self._ask
        )
        client._owns_transport = True
        return client

    def _ask(self, host: str, user: str) -> str:
        self.asked.append((host, user))
        return self.password

    def text(self) -> str:
        """Every message, for searching."""
        return "\n".join(text for _, text in self.messages)


def make_settings(folder: Path, **environ: str) -> Settings:
    """Settings with every folder beneath `folder`; plain HTTP unless told otherwise."""
    values = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder / "home"),
        "ENROOT_SYSCONF_PATH": str(folder / "etc"),
        "ENROOT_CONFIG_PATH": str(folder / "config"),
        "ENROOT_CACHE_PATH": str(folder / "cache"),
        "ENROOT_DATA_PATH": str(folder / "data"),
        "ENROOT_RUNTIME_PATH": str(folder / "run"),
        "ENROOT_TEMP_PATH": str(folder / "tmp"),
        "ENROOT_ALLOW_HTTP": "yes",
        **environ,
    }
    return load_settings(values)


def write_credentials(settings: Settings, *lines: str, mode: int = 0o600) -> Path:
    """Write the credentials file and return its path."""
    path = Path(settings.credentials_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines))
    path.chmod(mode)
    return path
