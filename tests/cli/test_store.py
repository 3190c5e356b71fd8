"""The commands that fetch, make and delete, through the console script."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from tests.cli.command import Command
from tests.registry.fake_registry import FakeRegistry
from tests.registry.images import ImageStore, directory, file

ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@pytest.fixture(scope="module")
def images() -> ImageStore:
    """`t/app:1` for two architectures; its one file says which."""
    store = ImageStore()
    entries = [
        (
            store.image(
                "t/app",
                "",
                [[directory("etc"), file("etc/arch", name)]],
                architecture=name,
            ),
            f"linux/{name}",
        )
        for name in ("amd64", "arm64")
    ]
    store.index("t/app", "1", entries)
    return store


@pytest.fixture
def registry(images: ImageStore, enroot: Command) -> Iterator[FakeRegistry]:
    """A registry that `enroot` speaks HTTP with."""
    enroot.environ["ENROOT_ALLOW_HTTP"] = "y"
    (enroot.root / "tmp").mkdir()
    with FakeRegistry(images) as server:
        yield server


def uri(registry: FakeRegistry, name: str = "t/app:1") -> str:
    return f"docker://{registry.host}#{name}"


def succeed(enroot: Command, *words: str) -> str:
    """Run a command that must succeed, and return its stdout."""
    done = enroot.run(*words)
    assert done.returncode == 0, done.stderr
    assert "[ERROR]" not in done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "spelling", [["-o", "x.sqsh"], ["--output", "x.sqsh"], ["--output=x.sqsh"]]
)
def test_import_writes_the_file_named(
    enroot: Command, registry: FakeRegistry, spelling: list[str]
) -> None:
    assert succeed(enroot, "import", *spelling, uri(registry)) == ""
    assert (enroot.root / "x.sqsh").is_file()


def test_import_has_a_default_name_and_does_not_overwrite(
    enroot: Command, registry: FakeRegistry
) -> None:
    succeed(enroot, "import", uri(registry))
    (image,) = enroot.root.glob("*.sqsh")
    assert image.name == "t+app+1.sqsh"
    image.write_text("mine")
    done = enroot.run("import", uri(registry))
    assert done.returncode == 1
    assert done.stderr.startswith("[ERROR] ") and image.name in done.stderr
    assert image.read_text() == "mine"
    succeed(enroot, "import", "--force", uri(registry))
    assert image.read_bytes()[:4] == b"hsqs"


@pytest.mark.parametrize("architecture, shown", ARCHITECTURES.items())
def test_the_architecture_is_chosen(
    enroot: Command, registry: FakeRegistry, architecture: str, shown: str
) -> None:
    succeed(enroot, "load", "-a", architecture, "-n", "app", uri(registry))
    assert (enroot.data / "app/etc/arch").read_text() == shown


def test_digests_go_to_stdout(enroot: Command, registry: FakeRegistry, images: ImageStore) -> None:
    assert succeed(enroot, "digest", "-a", "arm64", uri(registry)).startswith("sha256:")
    first, second = (
        succeed(enroot, "digest", "-a", name, uri(registry)) for name in ("amd64", "arm64")
    )
    assert first != second and first.strip() in images.blobs


def test_a_round_trip_keeps_the_files(enroot: Command, registry: FakeRegistry) -> None:
    succeed(enroot, "import", "-a", "amd64", "-o", "a.sqsh", uri(registry))
    succeed(enroot, "create", "a.sqsh")
    assert succeed(enroot, "list") == "a\n"
    (enroot.data / "a/etc/added").write_text("more")
    succeed(enroot, "export", "--output=b.sqsh", "a")
    succeed(enroot, "create", "--name=other", "b.sqsh")
    assert (enroot.data / "other/etc/added").read_text() == "more"
    succeed(enroot, "remove", "-f", "a", "other")
    assert succeed(enroot, "list") == ""


@pytest.mark.parametrize("words", [["create", "-n", "app"], ["load", "--name", "app"]])
def test_containers_are_replaced_only_by_force(
    enroot: Command, registry: FakeRegistry, words: list[str]
) -> None:
    succeed(enroot, "import", "-o", "a.sqsh", uri(registry))
    source = "a.sqsh" if words[0] == "create" else uri(registry)
    (enroot.data / "app").mkdir(parents=True)
    (enroot.data / "app/mine").touch()
    done = enroot.run(*words, source)
    assert done.returncode == 1 and "app" in done.stderr
    assert (enroot.data / "app/mine").exists()
    succeed(enroot, words[0], "-f", *words[1:], source)
    assert not (enroot.data / "app/mine").exists()
    done = enroot.run(*words, source, environ={"ENROOT_FORCE_OVERRIDE": "y"})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words, named",
    [
        (["import", "docker://"], "docker://"),
        (["import", ""], ""),
        (["import", "nosuch://x"], "nosuch"),
        (["import", "-a", "z80", "docker://127.0.0.1:1#x"], "z80"),
        (["load", "-n", "a/b", "docker://127.0.0.1:1#x"], "a/b"),
        (["digest", "dockerd://x"], "dockerd://x"),
        (["create", "nosuch.sqsh"], "nosuch.sqsh"),
        (["create", "notes.txt"], "notes.txt"),
        (["export", "nosuch"], "nosuch"),
        (["export", "../x"], "../x"),
        (["start", "nosuch"], "nosuch"),
        (["start", ""], ""),
        (["start", "../x"], "../x"),
        (["start", "-m", "a::b", "x"], ""),
        (["start", "-e", "1=2", "x"], ""),
        (["start", "-c", "nosuch.conf", "x"], "nosuch.conf"),
        (["exec", "4194311", "true"], "4194311"),
        (["exec", "nosuch", "true"], "nosuch"),
        (["batch", "nosuch.conf"], "nosuch.conf"),
        (["remove", "nosuch"], "nosuch"),
        (["cache", "limit"], "ENROOT_CACHE_LIMIT"),
        (["cache", "limit", "1X"], "1X"),
    ],
    ids=" ".join,
)
def test_mistakes_are_one_error_and_leave_nothing(
    enroot: Command, words: list[str], named: str
) -> None:
    (enroot.root / "notes.txt").write_text("text")
    done = enroot.run(*words)
    assert done.returncode == 1
    assert done.stdout == ""
    errors = [line for line in done.stderr.splitlines() if line.startswith("[ERROR] ")]
    assert len(errors) == 1, done.stderr
    assert named in done.stderr
    assert [path for path in enroot.tree() if path.endswith((".sqsh", ".run"))] == []
    assert not enroot.data.exists() or os.listdir(enroot.data) == []


def test_the_cache_is_listed_and_trimmed(enroot: Command, registry: FakeRegistry) -> None:
    assert succeed(enroot, "cache", "list").splitlines()[-1] == "0 entries, 0 B"
    assert not (enroot.root / "cache").exists()
    succeed(enroot, "import", "-o", "x.sqsh", uri(registry))
    table = succeed(enroot, "cache", "list").splitlines()
    assert table[0].split() == ["USED", "SIZE", "KIND", "NAME", "IMAGES"]
    entries = json.loads(succeed(enroot, "cache", "list", "--json"))
    assert len(table) == len(entries) + 2
    assert {"blob", "image"} <= {entry["kind"] for entry in entries}
    assert any("t/app" in name for entry in entries for name in entry["references"])
    assert succeed(enroot, "cache", "prune").startswith("0 entries")
    assert succeed(enroot, "cache", "limit", "1G").startswith("0 entries")
    done = enroot.run("cache", "limit", environ={"ENROOT_CACHE_LIMIT": "1"})
    assert done.returncode == 0
    assert done.stdout.startswith(f"{len(entries)} entries")
    assert done.stderr.count("[INFO] Removed") == len(entries)
    assert json.loads(succeed(enroot, "cache", "list", "--json")) == []


def test_secrets_are_not_shown(enroot: Command, registry: FakeRegistry) -> None:
    done = enroot.run("import", f"docker://me:pass-1@{registry.host}#t/nosuch:1")
    assert done.returncode == 1
    assert "pass-1" not in done.stdout + done.stderr
