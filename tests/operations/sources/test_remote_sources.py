"""Artifacts of a single file, and images of local engines."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from enroot_py.errors import (
    DigestMismatchError,
    NotFoundError,
    RegistryError,
    UnsupportedError,
)
from enroot_py.operations.import_image import cached_image, import_image
from enroot_py.operations.load import load
from enroot_py.squashfs.reader import SquashfsImage
from tests.operations.importing import Workplace, describe_tree
from tests.registry.fake_registry import FakeRegistry
from tests.registry.faults import corrupt
from tests.registry.images import Layer, directory, file, tar_bytes

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
ENTRIES = [
    directory("etc"),
    file("etc/name", "x"),
    file(".dockerenv"),
    file("dev/null", "not kept"),
]


@pytest.fixture(autouse=True)
def here(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.out)


def contents(path: str) -> dict[str, bytes]:
    with SquashfsImage(path) as image:
        return {
            os.fsdecode(name): image.read(os.fsdecode(name))
            for name, node in image.walk()
            if node.kind == stat.S_IFREG
        }


def push_artifact(registry: FakeRegistry, *files: bytes) -> list[str]:
    """Put an artifact of these files at t/file:1, as `oras push` does; returns their digests."""
    images = registry.images
    config = images.blob(b"{}", "application/vnd.oci.empty.v1+json")
    layers = [images.blob(data, "application/octet-stream") for data in files]
    document = {
        "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": "application/x-squashfs",
        "config": config, "layers": layers,
    }  # fmt: skip
    images.document("t/file", "1", document, MANIFEST)
    return [layer["digest"] for layer in layers]


@pytest.fixture
def image(place: Workplace) -> bytes:
    (place.path / "r.tar").write_bytes(tar_bytes(ENTRIES))
    settings = place.settings()
    path = import_image(f"tar:{place.path}/r.tar", "made.sqsh", settings=settings)
    return Path(path).read_bytes()


def test_an_artifact_that_is_an_image_is_that_image(
    registry: FakeRegistry, place: Workplace, image: bytes
) -> None:
    push_artifact(registry, image)
    uri = f"oras://{registry.host}/t/file:1"
    path = import_image(uri, settings=place.settings())
    assert os.path.basename(path) == "t+file+1.sqsh"
    assert Path(path).read_bytes() == image
    blobs = [entry for entry in registry.log if "/blobs/" in entry.path]
    container = load(uri, "box", settings=place.settings())
    assert Path(container, "etc/name").read_text() == "x"
    with cached_image(uri, settings=place.settings()) as cached:
        assert Path(cached).read_bytes() == image
    assert [entry for entry in registry.log if "/blobs/" in entry.path] == blobs
    assert place.leftovers() == []


def test_an_artifact_that_is_an_archive_is_a_root_filesystem(
    registry: FakeRegistry, place: Workplace
) -> None:
    digest = push_artifact(registry, Layer(ENTRIES, "zstd").stored())[0]
    uri = f"oras://{registry.host}/t/file:1"
    found = contents(import_image(uri, "a.sqsh", settings=place.settings()))
    assert found["etc/name"] == b"x"
    assert f"oras://{registry.host}#t/file@{digest}".encode() in found["etc/rc"]
    assert Path(load(uri, "box", settings=place.settings()), "etc/name").read_text() == "x"


def test_artifacts_are_verified_and_must_be_one_file(
    registry: FakeRegistry, place: Workplace, image: bytes
) -> None:
    digest = push_artifact(registry, image)[0]
    registry.fault(digest, corrupt(), times=2)
    uri = f"oras://{registry.host}/t/file:1"
    with pytest.raises(DigestMismatchError):
        import_image(uri, settings=place.settings())
    push_artifact(registry, image, b"readme")
    with pytest.raises(UnsupportedError, match="2 files"):
        import_image(uri, settings=place.settings())
    with pytest.raises(NotFoundError):
        import_image(f"oras://{registry.host}/t/none:1", settings=place.settings())
    assert os.listdir(place.out) == ["made.sqsh"]


@pytest.fixture
def docker(place: Workplace) -> Iterator[Path]:
    """A `docker` command that has one image; it notes what it is asked."""
    folder = place.path / "bin"
    folder.mkdir()
    (folder / "rootfs.tar").write_bytes(tar_bytes(ENTRIES))
    inspected = [
        {
            "Architecture": "amd64", "Os": "linux",
            "Config": {"Env": ["A=1"], "Cmd": ["run"], "Entrypoint": None, "Volumes": None,
                       "Labels": None, "WorkingDir": "/srv/work"},
        }
    ]  # fmt: skip
    (folder / "inspected.json").write_text(json.dumps(inspected))
    script = folder / "docker"
    script.write_text(
        f"""#!/bin/sh
echo "$@" >> {folder}/asked
echo "WARNING: upgrade now" >&2
case "$*" in
*missing*) echo "Error: No such image: missing" >&2; exit 1;;
create*) echo 0123;;
inspect*) cat {folder}/inspected.json;;
export*) cat {folder}/rootfs.tar; [ ! -e {folder}/fail ] || exit 3;;
rm*) ;;
*) exit 9;;
esac
"""
    )
    script.chmod(0o755)
    place.environ["PATH"] = f"{folder}:{place.environ['PATH']}"
    yield folder


def test_an_image_of_a_daemon_is_imported_and_leaves_no_container(
    place: Workplace, docker: Path
) -> None:
    path = import_image("dockerd://team/app:1", settings=place.settings(), arch="amd64")
    assert os.path.basename(path) == "team+app+1.sqsh"
    found = contents(path)
    assert found["etc/name"] == b"x"
    assert ".dockerenv" not in found
    assert not any(name.startswith("dev/") for name in found)
    assert found["etc/environment"] == b"A=1\n"
    assert found["etc/rc"].startswith(b"# enroot-provenance: dockerd://team/app:1\n")
    asked = (docker / "asked").read_text().splitlines()
    assert [line.split()[0] for line in asked] == ["create", "inspect", "export", "rm"]
    container = load("dockerd://team/app:1", "box", settings=place.settings(), arch="amd64")
    assert describe_tree(Path(container))["etc/name"][0] == "0o100644"


def test_a_daemon_that_fails_leaves_nothing(place: Workplace, docker: Path) -> None:
    (docker / "fail").touch()
    with pytest.raises(RegistryError, match="docker export failed"):
        import_image("dockerd://app", settings=place.settings())
    with pytest.raises(NotFoundError, match="missing"):
        import_image("dockerd://missing", settings=place.settings())
    asked = (docker / "asked").read_text().splitlines()
    assert asked[-1].startswith("rm -f")
    assert os.listdir(place.out) == []


@pytest.mark.podman
def test_an_image_of_podmans_storage_is_imported(place: Workplace) -> None:
    (place.path / "r.tar").write_bytes(tar_bytes(ENTRIES))
    environ = {**place.environ, "XDG_RUNTIME_DIR": str(place.path / "run")}
    environ["HOME"] = str(place.path / "home")
    (place.path / "run").mkdir()
    (place.path / "home").mkdir()
    podman = ["podman", "--cgroup-manager=cgroupfs", "--storage-driver=vfs"]
    name = "localhost/enroot-test:1"
    subprocess.run(
        [*podman, "import", "--change", "ENV A=1", f"{place.path}/r.tar", name],
        env=environ, check=True,
    )  # fmt: skip
    try:
        place.environ.update(environ, STORAGE_DRIVER="vfs")
        path = import_image(f"podman://{name}", "i.sqsh", settings=place.settings())
        found = contents(path)
        assert found["etc/name"] == b"x"
        assert found["etc/environment"].count(b"A=1\n") == 1
        listed = subprocess.run(
            [*podman, "ps", "-aq"], env=environ, check=True, stdout=subprocess.PIPE
        )
        assert listed.stdout == b""
    finally:
        subprocess.run([*podman, "system", "reset", "-f"], env=environ, check=True)
