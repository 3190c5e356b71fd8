"""Starts by unusual users: ids beyond 2**31, no account, no privileges, somebody else's container;
and by root, who may keep his powers.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hooks.contexts import write_file
from tests.hooks.sandbox import Sandbox, identity, sandbox_in
from tests.operations.starting import gone, make_image, open_modes, status_field

STRANGER = 4147706236
OTHER = 20001


class Place(Sandbox):
    """A sandbox that any user can reach, and whose commands run as a chosen one."""

    def run_as(
        self, uid: int, *words: str, options: tuple[str, ...] = ("--no-new-privs",), **environ: str
    ) -> subprocess.CompletedProcess[str]:
        user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *options, "--"]
        return subprocess.run(
            [*user, str(self.programs / words[0]), *words[1:]],
            env={**self.environ, **environ}, cwd="/", stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    def give_to(self, uid: int) -> None:
        for path, folders, files in os.walk(self.folder):
            for name in (".", *folders, *files):
                os.chown(f"{path}/{name}", uid, uid, follow_symlinks=False)


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Place(Path(folder) / "box")
        open_modes(Path(folder))


@pytest.mark.root
@pytest.mark.parametrize("options", [(), ("--root",), ("--pid", "--net", "--ipc", "--uts")])
def test_a_user_without_account_or_privileges(place: Place, options: tuple[str, ...]) -> None:
    place.give_to(STRANGER)
    image = make_image(place.rootfs, place.folder / "box.sqsh")
    expected = "0" if "--root" in options else str(STRANGER)
    for target in ("box", str(image)):
        script = "id -u; id -g; touch /tmp/x && ls -ln /tmp/x | { read m l u r; echo $u; }"
        done = place.run_as(STRANGER, "enroot", "start", *options, target, "sh", "-c", script)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.split() == [expected] * 3
    assert not gone(str(image))


@pytest.mark.root
@pytest.mark.parametrize("kind", ["tmpfs -o nodev,nosuid,noexec", "ramfs", "overlay"])
def test_any_file_system_can_hold_the_runtime_folder(place: Place, kind: str) -> None:
    image = make_image(place.rootfs, place.folder / "box.sqsh")
    for name in ("lower", "upper", "work"):
        (place.folder / name).mkdir()
    place.give_to(STRANGER)
    run = place.folder / "run"
    options = kind.removeprefix(kind.split()[0])
    if kind == "overlay":
        options = f"-o lowerdir={place.folder}/lower,upperdir={place.folder}/upper"
        options += f",workdir={place.folder}/work"
    script = (
        f"mount -t {kind.split()[0]} {options} none {run} && chown {STRANGER} {run} &&"
        f" exec setpriv --reuid={STRANGER} --regid={STRANGER} --clear-groups --no-new-privs"
        f' {place.programs}/enroot start "$0" echo fine'
    )
    for target in ("box", str(image)):
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", script, target],
            env=place.environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.stdout, done.stderr) == ("fine\n", "")


@pytest.mark.root
def test_a_container_on_a_file_system_without_execution_is_explained(place: Place) -> None:
    place.give_to(STRANGER)
    (place.rootfs / "bin/sh").unlink()
    script = (
        f"mount --bind {place.folder}/data {place.folder}/data && mount -o remount,bind,noexec"
        f" {place.folder}/data && exec setpriv --reuid={STRANGER} --regid={STRANGER}"
        f" --clear-groups {place.programs}/enroot start box /bin/busybox"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        env=place.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 126
    assert "noexec" in done.stderr and "ENROOT_DATA_PATH" in done.stderr


@pytest.mark.root
@pytest.mark.parametrize("options", [(), ("--root",), ("--rw",)])
def test_somebody_elses_container_runs_and_stays_as_it_is(
    place: Place, options: tuple[str, ...]
) -> None:
    place.folder.joinpath("run").chmod(0o1777)
    script = "(echo x > /mnt/new) 2> /dev/null || echo fine"
    environ = {"XDG_RUNTIME_DIR": "", "TMPDIR": str(place.folder / "run"), "HOME": "/nonexistent"}
    words = ("enroot", "start", *options, "box", "sh", "-c", script)
    done = place.run_as(OTHER, *words, **environ)
    assert done.returncode == 1
    assert "must have been started by its owner once" in done.stderr
    place.start("box", "true")
    before = sorted(place.rootfs.rglob("*"))
    done = place.run_as(OTHER, *words, **environ)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
    assert sorted(place.rootfs.rglob("*")) == before


@pytest.mark.root
def test_a_container_on_a_read_only_file_system_gets_a_layer_in_memory(place: Place) -> None:
    place.give_to(STRANGER)
    before = sorted(place.rootfs.rglob("*"))
    script = (
        f"mount --bind {place.folder}/data {place.folder}/data && mount -o remount,bind,ro"
        f" {place.folder}/data && exec setpriv --reuid={STRANGER} --regid={STRANGER}"
        f" --clear-groups {place.programs}/enroot start --rw box sh -c"
        " 'echo x > /mnt/new && cat /mnt/new'"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        env=place.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("x\n", "")
    assert sorted(place.rootfs.rglob("*")) == before


@pytest.mark.root
def test_a_container_that_anybody_may_have_put_there_is_refused(place: Place) -> None:
    place.give_to(OTHER)
    place.rootfs.parent.chmod(0o1777)
    done = place.run_as(STRANGER, "enroot", "start", "box", "true")
    assert done.returncode == 1
    assert str(OTHER) in done.stderr and "ENROOT_DATA_PATH" in done.stderr


@pytest.mark.root
def test_a_runtime_folder_of_somebody_else_is_refused(place: Place) -> None:
    place.give_to(STRANGER)
    (place.folder / "run").chmod(0o1777)
    (place.folder / "run/enroot").mkdir()
    os.chown(place.folder / "run/enroot", OTHER, OTHER)
    done = place.run_as(STRANGER, "enroot", "start", "box", "true")
    assert done.returncode == 1
    assert "ENROOT_RUNTIME_PATH" in done.stderr


@pytest.mark.root
def test_root_is_confined_like_anybody_unless_superusers_are_allowed(place: Place) -> None:
    script = "readlink /proc/self/ns/user; cat /proc/self/status"
    output = place.start("box", "sh", "-c", script)
    assert output.splitlines()[0] != identity("self", "user")
    assert place.start("box", "cat", "/proc/self/uid_map").split() == ["0", "0", "1"]
    output = place.start("--rw", "box", "sh", "-c", script, ENROOT_ALLOW_SUPERUSER="y")
    assert output.splitlines()[0] == identity("self", "user")
    own = Path("/proc/self/status").read_text()
    assert status_field(output, "CapEff") == status_field(own, "CapPrm")
    assert status_field(output, "Seccomp") == status_field(own, "Seccomp")
    (place.rootfs / "bin/chown").symlink_to("busybox")
    environ = {"ENROOT_ALLOW_SUPERUSER": "y"}
    place.start("--rw", "box", "sh", "-c", "touch /mnt/f; chown 12:34 /mnt/f", **environ)
    assert (place.rootfs / "mnt/f").stat().st_uid == 12


@pytest.mark.root
def test_a_superusers_image_is_served_too(place: Place) -> None:
    image = make_image(place.rootfs, place.folder / "box.sqsh")
    environ = {"ENROOT_ALLOW_SUPERUSER": "y"}
    assert place.start(str(image), "id", "-u", **environ) == "0\n"
    assert not gone(str(image))


@pytest.mark.root
def test_a_superusers_mounts_do_not_reach_the_host(place: Place) -> None:
    """Where the host's mounts are shared, as systemd makes them."""
    write_file(place.folder / "x/y", "")
    script = (
        "cat /proc/self/mountinfo > $1/before;"
        ' "$2" start --rw -m "$1/x:/mnt" -m tmpfs:/mnt2:x-create=dir box true || exit 1;'
        "cat /proc/self/mountinfo > $1/after; cmp $1/before $1/after"
    )
    for environ in ({}, {"ENROOT_ALLOW_SUPERUSER": "y"}):
        done = subprocess.run(
            [
                "unshare", "-m", "--propagation", "shared", "sh", "-c", script, "sh",
                str(place.folder), str(place.programs / "enroot"),
            ],
            env={**place.environ, **environ}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.kernel
@pytest.mark.parametrize("target", ["folder", "image"])
def test_a_refused_namespace_is_explained_at_once(tmp_path: Path, target: str) -> None:
    with sandbox_in(tmp_path) as sandbox:
        words = "box"
        if target == "image":
            words = str(make_image(sandbox.rootfs, sandbox.folder / "box.sqsh"))
        script = (
            "echo 0 > /proc/sys/user/max_user_namespaces &&"
            f' exec {sandbox.programs}/enroot start "$0" true'
        )
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "sh", "-c", script, words],
            env=sandbox.environ, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 1
        assert "Cannot create a namespace: unshare" in done.stderr
        assert "sysctl -w user.max_user_namespaces" in done.stderr
        assert not gone(str(sandbox.folder / "box.sqsh"))


@pytest.mark.kernel
def test_a_container_within_a_container(tmp_path: Path) -> None:
    """As root of a user namespace, who is nobody special: /run is not his."""
    with sandbox_in(tmp_path) as sandbox:
        del sandbox.environ["XDG_RUNTIME_DIR"]
        sandbox.environ["TMPDIR"] = str(sandbox.folder / "run")
        command = [str(sandbox.programs / "enroot"), "start", "box", "id", "-u"]
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", *command],
            env=sandbox.environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
        assert os.listdir(sandbox.folder / "run") == [f"enroot-{os.getuid()}"]
