"""Images of container engines: by command and by socket, of engines that fail and of a real one."""

from __future__ import annotations

import io
import json
import os
import socketserver
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from enroot_py.errors import EnrootError, NotFoundError, RegistryError, UnsupportedError
from enroot_py.image.platform import parse_platform
from enroot_py.image.reference import parse_reference
from enroot_py.registry.daemon import CommandEngine, DaemonImage, SocketEngine, find_engine
from tests.registry.images import ImageStore, Layer, directory, file, symlink, tar_bytes
from tests.registry.podman_engine import Podman
from tests.registry.pulling import make_settings

HOST = os.uname().machine
ENTRIES = [directory("etc"), file("etc/a", b"x" * 300_000), symlink("etc/b", "a")]
INSPECTED = [{"Architecture": "amd64", "Os": "linux", "Config": {"Env": ["A=b"], "Cmd": None}}]

FAKE = """#!/bin/sh
# A command of an engine: notes its arguments and answers from files beside it.
echo "$*" >>"{folder}/calls"
echo "WARNING: a new version is available; see https://example" >&2
case $1 in
create) {create} ;;
inspect) {inspect} ;;
export) {export} ;;
rm) ;;
*) exit 99 ;;
esac
"""


def fake_engine(folder: Path, name: str = "docker", **answers: str) -> dict[str, str]:
    """Write a fake engine and return the environment that finds it."""
    (folder / "rootfs.tar").write_bytes(tar_bytes(ENTRIES))
    (folder / "inspect.json").write_text(json.dumps(INSPECTED))
    usual = {
        "create": "echo 0123abc",
        "inspect": f"cat {folder}/inspect.json",
        "export": f"cat {folder}/rootfs.tar",
    }
    programs = folder / "bin"
    programs.mkdir()
    (programs / name).write_text(FAKE.format(folder=folder, **{**usual, **answers}))
    (programs / name).chmod(0o755)
    return {"PATH": f"{programs}:/usr/bin:/bin"}


def open_image(folder: Path, uri: str, arch: str = HOST, **environ: str) -> DaemonImage:
    settings = make_settings(folder, **environ)
    return DaemonImage(parse_reference(uri), settings, parse_platform(arch))


def read_names(image: DaemonImage) -> list[str]:
    with image.open() as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        return [member.name for member in archive]


def test_a_command_is_asked_as_the_original_asks_it(tmp_path: Path) -> None:
    environ = fake_engine(tmp_path)
    with open_image(tmp_path, "dockerd://Host/img:1", **environ) as image:
        assert image.config.env == ("A=b",) and image.config.cmd == ()
        assert read_names(image) == ["etc", "etc/a", "etc/b"]
        assert read_names(image) == ["etc", "etc/a", "etc/b"]
    calls = (tmp_path / "calls").read_text().splitlines()
    name = calls[0].split()[2]
    assert calls == [
        f"create --name {name} Host/img:1 enroot",
        "inspect --type image Host/img:1",
        f"export {name}",
        f"export {name}",
        f"rm -f -v {name}",
    ]


def test_another_platform_is_asked_for_by_name(tmp_path: Path) -> None:
    environ = fake_engine(tmp_path, "podman")
    with open_image(tmp_path, "podman://img", "s390x", **environ):
        pass
    assert "--platform linux/s390x" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize(
    ("answers", "error", "words"),
    [
        (
            {"create": "echo 'Error: No such image: img' >&2; exit 1"},
            NotFoundError,
            "No such image",
        ),
        (
            {"create": "echo cannot connect >&2; exit 1"},
            RegistryError,
            "create img: cannot connect",
        ),
        ({"create": "printf 'a\\033[2J' >&2; exit 1"}, RegistryError, r"a\\x1b\[2J"),
        ({"create": "exit 1"}, RegistryError, "docker cannot create"),
        ({"inspect": "exit 1"}, RegistryError, "docker cannot inspect"),
        ({"inspect": "echo junk"}, EnrootError, "not valid JSON"),
        ({"inspect": "echo '[]'"}, EnrootError, "not one JSON object"),
        ({"inspect": "cat /dev/zero | head -c 20000000"}, EnrootError, "too much"),
    ],
)
def test_an_engine_that_fails_is_named_and_cleaned_up_after(
    tmp_path: Path, answers: dict[str, str], error: type[EnrootError], words: str
) -> None:
    environ = fake_engine(tmp_path, **answers)
    with pytest.raises(error, match=words) as caught:
        open_image(tmp_path, "dockerd://img", **environ)
    assert str(caught.value).isprintable()
    assert (tmp_path / "calls").read_text().splitlines()[-1].startswith("rm -f -v enroot-")


@pytest.mark.parametrize(
    "export", ["cat {tar}; echo broken >&2; exit 3", "head -c 5000 {tar}; echo broken >&2; exit 3"]
)
def test_an_export_that_fails_is_an_error_even_after_the_last_byte(
    tmp_path: Path, export: str
) -> None:
    environ = fake_engine(tmp_path, export=export.format(tar=tmp_path / "rootfs.tar"))
    with (
        open_image(tmp_path, "dockerd://img", **environ) as image,
        image.open() as stream,
        pytest.raises(RegistryError, match="export failed: broken"),
    ):
        while stream.read(65536):
            pass


def test_an_export_that_is_not_read_to_its_end_is_ended(tmp_path: Path) -> None:
    environ = fake_engine(tmp_path, export="exec yes")
    with open_image(tmp_path, "dockerd://img", **environ) as image:
        stream = image.open()
        assert stream.read(10) == b"y\ny\ny\ny\ny\n"
        stream.close()
        stream.close()


@pytest.mark.parametrize("scheme", ["dockerd", "podman"])
def test_without_an_engine_it_is_said_what_is_missing(tmp_path: Path, scheme: str) -> None:
    environ = {"PATH": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    environ |= {"DOCKER_HOST": "tcp://127.0.0.1:1", "CONTAINER_HOST": f"unix://{tmp_path}/none"}
    with pytest.raises(UnsupportedError, match=scheme.removesuffix("d")):
        open_image(tmp_path, f"{scheme}://img", **environ)


def test_the_command_comes_before_the_socket(tmp_path: Path) -> None:
    environ = fake_engine(tmp_path)
    assert isinstance(find_engine("dockerd", environ), CommandEngine)


class ApiHandler(BaseHTTPRequestHandler):
    """The few requests of the Docker Engine API that matter; images by name in the server."""

    server: ApiServer

    def setup(self) -> None:
        self.client_address = ("local", 0)
        super().setup()

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def handle_any(self) -> None:
        self.server.calls.append(f"{self.command} {self.path}")
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        if path == "/images/create":
            error = json.dumps({"error": "manifest unknown"}) if self.server.pull_fails else "{}"
            self.server.has_image = not self.server.pull_fails
            self.answer(200, b'{"status": "Pulling"}\n' + error.encode())
        elif path == "/containers/create" and not self.server.has_image:
            self.answer(404, b'{"message": "No such image: img"}')
        elif path == "/containers/create":
            self.answer(201, b'{"Id": "0123"}')
        elif path.startswith("/images/"):
            self.answer(200, json.dumps(INSPECTED[0]).encode())
        elif path.endswith("/export"):
            body = tar_bytes(ENTRIES)
            if self.server.export_breaks:
                self.answer(200, body[:5000], **{"Content-Length": str(len(body))})
            else:
                self.answer(200, body)
        else:
            self.answer(204, b"")

    do_GET = do_POST = do_DELETE = handle_any


class ApiServer(socketserver.ThreadingUnixStreamServer):
    """A Docker Engine API on a socket."""

    has_image = True
    pull_fails = False
    export_breaks = False

    def __init__(self, path: str) -> None:
        self.calls: list[str] = []
        super().__init__(path, ApiHandler)


@contextmanager
def api(folder: Path, **state: Any) -> Iterator[tuple[ApiServer, dict[str, str]]]:
    """Serve the API below `folder`; gives the server and the environment that finds it."""
    with ApiServer(f"{folder}/docker.sock") as server:
        for key, value in state.items():
            setattr(server, key, value)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server, {"PATH": str(folder), "XDG_RUNTIME_DIR": str(folder), "DOCKER_HOST": ""}
        finally:
            server.shutdown()
            thread.join()


def test_a_socket_serves_where_the_command_is_missing(tmp_path: Path) -> None:
    with api(tmp_path) as (server, environ):
        with open_image(tmp_path, "dockerd://host/img:1", **environ) as image:
            assert image.config.env == ("A=b",)
            assert read_names(image) == ["etc", "etc/a", "etc/b"]
        assert server.calls[-1].startswith("DELETE /containers/enroot-")
        assert not any("/images/create" in call for call in server.calls)


def test_a_socket_named_by_the_environment(tmp_path: Path) -> None:
    with api(tmp_path) as (_, environ):
        environ |= {"XDG_RUNTIME_DIR": "/none", "DOCKER_HOST": f"unix://{tmp_path}/docker.sock"}
        assert isinstance(find_engine("dockerd", environ), SocketEngine)


def test_a_missing_image_is_fetched_through_the_socket(tmp_path: Path) -> None:
    with api(tmp_path, has_image=False) as (server, environ):
        with open_image(tmp_path, "dockerd://img", "s390x", **environ):
            pass
        expected = "POST /images/create?fromImage=img%3Alatest&platform=linux%2Fs390x"
        assert expected in server.calls


def test_a_fetch_that_fails_after_its_status_is_an_error(tmp_path: Path) -> None:
    with (
        api(tmp_path, has_image=False, pull_fails=True) as (_, environ),
        pytest.raises(NotFoundError, match="cannot pull img: manifest unknown"),
    ):
        open_image(tmp_path, "dockerd://img", **environ)


def test_an_export_that_breaks_off_is_an_error(tmp_path: Path) -> None:
    with (
        api(tmp_path, export_breaks=True) as (_, environ),
        open_image(tmp_path, "dockerd://img", **environ) as image,
        image.open() as stream,
        pytest.raises(RegistryError, match="broke off"),
    ):
        stream.read()


def test_an_engine_that_went_away_is_named(tmp_path: Path) -> None:
    with ApiServer(f"{tmp_path}/docker.sock"):
        pass  # the socket's file stays, and nobody listens
    environ = {"PATH": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "DOCKER_HOST": ""}
    with pytest.raises(RegistryError, match="docker.sock: Connection refused"):
        open_image(tmp_path, "dockerd://img", **environ)


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """podman with the image localhost/made:1."""
    engine = Podman(tmp_path_factory.mktemp("engine"))
    store = ImageStore()
    config = {"Env": ["A=b c"], "WorkingDir": "/etc"}
    store.image("localhost/made", "1", [Layer(ENTRIES, "none")], config=config)
    engine.run("load", data=store.docker_archive("localhost/made", "1"))
    yield engine
    engine.reset()


@pytest.mark.podman
@pytest.mark.root
@pytest.mark.parametrize("way", ["command", "socket", "docker's command"])
def test_podman_itself(tmp_path: Path, podman: Podman, way: str) -> None:
    scheme = "dockerd" if "docker" in way else "podman"
    with podman.service():
        if way == "socket":
            environ = {"PATH": str(tmp_path), "CONTAINER_HOST": f"unix://{podman.socket}"}
        else:
            programs = podman.write_wrapper("docker" if "docker" in way else "podman")
            environ = {"PATH": f"{programs}:{os.environ['PATH']}"}
        with open_image(tmp_path, f"{scheme}://localhost/made:1", **environ) as image:
            assert "A=b c" in image.config.env and image.config.working_dir == "/etc"
            with image.open() as stream:
                archive = tarfile.open(fileobj=io.BytesIO(stream.read()))
            content = archive.extractfile("etc/a")
            assert content and content.read() == b"x" * 300_000
            assert archive.getmember("etc/b").linkname == "a"
        with pytest.raises(EnrootError):
            open_image(tmp_path, f"{scheme}://localhost/none:1", **environ)
    assert podman.run("ps", "-a", "-q") == ""
