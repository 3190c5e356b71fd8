"""Root filesystems that try to reach the host when they are started. Nothing outside may change."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hooks.contexts import write_file
from tests.hooks.sandbox import Sandbox
from tests.operations.starting import open_modes

pytestmark = pytest.mark.kernel


class Hostile(Sandbox):
    """A sandbox beside a host folder that must stay as it is."""

    def __init__(self, folder: Path, host: Path) -> None:
        super().__init__(folder)
        self.host = host
        for name in ("proc", "sys", "dev", "etc", "tmp", "run", "var/run", "home"):
            write_file(self.host / name / "victim", "untouched")
        self.before = self.listing()

    def listing(self) -> list[tuple[str, str]]:
        return sorted(
            (path, (Path(path) / name).read_text())
            for path, _, names in os.walk(self.host)
            for name in names
        )

    def replace(self, path: str, target: str) -> None:
        """Put a symbolic link at a path of the rootfs."""
        place = self.rootfs / path
        if place.is_dir() and not place.is_symlink():
            place.rmdir()
        else:
            place.unlink(missing_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Hostile]:
    # Not below /tmp, which is a mount of its own inside.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as host:
        sandbox = Hostile(tmp_path / "box", Path(host))
        yield sandbox
        assert sandbox.listing() == sandbox.before
    open_modes(tmp_path)


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("name", ["proc", "sys", "dev", "etc", "tmp", "var/run"])
def test_system_folders_that_are_links_to_the_host(
    hostile: Hostile, name: str, writable: bool
) -> None:
    hostile.replace(name, f"{hostile.host}/{name}")
    options = ("--rw",) if writable else ()
    assert hostile.start(*options, "box", "echo", "fine") == "fine\n"
    # The link leads into the rootfs, where what was mounted or written has landed.
    assert Path(f"{hostile.rootfs}{hostile.host}/{name}").is_dir()


@pytest.mark.parametrize("target", ["..", "../../../..", "/..", "/../../../.."])
def test_links_that_climb_stay_at_the_root(hostile: Hostile, target: str) -> None:
    hostile.replace("tmp", f"{target}{hostile.host}/tmp")
    assert hostile.start("box", "ls", f"{hostile.host}/tmp") == ""


def test_a_folder_that_leads_back_to_itself_is_named(hostile: Hostile) -> None:
    hostile.replace("var", f"{hostile.host}/var")
    done = hostile.call("enroot", "start", "box", "true")
    assert done.returncode == 1
    assert "/var/run: Too many levels of symbolic links" in done.stderr


@pytest.mark.parametrize(
    "name", ["passwd", "group", "hosts", "hostname", "resolv.conf", "machine-id", "localtime"]
)
def test_files_of_etc_that_are_links_to_the_host(hostile: Hostile, name: str) -> None:
    hostile.replace(f"etc/{name}", f"{hostile.host}/etc/victim")
    done = hostile.call("enroot", "start", "box", "true")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("name", ["fstab", "environment", "passwd", "group", "login.defs", "rc"])
@pytest.mark.parametrize("kind", ["fifo", "folder", "huge", "loop", "device link", "unreadable"])
def test_configuration_files_of_odd_kinds_hold_nothing_up(
    hostile: Hostile, name: str, kind: str
) -> None:
    place = hostile.rootfs / "etc" / name
    make: dict[str, Callable[[], object]] = {
        "fifo": lambda: os.mkfifo(place),
        "folder": place.mkdir,
        "huge": lambda: os.truncate(write_file(place, ""), 1 << 40),
        "loop": lambda: place.symlink_to(name),
        "device link": lambda: place.symlink_to("/dev/zero"),
        "unreadable": lambda: write_file(place, "# A", mode=0),
    }
    make[kind]()
    if name == "rc" and kind in ("fifo", "huge", "device link"):
        return  # the container's own shell reads this one
    done = hostile.call("enroot", "start", "box", "true")
    assert "Traceback" not in done.stderr
    if done.returncode:
        assert name in done.stderr


@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "loop"])
def test_a_lock_of_an_odd_kind_is_refused_by_name(hostile: Hostile, kind: str) -> None:
    place = hostile.rootfs / ".lock"
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to(f"{hostile.host}/etc/victim" if kind == "link" else ".lock")
    done = hostile.call("enroot", "start", "box", "true")
    assert done.returncode == 1
    assert ".lock" in done.stderr


@pytest.mark.parametrize(
    "entry",
    [
        "${ENROOT_ROOTFS}/../../../../etc /mnt none bind",
        "${ENROOT_ROOTFS}/link /mnt none bind",
        "${ENROOT_ROOTFS}/mnt /../../../../../mnt2 none x-create=dir,bind",
        "${ENROOT_ROOTFS}/mnt /link/x none x-create=dir,bind",
    ],
)
def test_an_images_own_mounts_stay_inside(hostile: Hostile, entry: str) -> None:
    hostile.replace("link", f"{hostile.host}/etc")
    write_file(hostile.rootfs / "etc/fstab", entry + "\n")
    done = hostile.call("enroot", "start", "box", "sh", "-c", "cat /mnt/victim /mnt/passwd")
    assert "untouched" not in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["/etc", "/nonexistent /mnt none bind 0 x", "\0", "${"])
def test_a_malformed_fstab_of_the_image_is_named(hostile: Hostile, text: str) -> None:
    write_file(hostile.rootfs / "etc/fstab", f"tmpfs\n{text}\n")
    done = hostile.call("enroot", "start", "box", "true")
    assert done.returncode == 1
    assert "the container's /etc/fstab" in done.stderr


def test_variables_of_the_image_run_nothing_on_the_host(hostile: Hostile) -> None:
    evil = f"$(touch {hostile.host}/run/evil)`touch {hostile.host}/run/evil`"
    write_file(
        hostile.rootfs / "etc/environment",
        f"LD_PRELOAD=/evil.so\nBASH_ENV=/evil\nPATH={hostile.host}\nA={evil}\nPYTHONPATH=/evil\n"
        "ENROOT_ROOTFS=/etc\nENROOT_LIBRARY_PATH=/evil\n",
    )
    hostile.hook("50-env.sh", f"#!/bin/bash\nenv > {hostile.folder}/seen\n")
    done = hostile.call("enroot", "start", "--rw", "box", "/bin/cat", "/proc/self/environ")
    assert f"A={evil}" in done.stdout.split("\0")
    seen = (hostile.folder / "seen").read_text()
    assert "evil" not in seen
    assert f"ENROOT_ROOTFS={hostile.rootfs}\n" in seen


def test_a_huge_value_is_explained(hostile: Hostile) -> None:
    write_file(hostile.rootfs / "etc/environment", f"A={'x' * (1 << 20)}\n")
    done = hostile.call("enroot", "start", "box", "true")
    assert done.returncode == 126
    assert "1048576 characters" in done.stderr


@pytest.mark.parametrize("command", [("/proc/self/exe",), ("/proc/1/root/bin/sh", "-c", "id")])
def test_the_launchers_own_files_are_out_of_reach(
    hostile: Hostile, command: tuple[str, ...]
) -> None:
    """CVE-2019-5736 and its kin: what started the container cannot be reached from inside."""
    script = "for p in /proc/[0-9]*; do (echo x > $p/exe) 2> /dev/null && echo $p; done; true"
    assert hostile.start("box", "sh", "-c", script) == ""
    done = hostile.call("enroot", "start", "box", *command)
    assert "host" not in done.stdout


def test_only_the_standard_descriptors_are_open(hostile: Hostile, tmp_path: Path) -> None:
    script = "ls -l /proc/self/fd"
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        for options in ((), ("--pid",), ("--root",)):
            done = subprocess.run(
                [str(hostile.programs / "enroot"), "start", *options, "box", "sh", "-c", script],
                env=hostile.environ, pass_fds=(folder,), capture_output=True, text=True, check=True,
            )  # fmt: skip
            open_files = [line.split()[-3] for line in done.stdout.splitlines() if "->" in line]
            assert open_files[:3] == ["0", "1", "2"]
            assert str(tmp_path) not in done.stdout
            assert len(open_files) <= 4  # the fourth is the listing's own
    finally:
        os.close(folder)


def test_the_terminal_outside_cannot_be_typed_into(hostile: Hostile) -> None:
    """CVE-2017-5226. Python's static sibling in the rootfs is the test's own C program."""
    source = write_file(
        hostile.folder / "t.c",
        "#include <sys/ioctl.h>\n#include <errno.h>\n#include <stdio.h>\n"
        "int main() { char c = 'x'; int r = ioctl(0, TIOCSTI, &c);"
        ' printf("%d %d\\n", r, errno == EPERM); return 0; }\n',
    )
    target = hostile.rootfs / "bin/typer"
    subprocess.run(["gcc", "-static", "-o", target, source], check=True)
    command = f"{hostile.programs}/enroot start box typer"
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        env=hostile.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["-1", "1"]
