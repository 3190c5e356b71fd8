"""Single files in a registry, pushed with the oras library and fetched by our own client."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from enroot_py.errors import EnrootError, NotFoundError, RegistryError
from enroot_py.image.platform import parse_platform
from enroot_py.image.reference import parse_reference
from enroot_py.registry.artifact import SQUASHFS_TYPE, push_artifact
from tests.registry.docker_registry import docker_registry
from tests.registry.fake_registry import BasicAuth, BearerAuth, FakeRegistry, TokenIssuer
from tests.registry.faults import answer
from tests.registry.images import ImageStore
from tests.registry.pulling import Pull, make_settings, write_credentials


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with docker_registry(tmp_path_factory.mktemp("registry")) as name:
        yield name


@pytest.mark.network
@pytest.mark.parametrize("size", [1, 3 << 20])
def test_a_file_goes_there_and_back(tmp_path: Path, host: str, size: int) -> None:
    data = os.urandom(size)
    path = tmp_path / "image.sqsh"
    path.write_bytes(data)
    settings = make_settings(tmp_path)
    reference = parse_reference(f"oras://{host}/files/image:{size}")
    digest = push_artifact(str(path), reference, settings)
    with Pull(settings).open(f"oras://{host}/files/image:{size}") as client:
        manifest = client.get_artifact(parse_platform("amd64"))
        assert client.resolve_digest(parse_platform("amd64")) == digest
        assert manifest.artifact_type == SQUASHFS_TYPE
        assert [layer.size for layer in manifest.layers] == [size]
        assert dict(manifest.layers[0].annotations)["org.opencontainers.image.title"] == path.name
        assert client.read_blob(manifest.layers[0]) == data
        with pytest.raises(EnrootError, match="Not a container image"):
            client.get_manifest(parse_platform("amd64"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nothing.sqsh"):
        reference = parse_reference("oras://127.0.0.1:1/x:1")
        push_artifact(str(tmp_path / "nothing.sqsh"), reference, make_settings(tmp_path))


@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_a_push_logs_in_by_our_rules_and_says_why_it_is_refused(tmp_path: Path, kind: str) -> None:
    """The fake registry takes no uploads: what counts here is what it was sent before."""
    settings = make_settings(tmp_path)
    path = tmp_path / "image.sqsh"
    path.write_bytes(b"x")
    issuer = TokenIssuer({"u": "p"})
    auth = BasicAuth("u", "p") if kind == "basic" else BearerAuth(issuer, scope="registry:x:*")
    with FakeRegistry(ImageStore(), auth=auth) as registry:
        registry.fault("/blobs/uploads/", answer(403, json.dumps({"message": "no"}).encode()))
        write_credentials(settings, f"machine {registry.host} login u password p")
        with pytest.raises(RegistryError, match=f"{registry.host} refuses POST.*403.*no") as caught:
            reference = parse_reference(f"oras://{registry.host}/a/b:1")
            push_artifact(str(path), reference, settings)
        assert "credentials" in caught.value.hint
        if kind == "bearer":
            token = next(entry for entry in registry.log if entry.path == "/token")
            assert token.query["scope"] == ["repository:a/b:pull,push"]


def test_a_push_sends_its_login_to_no_other_host(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    path = tmp_path / "image.sqsh"
    path.write_bytes(b"x")
    with FakeRegistry() as stranger, FakeRegistry(auth=BasicAuth("u", "p")) as registry:
        elsewhere = {"Location": f"{stranger.url}/v2/a/b/blobs/uploads/1"}
        registry.fault("/blobs/uploads/", answer(202, b" ", elsewhere))
        write_credentials(settings, f"machine {registry.host} login u password p")
        with pytest.raises(RegistryError):
            push_artifact(str(path), parse_reference(f"oras://{registry.host}/a/b:1"), settings)
        assert [entry.method for entry in stranger.log] == ["PATCH"]
        assert not stranger.log[0].authorization


def test_a_push_to_a_registry_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "image.sqsh"
    path.write_bytes(b"x")
    with pytest.raises(RegistryError, match="refused by 127.0.0.1:1"):
        reference = parse_reference("oras://127.0.0.1:1/x:1")
        push_artifact(str(path), reference, make_settings(tmp_path))
