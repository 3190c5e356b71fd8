"""Starts straight from an image, and that nothing of them is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.hooks.contexts import write_file
from tests.hooks.sandbox import Sandbox
from tests.operations.starting import (
    DEATHS,
    gone,
    long_sleep,
    make_bare,
    make_image,
    open_modes,
    processes_with,
    running,
)

pytestmark = pytest.mark.kernel


class Images(Sandbox):
    """A sandbox with an image of its container."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.image = make_image(self.rootfs, folder / "box image.sqsh")


@pytest.fixture
def images(tmp_path: Path) -> Iterator[Images]:
    (tmp_path / "inner").mkdir()
    sandbox = Images(tmp_path / "inner")
    yield sandbox
    assert not gone(str(sandbox.image)), "a server outlives its container"
    open_modes(tmp_path)


def without_squashfuse(images: Images) -> dict[str, str]:
    """Return an environment in which nothing can serve an image."""
    folder = images.folder / "programs"
    folder.mkdir(exist_ok=True)
    return {"PATH": str(folder)}


@pytest.fixture(params=["squashfuse", "unpacked"])
def environ(request: pytest.FixtureRequest, images: Images) -> dict[str, str]:
    return {} if request.param == "squashfuse" else without_squashfuse(images)


def test_an_image_runs_and_stays_as_it_is(images: Images, environ: dict[str, str]) -> None:
    before = images.image.read_bytes()
    script = "id -u; echo x > /new && cat /new; echo y >> /etc/hosts2; cat /etc/hosts2"
    for _ in range(2):  # nothing of the first start is there in the second
        output = images.start("--rw", str(images.image), "sh", "-c", script, **environ)
        assert output.split() == [str(os.getuid()), "x", "y"]
    assert images.image.read_bytes() == before
    assert os.listdir(images.folder / "run/enroot") == []


def test_an_image_is_read_only_unless_asked_for(images: Images, environ: dict[str, str]) -> None:
    script = "(echo x > /new) 2> /dev/null || echo read-only; touch /tmp/x && echo tmp"
    output = images.start(str(images.image), "sh", "-c", script, **environ)
    assert output.split() == ["read-only", "tmp"]


@pytest.mark.parametrize("options", [(), ("--root",), ("--pid",), ("--root", "--pid", "--net")])
def test_its_files_belong_to_the_user_inside(
    images: Images, environ: dict[str, str], options: tuple[str, ...]
) -> None:
    script = "ls -ln /bin/busybox | { read m l u g rest; echo $u $g $(id -u) $(id -g); }"
    output = images.start(*options, str(images.image), "sh", "-c", script, **environ)
    uid, gid, own_uid, own_gid = output.split()
    assert (uid, gid) == (own_uid, own_gid)


def test_an_existing_file_can_be_changed_in_a_writable_container(
    images: Images, environ: dict[str, str]
) -> None:
    script = "echo added >> /etc/group && grep -c added /etc/group"
    assert images.start("--rw", str(images.image), "sh", "-c", script, **environ) == "1\n"


def test_a_wish_for_fuse_overlayfs_is_answered(images: Images) -> None:
    for target, warnings in ((str(images.image), 1), ("box", 0)):
        done = images.call("enroot", "start", target, "echo", "hi", ENROOT_NATIVE_OVERLAYFS="no")
        assert (done.returncode, done.stdout) == (0, "hi\n")
        assert done.stderr.count("fuse-overlayfs is not supported") == warnings


def test_a_relative_path_and_a_link_lead_to_the_image(images: Images, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(images.image)
    for name in ("link", "./link", "inner/box image.sqsh"):
        done = subprocess.run(
            [str(images.programs / "enroot"), "start", name, "echo", "hi"],
            env=images.environ, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.stdout, done.stderr) == ("hi\n", "")


def test_the_server_is_out_of_the_containers_reach(images: Images) -> None:
    """It runs on the host, with no more rights in the container's eyes than any stranger."""
    command = ("sh", "-c", "echo ready; read pid; ls /proc/$pid/root/ && echo inside")
    with running(images, "--root", str(images.image), *command) as process:
        (server,) = [line for line in processes_with(str(images.image)) if "squashfuse" in line]
        pid = server.split()[0]
        assert os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")
        assert os.readlink(f"/proc/{pid}/ns/user") == os.readlink("/proc/self/ns/user")
        assert Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text() == ""
        assert os.getsid(int(pid)) != os.getsid(process.pid)  # no signals from the terminal
        descriptors = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        assert all(
            name in ("/dev/null", "/dev/fuse", "/fuse", str(images.image)) or "memfd" in name
            for name in descriptors
        )
        output, _ = process.communicate(f"{pid}\n")
        assert "inside" not in output


@pytest.mark.parametrize("options", [(), ("--pid",)])
@pytest.mark.parametrize("death", DEATHS)
def test_no_process_is_left_after_any_death(
    images: Images, options: tuple[str, ...], death: str
) -> None:
    script = f"trap 'exit 9' TERM; {long_sleep()} & echo ready; read word; kill %1; exit 3"
    with running(images, *options, str(images.image), "sh", "-c", script) as process:
        assert any("squashfuse" in line for line in processes_with(str(images.image)))
        number = DEATHS[death]
        if number is None:
            # A job that has not become its program yet would take the shell's trap with it.
            while not any(line.split()[1] == "sleep" for line in processes_with(long_sleep())):
                assert process.poll() is None
            process.communicate("on\n")
            assert process.returncode == 3
        else:
            os.kill(process.pid, number)
            process.wait(60)
            for line in processes_with(long_sleep()):
                with suppress(ProcessLookupError):
                    os.kill(int(line.split()[0]), signal.SIGKILL)
    assert not gone(str(images.image))


def test_a_process_left_in_the_background_keeps_its_files(images: Images) -> None:
    script = "(sleep 1; cat /bin/busybox > /dev/null && echo late) & echo first"
    done = images.call("enroot", "start", str(images.image), "sh", "-c", script)
    assert done.stdout == "first\nlate\n"
    assert not gone(str(images.image))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--mount", "/nonexistent:/mnt", "IMAGE", "true"),
        ("--rc", "/nonexistent", "IMAGE"),
        ("IMAGE", "nonexistent"),
    ],
)
def test_no_process_is_left_after_a_start_that_failed(
    images: Images, arguments: tuple[str, ...]
) -> None:
    words = [str(images.image) if word == "IMAGE" else word for word in arguments]
    assert images.call("enroot", "start", *words).returncode != 0
    assert not gone(str(images.image))


def test_no_process_is_left_after_a_hook_that_failed(images: Images) -> None:
    images.hook("50-fail.sh", "#!/bin/sh\nexit 3\n")
    done = images.call("enroot", "start", str(images.image), "true")
    assert (done.returncode, "50-fail.sh" in done.stderr) == (1, True)
    assert not gone(str(images.image))


def test_standard_streams_are_not_held_open_by_the_server(images: Images) -> None:
    command = [str(images.programs / "enroot"), "start", str(images.image), "echo", "x"]
    done = subprocess.run(
        ["sh", "-c", '"$@" | cat', "sh", *command],
        env=images.environ, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout == "x\n"


def test_without_squashfuse_an_image_is_unpacked_once_for_all(images: Images) -> None:
    environ = without_squashfuse(images)
    command = [str(images.programs / "enroot"), "start", str(images.image), "echo", "hi"]
    processes = [
        subprocess.Popen(
            command, env={**images.environ, **environ}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]  # fmt: skip
    answers = [process.communicate() for process in processes]
    assert [answer[0] for answer in answers] == ["hi\n"] * 4
    assert sum("Unpacking" in answer[1] for answer in answers) == 1
    (folder,) = images.folder.glob("cache/enroot/**/extracted")
    assert len(os.listdir(folder)) == 1
    write_file(images.rootfs / "bin/new", "")
    make_image(images.rootfs, images.image)
    assert images.start(str(images.image), "ls", "/bin/new", **environ) == "/bin/new\n"
    assert len(os.listdir(folder)) == 2


def test_a_server_that_cannot_serve_is_replaced_by_unpacking(images: Images) -> None:
    environ = without_squashfuse(images)
    fake = "#!/bin/sh\necho this one is broken >&2\nexit 1\n"
    write_file(Path(environ["PATH"]) / "squashfuse", fake, mode=0o755)
    for options in ((), ("--pid", "--root")):
        done = images.call("enroot", "start", *options, str(images.image), "echo", "hi", **environ)
        assert (done.returncode, done.stdout) == (0, "hi\n")
        assert "this one is broken" in done.stderr


def test_an_image_without_shell_and_folders(images: Images, environ: dict[str, str]) -> None:
    image = make_image(make_bare(images.folder / "bare"), images.folder / "bare.sqsh")
    for options in ((), ("--root",), ("--rw",)):
        output = images.start(*options, str(image), "/echo", "a b", "c", **environ)
        assert output == "a b c\n"
    done = images.call("enroot", "start", str(image), **environ)
    assert done.returncode == 127
    assert "Nothing to start" in done.stderr


@pytest.mark.parametrize("damage", ["truncated", "noise"])
def test_a_damaged_image_is_refused_in_words(images: Images, damage: str) -> None:
    data = images.image.read_bytes()
    data = data[:5000] if damage == "truncated" else data[:96] + b"\xff" * (len(data) - 96)
    images.image.write_bytes(data)
    for environ in ({}, without_squashfuse(images)):
        done = images.call("enroot", "start", str(images.image), "true", **environ)
        assert done.returncode not in (0, 2)
        assert "Traceback" not in done.stderr
        assert str(images.image) in done.stderr
    assert not gone(str(images.image))


def kill_at_random_moments(images: Images, count: int) -> None:
    """Start and kill; the moments are spread over a whole start and a bit more."""
    for options in ((), ("--pid",)):
        command = [
            str(images.programs / "enroot"),
            "start",
            *options,
            str(images.image),
            "sleep",
            "9",
        ]
        for number in range(count):
            process = subprocess.Popen(
                command, env=images.environ,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            time.sleep(0.12 * number / count)
            process.kill()
            process.wait()
    assert not gone(str(images.image))
    assert images.start(str(images.image), "echo", "fine") == "fine\n"
    assert os.listdir(images.folder / "run/enroot") == []


def test_no_process_is_left_by_a_start_killed_at_any_moment(images: Images) -> None:
    kill_at_random_moments(images, 20)


@pytest.mark.soak
def test_no_process_is_left_by_many_starts_killed(images: Images) -> None:
    kill_at_random_moments(images, 200)
