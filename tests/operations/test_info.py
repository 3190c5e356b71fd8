"""The configuration in force, and what images and containers are made of."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from enroot_py.errors import NotFoundError, SquashfsError
from enroot_py.operations.info import describe, info
from enroot_py.settings import VERSION, load_settings
from tests.cli.command import Command
from tests.registry.fake_registry import FakeRegistry
from tests.registry.images import ImageStore, file


@pytest.fixture
def enroot(tmp_path: Path) -> Command:
    return Command(tmp_path)


def test_it_names_every_file_that_is_read(enroot: Command) -> None:
    (enroot.root / "etc/enroot.conf.d").mkdir(parents=True)
    (enroot.root / "etc/enroot.conf.d/10-site.conf").write_text("ENROOT_MAX_CONNECTIONS 3\n")
    found = info(settings=load_settings(enroot.environ))
    assert [(os.path.basename(path), there) for path, there in found.config_files] == [
        ("enroot.conf", False),
        ("10-site.conf", True),
    ]
    assert found.environment["ENROOT_MAX_CONNECTIONS"] == "3"
    assert all(path.file_system and path.file_system.free > 0 for path in found.paths)
    assert {path.variable: path.exists for path in found.paths}["ENROOT_DATA_PATH"] is False


def test_the_text_holds_enroots_lines(enroot: Command) -> None:
    lines = enroot.run("info", environ={"ENROOT_REMAP_ROOT": "y"}).stdout.splitlines()
    assert lines[0] == f"Enroot version: {VERSION}"
    assert f"Config file: {enroot.root}/etc/enroot.conf" in lines
    variables = lines[lines.index("Environment variables:") + 1 :]
    assert variables == sorted(variables)
    assert all(line.startswith("  ENROOT_") for line in variables)
    for line in (f"  ENROOT_DATA_PATH={enroot.data}", f"  ENROOT_VERSION={VERSION}"):
        assert line in variables
    assert "  ENROOT_REMAP_ROOT=y" in variables
    found = json.loads(enroot.run("info", "--json").stdout)
    assert found["environment"]["ENROOT_DATA_PATH"] == str(enroot.data)
    assert enroot.tree() == []


def test_an_image_tells_where_it_came_from(enroot: Command) -> None:
    """As `import` wrote it, without the user and the password."""
    store = ImageStore()
    labels = {"org.example.vendor": "us", "evil": "a\nb\x1b[2J"}
    built = store.image("t/app", "1", [[file("x")]], config={"Labels": labels})
    enroot.environ["ENROOT_ALLOW_HTTP"] = "y"
    with FakeRegistry(store) as registry:
        done = enroot.run("import", "-o", "a.sqsh", f"docker://me:pass-1@{registry.host}#t/app:1")
    assert done.returncode == 0, done.stderr
    assert enroot.run("create", "a.sqsh").returncode == 0
    image = describe(str(enroot.root / "a.sqsh"))
    assert image.kind == "image" and image.size > 0 and image.compression == "zstd"
    assert image.provenance.startswith(f"docker://{registry.host}#t/app")
    assert image.provenance.endswith(f"@{built.digest}")
    assert "me" not in image.provenance.partition("#")[0] and "pass-1" not in image.provenance
    assert dict(image.labels)["org.example.vendor"] == "us"
    container = describe("a", settings=load_settings(enroot.environ))
    assert (container.kind, container.provenance) == ("container", image.provenance)
    text = enroot.run("info", "a.sqsh").stdout
    assert image.provenance in text and "\x1b" not in text
    assert json.loads(enroot.run("info", "--json", "a").stdout)["provenance"] == image.provenance


@pytest.mark.parametrize(
    "script, provenance, labels",
    [
        (None, "", ()),
        (b"", "", ()),
        (b"#!/bin/sh\n# enroot-provenance: x\n", "", ()),
        (b"# enroot-provenance: docker://a#b:c\n# k v w\n# empty\n\n# no\n", "docker://a#b:c",
         (("k", "v w"), ("empty", ""))),
        (b"# k v\n# enroot-provenance: x\n# enroot-provenance: y\n", "x",
         (("k", "v"), ("enroot-provenance:", "y"))),
        (b"# enroot-provenance: \xff\n", "\ufffd", ()),
    ],
)  # fmt: skip
def test_comments_of_a_command_script(
    enroot: Command, script: bytes | None, provenance: str, labels: tuple[tuple[str, str], ...]
) -> None:
    (enroot.data / "box/etc").mkdir(parents=True)
    if script is not None:
        (enroot.data / "box/etc/rc").write_bytes(script)
    found = describe("box", settings=load_settings(enroot.environ))
    assert (found.provenance, found.labels) == (provenance, labels)


def test_a_script_that_leads_to_the_host_is_not_read(enroot: Command) -> None:
    (enroot.root / "secret").write_text("# enroot-provenance: secret\n")
    (enroot.data / "box/etc").mkdir(parents=True)
    (enroot.data / "box/etc/rc").symlink_to(enroot.root / "secret")
    assert describe("box", settings=load_settings(enroot.environ)).provenance == ""


def test_what_is_neither_is_refused(enroot: Command) -> None:
    (enroot.root / "notes.txt").write_text("text")
    with pytest.raises(SquashfsError):
        describe(str(enroot.root / "notes.txt"))
    with pytest.raises(NotFoundError):
        describe("nosuch", settings=load_settings(enroot.environ))
    assert enroot.run("info", "nosuch").returncode == 1
