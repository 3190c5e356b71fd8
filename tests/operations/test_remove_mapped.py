"""Removing and exporting what belongs to subordinate ids, as other engines leave it."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from pathlib import Path

import pytest

from enroot_py.errors import StoreError, UnsupportedError
from enroot_py.layers.scan import ForeignFileError
from enroot_py.linux.subordinate import find_ranges, run_as_mapped_root
from enroot_py.operations.export import export
from enroot_py.operations.remove import remove
from enroot_py.squashfs.reader import SquashfsImage
from enroot_py.store.containers import list_names
from enroot_py.store.removal import remove_container
from tests.operations.importing import Workplace

BUILD = """
mkdir -p "$1/etc" "$1/home/user/.ssh"
echo x > "$1/etc/shadow"
echo y > "$1/home/user/.ssh/key"
chown -R 1000:1000 "$1/home" && chmod -R go-rwx "$1/home" && chmod 000 "$1/etc/shadow"
chown 42:42 "$1/etc" && chmod 500 "$1/etc"
"""


def build(path: Path, *, foreign_root: bool = False) -> None:
    """Make a tree of which parts belong to subordinate ids."""
    more = 'chown 7:7 "$1"' if foreign_root else ":"
    path.parent.mkdir(exist_ok=True)
    run_as_mapped_root(
        lambda: subprocess.run(["sh", "-ec", BUILD + more, "sh", str(path)], check=True) and None
    )
    assert os.stat(path / "home").st_uid not in (0, os.getuid())


@pytest.mark.kernel
@pytest.mark.parametrize("foreign_root", [False, True])
def test_trees_of_subordinate_ids_are_removed(place: Workplace, foreign_root: bool) -> None:
    build(place.data / "box", foreign_root=foreign_root)
    settings = place.settings()
    assert list_names(settings) == ("box",)
    remove("box", settings=settings)
    assert os.listdir(place.data) == []


@pytest.mark.kernel
@pytest.mark.parametrize("foreign_root", [False, True])
def test_trees_of_subordinate_ids_are_exported(place: Workplace, foreign_root: bool) -> None:
    box = place.data / "box"
    build(box, foreign_root=foreign_root)
    before = os.stat(box / "etc").st_mode, os.stat(box / "home").st_uid
    try:
        image = export("box", str(place.out / "box.sqsh"), settings=place.settings())
        assert (os.stat(box / "etc").st_mode, os.stat(box / "home").st_uid) == before
    finally:
        remove("box", settings=place.settings())
    with SquashfsImage(image) as opened:
        assert opened.read("etc/shadow") == b"x\n"
        assert opened.read("home/user/.ssh/key") == b"y\n"
        modes = {path: stat.S_IMODE(node.mode) for path, node in opened.walk()}
    assert modes[b"etc/shadow"] == 0 and modes[b"etc"] == 0o500 and modes[b"home"] == 0o700
    assert place.leftovers() == []


@pytest.mark.kernel
def test_without_subordinate_ids_the_export_says_whose_it_is(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(place.data / "box")
    with monkeypatch.context() as patched:
        patched.setenv("PATH", "/nonexistent")
        with pytest.raises(ForeignFileError, match="Cannot read .*: it belongs to user"):
            export("box", str(place.out / "box.sqsh"), settings=place.settings())
    assert os.listdir(place.out) == []
    remove("box", settings=place.settings())


@pytest.mark.kernel
def test_without_subordinate_ids_the_error_says_what_is_left(place: Workplace) -> None:
    def refuse(action: object) -> None:
        raise UnsupportedError("none here")

    build(place.data / "own")
    build(place.data / "foreign", foreign_root=True)
    try:
        with pytest.raises(StoreError, match="Cannot remove all of .*own") as caught:
            remove_container(str(place.data / "own"), as_mapped=refuse)
        left = caught.value.hint.split()[5].rstrip(";")
        assert os.path.isdir(left)
        # What another user owns altogether is not touched, and keeps its name.
        with pytest.raises(StoreError, match="Cannot remove all of .*foreign"):
            remove_container(str(place.data / "foreign"), as_mapped=refuse)
        assert list_names(place.settings()) == ("foreign",)
    finally:
        run_as_mapped_root(
            lambda: subprocess.run(["rm", "-rf", str(place.data)], check=True) and None
        )


@pytest.mark.kernel
def test_errors_of_the_child_are_raised_here() -> None:
    def fail() -> None:
        os.mkdir("/no/such/folder")

    with pytest.raises(FileNotFoundError) as caught:
        run_as_mapped_root(fail)
    assert caught.value.filename == "/no/such/folder"


def test_ranges_are_found_by_name_and_number(tmp_path: Path) -> None:
    path = tmp_path / "subuid"
    uid = os.getuid()
    name = pwd.getpwuid(uid).pw_name
    path.write_text(
        f"# comment\n{name}:100000:65536\nother:1:2\n{uid}:300000:10\n{name}:x:1\n{name}:5:0\n:::\n"
    )
    assert find_ranges(str(path), uid) == [(100000, 65536), (300000, 10)]
    assert find_ranges(str(tmp_path / "missing"), uid) == []
    assert find_ranges(str(path), 4147706236) == []
