"""Full, small and read-only file systems: case C12. Runs in mount namespaces of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operations.importing import Workplace
from tests.registry.fake_registry import FakeRegistry
from tests.registry.images import Layer, file

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def big() -> Iterator[FakeRegistry]:
    """A registry with an image of 30 MiB that does not compress, and one of many small files."""
    with FakeRegistry() as server:
        server.images.image("t/big", "1", [Layer([file("big", os.urandom(30 << 20))], "none")])
        server.images.image("t/many", "1", [[file(f"f/{at}", str(at)) for at in range(300)]])
        yield server


class Room:
    """A shell in a mount namespace, where file systems of any size can be mounted."""

    def __init__(self, place: Workplace) -> None:
        self.place = place
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh"]
        self.shell = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            cwd=place.out, env=place.environ, text=True,
        )  # fmt: skip

    def do(self, script: str) -> list[str]:
        """Run a script; returns its lines, the last one its exit status."""
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        self.shell.stdin.write(f"{script}\necho status:$?\n")
        self.shell.stdin.flush()
        lines = []
        while not lines or not lines[-1].startswith("status:"):
            line = self.shell.stdout.readline()
            assert line, lines
            lines.append(line.rstrip("\n"))
        return [*lines[:-1], lines[-1].removeprefix("status:")]

    def mount(self, path: Path, options: str) -> None:
        path.mkdir(exist_ok=True)
        assert self.do(f"mount -t tmpfs -o mode=755,{options} tmpfs {path}") == ["0"]
        # The shell's own folder may have been covered.
        self.do(f"cd {self.place.out}")

    def enroot(self, *words: str) -> list[str]:
        return self.do(shlex.join(self.place.command(*words)) + " < /dev/null")

    def listing(self, path: Path) -> list[str]:
        return self.do(f"(cd {path} && find . -mindepth 1)")[:-1]

    def fill(self, path: Path, free: int) -> None:
        """Leave only `free` MiB of a file system of 100 MiB."""
        assert self.do(f"head -c {100 - free}M /dev/zero > {path}/.filler")[-1] == "0"

    def empty(self, path: Path) -> None:
        """Give the room back that `fill` took."""
        assert self.do(f"rm {path}/.filler") == ["0"]


@pytest.fixture
def room(place: Workplace) -> Iterator[Room]:
    made = Room(place)
    yield made
    made.shell.kill()
    made.shell.communicate()


def failure(lines: list[str]) -> str:
    """The one error of a failed command, with its hint."""
    assert lines[-1] == "1", lines
    errors = [line for line in lines if line.startswith("[ERROR]")]
    assert len(errors) == 1, lines
    assert not any("Traceback" in line for line in lines)
    return " ".join(lines[lines.index(errors[0]) : -1])


def test_a_full_output_is_named_and_left_empty(room: Room, big: FakeRegistry) -> None:
    uri = f"docker://{big.host}#t/big:1"
    room.mount(room.place.out, "size=100m")
    room.fill(room.place.out, 8)
    said = failure(room.enroot("import", "-o", "i.sqsh", uri))
    assert f"No space left while writing the image: {room.place.out}/i.sqsh" in said
    assert f"{room.place.out} (tmpfs" in said
    assert "--output" in said
    assert room.listing(room.place.out) == ["./.filler"]
    room.empty(room.place.out)
    assert room.enroot("import", "-o", "i.sqsh", uri)[-1] == "0"
    assert room.listing(room.place.out) == ["./i.sqsh"]


def test_a_cache_that_is_too_small_is_named_before_the_download(
    room: Room, big: FakeRegistry
) -> None:
    uri = f"docker://{big.host}#t/big:1"
    room.mount(room.place.cache, "size=100m")
    room.fill(room.place.cache, 8)
    with big.lock:
        big.log.clear()
    said = failure(room.enroot("import", "-o", "i.sqsh", uri))
    assert "Not enough space left while downloading the layers" in said
    assert f"{room.place.cache} (tmpfs, 8.0 MiB free), 30.0 MiB needed" in said, said
    assert "ENROOT_CACHE_PATH" in said
    assert len([entry for entry in big.log if "/blobs/" in entry.path]) == 1  # the config
    assert room.listing(room.place.out) == []
    room.empty(room.place.cache)
    assert room.enroot("import", "-o", "i.sqsh", uri)[-1] == "0"


def test_a_cache_that_fills_up_is_named_and_keeps_no_half_blob(
    room: Room, big: FakeRegistry
) -> None:
    # Room enough by what the file system says, but none by its number of inodes.
    room.mount(room.place.cache, "size=100m,nr_inodes=12")
    said = failure(room.enroot("import", "-o", "i.sqsh", f"docker://{big.host}#t/big:1"))
    assert "No space left while" in said
    assert "no inodes free" in said
    assert "ENROOT_CACHE_PATH" in said
    assert not any("partial/sha256" in path for path in room.listing(room.place.cache))
    assert room.listing(room.place.out) == []


def test_an_image_that_does_not_fit_into_the_cache_is_imported_all_the_same(
    room: Room, big: FakeRegistry
) -> None:
    room.mount(room.place.cache, "size=40m")
    lines = room.enroot("import", "-o", "i.sqsh", f"docker://{big.host}#t/big:1")
    assert lines[-1] == "0"
    assert any(line.startswith("[WARN] The image is not kept in the cache") for line in lines)
    assert not any(".sqsh" in path for path in room.listing(room.place.cache))


@pytest.mark.parametrize("image", ["t/big:1", "t/many:1"])
def test_full_data_is_named_and_holds_no_half_container(
    room: Room, big: FakeRegistry, image: str
) -> None:
    uri = f"docker://{big.host}#{image}"
    if image == "t/big:1":
        room.mount(room.place.data, "size=100m")
        room.fill(room.place.data, 8)
    else:
        room.mount(room.place.data, "size=100m,nr_inodes=400")
        room.do(f"cd {room.place.data}; touch .filler; for i in $(seq 1 300); do touch .$i; done")
        room.do(f"cd {room.place.out}")
    before = room.listing(room.place.data)
    said = failure(room.enroot("load", "-n", "box", uri))
    assert f"No space left while unpacking the image: {room.place.data} on" in said
    assert f"{room.place.data} (tmpfs" in said
    assert "ENROOT_DATA_PATH" in said
    assert room.listing(room.place.data) == before
    assert room.enroot("import", "-o", "i.sqsh", uri)[-1] == "0"
    said = failure(room.enroot("create", "-n", "box", "i.sqsh"))
    assert "ENROOT_DATA_PATH" in said
    assert room.listing(room.place.data) == before
    room.do(f"rm -f {room.place.data}/.*[0-9r]")
    assert room.enroot("load", "-n", "box", uri)[-1] == "0"


def test_a_start_on_a_full_disk_says_so_and_the_container_is_as_before(
    room: Room, big: FakeRegistry
) -> None:
    """enroot#39."""
    room.mount(room.place.data, "size=4m")
    assert room.enroot("load", "-n", "box", f"docker://{big.host}#t/many:1")[-1] == "0"
    room.do(f"head -c 5M /dev/zero > {room.place.data}/.filler")
    said = failure(room.enroot("start", "box", "true"))
    assert "No space left on device" in said
    assert "ENROOT_DATA_PATH" in said
    assert not any("passwd" in path for path in room.listing(room.place.data))
    room.empty(room.place.data)
    # The image has no program that could be run: now it is found out.
    assert room.enroot("start", "box", "true")[-1] == "127"
    assert any("passwd" in path for path in room.listing(room.place.data))


@pytest.mark.parametrize("which", ["out", "cache", "data"])
def test_a_read_only_file_system_is_named(room: Room, big: FakeRegistry, which: str) -> None:
    path = {"out": room.place.out, "cache": room.place.cache, "data": room.place.data}[which]
    room.mount(path, "size=8m")
    assert room.do(f"mount -o remount,bind,ro {path}") == ["0"]
    words = ("load", "-n", "box") if which == "data" else ("import", "-o", "i.sqsh")
    said = failure(room.enroot(*words, f"docker://{big.host}#t/many:1"))
    assert "Read-only file system" in said
    assert str(path) in said


def test_a_small_temporary_folder_is_no_hindrance(room: Room, big: FakeRegistry) -> None:
    room.mount(room.place.temp, "size=64k")
    uri = f"docker://{big.host}#t/big:1"
    assert room.enroot("import", "-o", "i.sqsh", uri)[-1] == "0"
    assert room.enroot("load", "-n", "box", uri)[-1] == "0"


def test_a_compressed_archive_needs_its_room_in_the_temporary_folder(
    room: Room, big: FakeRegistry
) -> None:
    archive = room.place.path / "big.tar.gz"
    archive.write_bytes(Layer([file("manifest.json", os.urandom(2 << 20))]).stored())
    room.mount(room.place.temp, "size=512k")
    said = failure(room.enroot("import", "-o", "i.sqsh", f"docker-archive:{archive}"))
    assert "No space left while decompressing the archive" in said
    assert "ENROOT_TEMP_PATH" in said
    assert room.listing(room.place.temp) == []
    assert room.listing(room.place.out) == []
