"""Imports where people have had trouble with the original: odd file systems, few privileges,
programs of the same name on the path.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from enroot_py.operations.create import create
from enroot_py.operations.load import load
from tests.operations.importing import Workplace, describe_tree
from tests.operations.starting import open_modes
from tests.registry.fake_registry import FakeRegistry

pytestmark = pytest.mark.kernel

# What the original runs to import, create and export; and the other program called `parallel`.
PROGRAMS = (
    "parallel", "curl", "jq", "tar", "gzip", "pigz", "zstd", "awk", "grep", "sed", "find", "mount",
    "mksquashfs", "unsquashfs", "fuse-overlayfs", "bash", "sh", "cat", "ln", "mv", "rm", "stat",
)  # fmt: skip


@pytest.fixture(scope="module")
def cases(case_images: object) -> Iterator[FakeRegistry]:
    with FakeRegistry(case_images) as server:  # type: ignore[arg-type]
        yield server


@pytest.fixture
def workplace(place: Workplace) -> Iterator[Workplace]:
    yield place
    open_modes(place.path)


def expected(cases: FakeRegistry, place: Workplace, name: str) -> dict[str, tuple[object, ...]]:
    """The tree of an image on an ordinary file system."""
    elsewhere = Workplace(place.path / "ordinary")
    load(f"docker://{cases.host}#t/{name}:1", name, settings=elsewhere.settings())
    return tree(elsewhere.data / name)


def tree(rootfs: Path) -> dict[str, tuple[object, ...]]:
    for found in [rootfs, *rootfs.rglob("*")]:
        if not found.is_symlink() and (found.is_dir() or found.is_file()):
            found.chmod(found.stat().st_mode & 0o7777 | 0o700)
    return describe_tree(rootfs)


def within(place: Workplace, prepare: str, *commands: tuple[str, ...]) -> None:
    """Run commands in a mount namespace in which a script has prepared the file systems."""
    inner = Workplace.command(place)
    script = prepare + "".join(
        '\n"$@" ' + " ".join(f"'{word}'" for word in words) + " < /dev/null" for words in commands
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", script, "sh", *inner],
        cwd=place.out, env=place.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["tmpfs -o nodev,nosuid,noexec", "ramfs", "overlay"])
def test_temporary_folder_cache_and_data_may_be_on_any_file_system(
    cases: FakeRegistry, workplace: Workplace, kind: str
) -> None:
    """enroot#69, #260; pyxis#87; slurm-operator#42."""
    place, base = workplace, workplace.path
    for folder in ("odd", "lower", "over", "kept"):
        (base / folder).mkdir()
    prepare = f"mount -t {kind} none {base}/odd"
    if kind == "overlay":
        prepare = f"""mount -t tmpfs none {base}/over
            mkdir {base}/over/upper {base}/over/work
            mount -t overlay -o lowerdir={base}/lower,upperdir={base}/over/upper,\
workdir={base}/over/work none {base}/odd"""
    for at, variable in enumerate(("TEMP", "CACHE", "DATA")):
        prepare += f"\nmkdir {base}/odd/{at}\nexport ENROOT_{variable}_PATH={base}/odd/{at}"
    images = {name: f"docker://{cases.host}#t/{name}:1" for name in ("opq", "wh", "perm", "odd")}
    commands = []
    for name, uri in images.items():
        commands.append(("import", "-o", f"{base}/kept/{name}.sqsh", uri))
        commands.append(("load", "-n", name, uri))
    within(place, prepare, *commands)
    for name in images:
        image = str(base / "kept" / f"{name}.sqsh")
        create(image, name, settings=place.settings())
        assert tree(place.data / name) == expected(cases, place, name)


def test_nothing_is_made_in_tmp_when_the_folders_are_elsewhere(
    cases: FakeRegistry, workplace: Workplace
) -> None:
    """slurm-operator#99."""
    place, base = workplace, workplace.path
    # Recursively: others may have mounted something below, which cannot be left out.
    prepare = "\n".join(
        f"mount --rbind {folder} {folder}; mount -o remount,bind,ro {folder}"
        for folder in ("/tmp", "/var/tmp")
    )
    # The folders of this test may be below one of them.
    prepare += f"\nmount --bind {base} {base}; mount -o remount,bind,rw {base}; cd {place.out}"
    uri = f"docker://{cases.host}#t/wh:1"
    within(
        place, prepare,
        ("import", "-o", "i.sqsh", uri), ("create", "-n", "a", "i.sqsh"), ("load", "-n", "b", uri),
        ("export", "-o", "e.sqsh", "a"), ("start", "a", "true"), ("remove", "-f", "b"),
    )  # fmt: skip
    assert sorted(path.name for path in place.out.iterdir()) == ["e.sqsh", "i.sqsh"]


@pytest.mark.parametrize("name", ["wh", "opq", "perm", "odd"])
def test_no_privilege_is_needed_or_gained(
    cases: FakeRegistry, workplace: Workplace, name: str
) -> None:
    """enroot#44, #141, #255; charliecloud#533."""
    uri = f"docker://{cases.host}#t/{name}:1"
    for words in (
        ("import", "-o", "i.sqsh", uri), ("create", "-n", "made", "i.sqsh"),
        ("load", "-n", "loaded", uri), ("start", "made", "true"),
    ):  # fmt: skip
        done = subprocess.run(
            ["setpriv", "--no-new-privs", *workplace.command(*words)],
            cwd=workplace.out, env=workplace.environ, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
    wanted = expected(cases, workplace, name)
    assert tree(workplace.data / "loaded").keys() == wanted.keys()
    assert wanted.keys() <= tree(workplace.data / "made").keys()


def test_no_program_of_the_host_is_run(cases: FakeRegistry, workplace: Workplace) -> None:
    """enroot#203 (the other `parallel`), enroot PR150, enroot#261."""
    stubs = workplace.path / "stubs"
    stubs.mkdir()
    for name in PROGRAMS:
        stub = stubs / name
        stub.write_text(f"#!/bin/sh\n: > {workplace.path}/ran-{name}\nexit 70\n")
        stub.chmod(0o755)
    uri = f"docker://{cases.host}#t/wh:1"
    for words in (
        ("import", "-o", "i.sqsh", uri), ("create", "-n", "made", "i.sqsh"),
        ("load", "-n", "loaded", uri), ("export", "-o", "e.sqsh", "made"),
        ("start", "made", "true"), ("list", "-f"), ("remove", "-f", "loaded"),
    ):  # fmt: skip
        done = workplace.run(*words, PATH=f"{stubs}:{workplace.environ['PATH']}")
        assert done.returncode == 0, (words, done.stderr)
    assert list(workplace.path.glob("ran-*")) == []
