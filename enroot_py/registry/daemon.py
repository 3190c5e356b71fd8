"""Images of a local container engine, docker or podman: their config and their file system.

Speaks with the engine through its command, as the original does, or through its socket where the
command is missing. The file system comes as one archive straight from the engine, so that nothing
is stored twice on the way.

Source: enroot 4.1.2 src/docker.sh, docker::daemon::import(); Docker Engine API 1.41.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import secrets
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from types import TracebackType
from typing import IO, BinaryIO, Protocol
from urllib.parse import quote, urlencode

from enroot_py import log
from enroot_py.errors import NotFoundError, RegistryError, UnsupportedError
from enroot_py.image.config import MAX_CONFIG_SIZE, ImageConfig, parse_inspected_config
from enroot_py.image.platform import Platform, parse_platform
from enroot_py.image.reference import Reference
from enroot_py.log import printable
from enroot_py.settings import Settings

PROGRAMS = {"dockerd": "docker", "podman": "podman"}
"""Scheme of a reference to the engine's command."""

_NO_COMMAND = "enroot"
"""Stands for the command of a container that is never started; engines insist on one."""

_MAX_MESSAGE = 300


class Engine(Protocol):
    """What is asked of a container engine."""

    def create(self, name: str, image: str, platform: Platform | None) -> None:
        """Make a container of an image, fetching the image if it is not there."""
        ...

    def inspect(self, image: str) -> bytes:
        """Return JSON about an image."""
        ...

    def export(self, name: str) -> BinaryIO:
        """Return a container's file system as a tar archive; whoever reads it closes it."""
        ...

    def remove(self, name: str) -> None:
        """Remove a container; quietly, if there is none."""
        ...


class DaemonImage:
    """One image of an engine. A context manager: it keeps a container for as long.

    Args:
        reference: scheme "dockerd" or "podman".
        settings: their environment is the engine's.
        platform: what the image is to run on; asked for if it is not the host's.

    Attributes:
        config: of the image.

    Raises:
        UnsupportedError: if there is no such engine here.
        NotFoundError: if there is no such image.
        RegistryError: if the engine fails.
    """

    def __init__(self, reference: Reference, settings: Settings, platform: Platform) -> None:
        self._engine = find_engine(reference.scheme, settings.environment)
        self._name = f"enroot-{os.getpid()}-{secrets.token_hex(4)}"
        image = reference.repository
        other = platform.architecture != parse_platform(os.uname().machine).architecture
        log.info(f"Fetching the image {image}")
        try:
            self._engine.create(self._name, image, platform if other else None)
            self.config: ImageConfig = parse_inspected_config(self._engine.inspect(image))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> DaemonImage:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the container."""
        self._engine.remove(self._name)

    def open(self) -> BinaryIO:
        """Return the image's file system as a tar archive; it can be opened several times.

        Reading raises RegistryError if the engine fails on the way.
        """
        return self._engine.export(self._name)


def find_engine(scheme: str, environ: Mapping[str, str]) -> Engine:
    """Return the engine of a scheme: its command if it is installed, else its socket.

    Raises:
        UnsupportedError: if neither is there.
    """
    program = shutil.which(PROGRAMS[scheme], path=environ.get("PATH"))
    if program:
        return CommandEngine(program, environ)
    for path in _sockets(scheme, environ):
        try:
            if stat.S_ISSOCK(os.stat(path).st_mode):
                return SocketEngine(path)
        except OSError:
            continue
    raise UnsupportedError(
        f"Neither the command {PROGRAMS[scheme]} nor its socket is here",
        hint=f"install {PROGRAMS[scheme]}, or import from a registry: docker://IMAGE",
    )


def _sockets(scheme: str, environ: Mapping[str, str]) -> list[str]:
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    if scheme == "dockerd":
        named = environ.get("DOCKER_HOST", "")
        usual = [f"{runtime}/docker.sock", "/run/docker.sock", "/var/run/docker.sock"]
    else:
        named = environ.get("CONTAINER_HOST", "")
        usual = [f"{runtime}/podman/podman.sock", "/run/podman/podman.sock"]
    if named:
        return [named.removeprefix("unix://")] if named.startswith("unix://") else []
    return usual


class CommandEngine:
    """An engine that is spoken to through its command.

    Args:
        program: path of the command.
        environ: its whole environment.
    """

    def __init__(self, program: str, environ: Mapping[str, str]) -> None:
        self._program = program
        self._environ = dict(environ)
        self._shown = os.path.basename(program)

    def create(self, name: str, image: str, platform: Platform | None) -> None:
        """Make a container; see Engine."""
        options = ["--platform", str(platform)] if platform else []
        self._run(["create", "--name", name, *options, image, _NO_COMMAND], image)

    def inspect(self, image: str) -> bytes:
        """Return JSON about an image; see Engine."""
        return self._run(["inspect", "--type", "image", image], image)

    def export(self, name: str) -> BinaryIO:
        """Return a container's file system; see Engine."""
        errors = tempfile.TemporaryFile()
        process = subprocess.Popen(
            [self._program, "export", name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=self._environ,
        )
        return io.BufferedReader(_CommandOutput(process, errors, f"{self._shown} export"), 1 << 20)

    def remove(self, name: str) -> None:
        """Remove a container; see Engine."""
        subprocess.run(
            [self._program, "rm", "-f", "-v", name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environ,
            check=False,
        )

    def _run(self, words: list[str], image: str) -> bytes:
        # Warnings on standard error are no part of the answer.
        done = subprocess.run(
            [self._program, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=self._environ,
            check=False,
        )
        if done.returncode:
            raise _engine_error(self._shown, words[0], image, _last_line(done.stderr))
        if len(done.stdout) > MAX_CONFIG_SIZE:
            raise RegistryError(f"{self._shown} {words[0]} printed too much")
        return done.stdout


class _CommandOutput(io.RawIOBase):
    """Standard output of a command, whose failure is an error and not just an end."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes], what: str) -> None:
        self._process = process
        self._errors = errors
        self._what = what

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        assert self._process.stdout
        count = os.readv(self._process.stdout.fileno(), [buffer])
        if not count and self._process.wait():
            self._errors.seek(0)
            raise RegistryError(f"{self._what} failed: {_last_line(self._errors.read(1 << 16))}")
        return count

    def close(self) -> None:
        if not self.closed:
            assert self._process.stdout
            self._process.stdout.close()
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            self._errors.close()
        super().close()


class SocketEngine:
    """An engine that is spoken to through its socket.

    Args:
        path: of the socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def create(self, name: str, image: str, platform: Platform | None) -> None:
        """Make a container; see Engine."""
        fields = {"name": name, **({"platform": str(platform)} if platform else {})}
        path = f"/containers/create?{urlencode(fields)}"
        body = json.dumps({"Image": image, "Cmd": [_NO_COMMAND]}).encode()
        status, text = self._request("POST", path, body)
        if status == 404:
            self._pull(image, platform)
            status, text = self._request("POST", path, body)
        self._check(status, text, "create", image)

    def _pull(self, image: str, platform: Platform | None) -> None:
        tagged = ":" in image.rpartition("/")[2] or "@" in image
        fields = {"fromImage": image if tagged else f"{image}:latest"}
        if platform:
            fields["platform"] = str(platform)
        status, text = self._request("POST", f"/images/create?{urlencode(fields)}", b"")
        self._check(status, text, "pull", image)
        for line in text.splitlines():
            # The status was sent before anything could go wrong.
            message = _message(line, "error")
            if message:
                raise _engine_error(self._path, "pull", image, message)

    def inspect(self, image: str) -> bytes:
        """Return JSON about an image; see Engine."""
        status, text = self._request("GET", f"/images/{quote(image, safe='/:@')}/json")
        self._check(status, text, "inspect", image)
        return text

    def export(self, name: str) -> BinaryIO:
        """Return a container's file system; see Engine."""
        connection = _SocketConnection(self._path)
        try:
            connection.request("GET", f"/containers/{name}/export")
            response = connection.getresponse()
            if response.status != 200:
                self._check(response.status, response.read(1 << 16), "export", name)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error
        except BaseException:
            connection.close()
            raise
        return io.BufferedReader(_SocketOutput(connection, response, self._path), 1 << 20)

    def remove(self, name: str) -> None:
        """Remove a container; see Engine."""
        try:
            self._request("DELETE", f"/containers/{name}?force=true&v=true")
        except RegistryError:
            pass  # the engine went away, and what brought us here says so already

    def _request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = _SocketConnection(self._path)
        headers = {"Content-Type": "application/json"} if body else {}
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read(MAX_CONFIG_SIZE + 1)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()
        if len(text) > MAX_CONFIG_SIZE:
            raise RegistryError(f"{self._path} answered too much to {method} {path}")
        return response.status, text

    def _unreachable(self, error: OSError | http.client.HTTPException) -> RegistryError:
        reason = getattr(error, "strerror", None) or str(error)
        return RegistryError(
            f"Cannot speak with {self._path}: {printable(reason)}",
            hint="is the engine running, and may you use its socket?",
        )

    def _check(self, status: int, text: bytes, what: str, image: str) -> None:
        if status >= 300:
            message = _message(text, "message") or f"status {status}"
            raise _engine_error(self._path, what, image, message, missing=status == 404)


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


class _SocketOutput(io.RawIOBase):
    """The body of a response, with the connection that it comes over."""

    def __init__(
        self, connection: _SocketConnection, response: http.client.HTTPResponse, path: str
    ) -> None:
        self._connection = connection
        self._response = response
        self._path = path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            count = self._response.readinto(buffer)
        except (OSError, http.client.HTTPException) as error:
            raise RegistryError(f"{self._path} broke off: {printable(str(error))}") from error
        if not count and self._response.length:
            raise RegistryError(f"{self._path} broke off: {self._response.length} bytes missing")
        return count

    def close(self) -> None:
        if not self.closed:
            self._connection.close()
        super().close()


def _engine_error(
    engine: str, what: str, image: str, message: str, *, missing: bool = False
) -> RegistryError | NotFoundError:
    text = f"{engine} cannot {what} {printable(image)}: {message}"
    lowered = message.lower()
    if missing or "no such image" in lowered or "not found" in lowered or "unknown" in lowered:
        return NotFoundError(text, hint="list its images: docker images, or podman images")
    return RegistryError(text)


def _last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return printable(lines[-1][-_MAX_MESSAGE:]) if lines else "no reason given"


def _message(text: bytes, key: str) -> str:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    message = document.get(key) if isinstance(document, dict) else None
    return printable(message[:_MAX_MESSAGE]) if isinstance(message, str) else ""
