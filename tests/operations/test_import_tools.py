"""Beside Debian's own tools: what skopeo writes is imported, what the cache holds they read."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from enroot_py.operations.import_image import import_image
from enroot_py.operations.load import load
from tests.operations.importing import Workplace, add_cases, describe_tree
from tests.registry.docker_registry import docker_registry
from tests.registry.images import ImageStore

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real registry with the case images."""
    images = ImageStore()
    add_cases(images)
    with docker_registry(tmp_path_factory.mktemp("registry")) as name:
        for case in ("opq", "odd"):
            images.push(name, f"t/{case}", "1")
        yield name


def skopeo(place: Workplace, *words: str) -> str:
    # Logins are looked for in the latter: /run/containers may be root's, since root used skopeo.
    environ = {**place.environ, "TMPDIR": str(place.path), "XDG_RUNTIME_DIR": str(place.path)}
    command = ["skopeo", "--insecure-policy", *words]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("case", ["opq", "odd"])
def test_what_skopeo_copies_gives_the_tree_of_the_registry(
    host: str, place: Workplace, case: str
) -> None:
    settings = place.settings()
    load(f"docker://{host}#t/{case}:1", "registry", settings=settings)
    places = {
        "oci": f"oci:{place.path}/layout:x",
        "oci-archive": f"oci-archive:{place.path}/layout.tar:x",
        "docker-archive": f"docker-archive:{place.path}/saved.tar:t/{case}:1",
    }
    trees = {}
    for name, where in places.items():
        skopeo(place, "copy", "-q", "--src-tls-verify=false", f"docker://{host}/t/{case}:1", where)
        load(where, name, settings=settings)
    for name in ("registry", *places):
        tree = describe_tree(place.data / name)
        tree.pop("etc/rc")  # says where it comes from
        trees[name] = tree
    for name in places:
        assert trees[name] == trees["registry"]
    assert place.leftovers() == []


def test_the_cache_is_a_layout_that_other_tools_read(host: str, place: Workplace) -> None:
    for case in ("opq", "odd"):
        output = str(place.out / case)
        import_image(f"docker://{host}#t/{case}:1", output, settings=place.settings())
    layout = place.cache / "oci"
    inspected = json.loads(skopeo(place, "inspect", f"oci:{layout}:{host}/t/odd:1"))
    assert len(inspected["Layers"]) == 2
    skopeo(place, "copy", "-q", f"oci:{layout}:{host}/t/opq:1", f"oci:{place.path}/copy:x")
    umoci = ["umoci", "unpack", "--rootless", "--image", f"{place.path}/copy:x"]
    subprocess.run([*umoci, str(place.path / "bundle")], env=place.environ, check=True)
    rootfs = place.path / "bundle" / "rootfs"
    assert sorted(os.listdir(rootfs / "srv/a")) == ["keepname", "new"]
    assert (rootfs / "srv/a/keepname").read_text() == "upper"
