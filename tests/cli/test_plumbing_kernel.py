"""The plumbing commands in real namespaces, as an ordinary user calls them."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hooks.contexts import write_file
from tests.hooks.sandbox import Sandbox, identity, sandbox_in

pytestmark = pytest.mark.kernel

UNSHARE = ("enroot-nsenter", "--user", "--mount", "--remap-root")


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with sandbox_in(tmp_path) as sandbox:
        yield sandbox


def script(sandbox: Sandbox, text: str, *, options: tuple[str, ...] = UNSHARE) -> str:
    """Run a shell script in new namespaces, our commands on its PATH; return its stdout."""
    path = f"{sandbox.environ['PATH']}:{sandbox.programs}"
    done = sandbox.call(*options, "/bin/sh", "-euc", text, PATH=path)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ("--user", "user"),
        ("--mount", "mnt"),
        ("--pid", "pid"),
        ("--net", "net"),
        ("--ipc", "ipc"),
        ("--uts", "uts"),
    ],
)
def test_only_the_namespaces_asked_for_are_new(sandbox: Sandbox, option: str, kind: str) -> None:
    options = ("enroot-nsenter", *dict.fromkeys(["--user", option]))
    kinds = ("user", "mnt", "pid", "net", "ipc", "uts")
    text = "; ".join(f"readlink /proc/self/ns/{name}" for name in kinds)
    inside = dict(zip(kinds, script(sandbox, text, options=options).split(), strict=True))
    changed = {name for name in kinds if inside[name] != identity("self", name)}
    assert changed == {"user", kind}


def test_the_user_stays_or_becomes_root(sandbox: Sandbox) -> None:
    text = "id -u; grep CapEff /proc/self/status | cut -f 2"
    uid, capabilities = script(sandbox, text, options=("enroot-nsenter", "--user")).split()
    assert int(uid) == os.getuid()
    assert int(capabilities, 16)
    assert script(sandbox, text).split()[0] == "0"


def test_ownership_calls_are_fakes_in_a_user_namespace(sandbox: Sandbox) -> None:
    path = write_file(sandbox.folder / "file", "")
    script(sandbox, f"chown 1234:1234 {path}")
    assert path.stat().st_uid == os.getuid()


def test_loopback_is_up_in_a_new_network(sandbox: Sandbox) -> None:
    text = "cat /sys/class/net/lo/flags /proc/net/dev"
    assert "lo:" in script(sandbox, text, options=("enroot-nsenter", "--user", "--net"))


def test_a_pid_namespace_gives_back_status_and_number(sandbox: Sandbox) -> None:
    options = ("enroot-nsenter", "--user", "--pid")
    text = "echo $$ $ENROOT_NSENTER_PID; exit 7"
    done = sandbox.call(*options, "/bin/sh", "-c", text)
    assert done.returncode == 7
    inner, outer = map(int, done.stdout.split())
    assert inner == 1
    assert outer > 1


def test_the_environment_of_a_file_replaces_ours(sandbox: Sandbox) -> None:
    path = write_file(sandbox.folder / "environ", "A=1\njunk\nPATH=/usr/bin:/bin\n")
    done = sandbox.call("enroot-nsenter", "--envfile", str(path), "env", SECRET="x")
    assert sorted(done.stdout.split()) == ["A=1", "PATH=/usr/bin:/bin"]
    fd = os.open(path, os.O_RDONLY)
    done = subprocess.run(
        [sandbox.programs / "enroot-nsenter", "--envfd", str(fd), "env"],
        pass_fds=[fd],
        env=sandbox.environ,
        capture_output=True,
        text=True,
        check=True,
    )
    os.close(fd)
    assert sorted(done.stdout.split()) == ["A=1", "PATH=/usr/bin:/bin"]


def test_no_descriptor_is_passed_on(sandbox: Sandbox) -> None:
    read, write = os.pipe()
    done = subprocess.run(
        [sandbox.programs / "enroot-nsenter", "--user", "ls", "/proc/self/fd"],
        pass_fds=[read, write],
        env=sandbox.environ,
        capture_output=True,
        text=True,
        check=True,
    )
    os.close(read)
    os.close(write)
    assert done.stdout.split() == ["0", "1", "2", "3"]  # the last is of the listing itself


@pytest.fixture
def running(sandbox: Sandbox) -> Iterator[int]:
    """A running container's process."""
    process = subprocess.Popen(
        [sandbox.programs / "enroot", "start", "box", "sh", "-c", "echo up; exec sleep 1000"],
        env=sandbox.environ,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    yield process.pid
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_running_container_is_joined(sandbox: Sandbox, running: int) -> None:
    options = ("--target", str(running), "--user", "--mount", "--workdir", "/tmp")
    text = "readlink /proc/self/ns/mnt; readlink /proc/self/ns/user; pwd; cat /etc/passwd"
    done = sandbox.call("enroot-nsenter", *options, "/bin/sh", "-c", text)
    assert done.returncode == 0, done.stderr
    mount, user, folder, *passwd = done.stdout.split("\n")
    assert (mount, user) == (identity(running, "mnt"), identity(running, "user"))
    assert folder == "/tmp"
    assert passwd[0] == "root:x:0:0:root:/root:/bin/sh"


def test_only_the_kinds_asked_for_are_joined(sandbox: Sandbox, running: int) -> None:
    done = sandbox.call(
        "enroot-nsenter", "--target", str(running), "--user", "readlink", "/proc/self/ns/mnt"
    )
    assert done.stdout.strip() == identity("self", "mnt")


def test_entries_are_mounted_beneath_the_root(sandbox: Sandbox) -> None:
    root = sandbox.folder / "root"
    write_file(root / "kept", "")
    (root / "out").symlink_to(sandbox.folder / "outside")
    (sandbox.folder / "outside").mkdir()
    fstab = write_file(
        sandbox.folder / "fstab",
        "# comment\n"
        "tmpfs /a tmpfs x-create=dir,mode=700\n"
        f"{root}/kept /a/b none x-create=file,bind,ro,nosuid\n"
        f"{root} /out/c none x-create=dir,bind\n"
        "/no/such /d none bind,x-create=dir,nofail,silent\n"
        "tmpfs /late tmpfs x-create=dir 0 1\n",
    )
    output = script(
        sandbox,
        f"enroot-mount --root {root} {fstab}; grep {root} /proc/self/mountinfo;"
        f" enroot-mount --root {root} --pass 1 {fstab}; [ -d {root}/late ]",
    )
    targets = {line.split()[4]: line.split()[5] for line in output.splitlines()}
    assert f"{root}/a" in targets
    assert "ro" in targets[f"{root}/a/b"].split(",")
    assert f"{root}/late" not in targets
    assert list((sandbox.folder / "outside").iterdir()) == []


def test_a_mount_that_fails_is_named(sandbox: Sandbox) -> None:
    line = "/no/such /mnt none bind"
    path = f"{sandbox.environ['PATH']}:{sandbox.programs}"
    done = sandbox.call(*UNSHARE, "sh", "-c", f"echo {line} | enroot-mount -", PATH=path)
    assert done.returncode == 1
    assert "[ERROR] Cannot mount /no/such at /mnt: No such file or directory" in done.stderr


def test_a_root_is_switched_to(sandbox: Sandbox) -> None:
    environ = write_file(sandbox.folder / "environ", "A=1\nENROOT_X=2\n")
    rc = write_file(sandbox.folder / "rc", 'echo "rc $*"; exec "$@"\n')
    output = script(
        sandbox,
        f'echo "{sandbox.rootfs} {sandbox.rootfs} none rbind" | enroot-mount -;'
        f'echo "/proc /proc none rbind" | enroot-mount --root {sandbox.rootfs} -;'
        f"exec enroot-switchroot --rcfile {rc} --envfile {environ} --workdir /mnt {sandbox.rootfs}"
        " sh -c 'pwd; ls /; env; grep NoNewPrivs /proc/self/status'",
    )
    lines = output.split()
    assert lines[:2] == ["rc", "sh"]
    assert "/mnt" in lines
    assert "busybox" not in lines
    assert "A=1" in lines
    assert "NoNewPrivs: 1" in output.replace("\t", " ")
    assert "HOME=" not in output


def test_the_images_command_script_can_be_left_out(sandbox: Sandbox) -> None:
    write_file(sandbox.rootfs / "etc/rc", 'echo "image rc"; exec "$@"\n')
    bind = f'echo "{sandbox.rootfs} {sandbox.rootfs} none rbind" | enroot-mount -;'
    switch = f"{bind} exec enroot-switchroot {{}} {sandbox.rootfs} /bin/echo hello"
    assert script(sandbox, switch.format("")) == "image rc\nhello\n"
    assert script(sandbox, switch.format("--norc")) == "hello\n"


def test_a_login_completes_the_environment(sandbox: Sandbox) -> None:
    write_file(sandbox.rootfs / "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
    write_file(sandbox.folder / "environ", "")
    output = script(
        sandbox,
        f'echo "{sandbox.rootfs} {sandbox.rootfs} none rbind" | enroot-mount -;'
        f'echo "/proc /proc none rbind" | enroot-mount --root {sandbox.rootfs} -;'
        f"exec enroot-switchroot --login --envfile {sandbox.folder}/environ {sandbox.rootfs} env",
    )
    assert {"HOME=/root", "USER=root", "SHELL=/bin/sh"} <= set(output.split())


@pytest.fixture
def layers(tmp_path: Path) -> tuple[Path, Path]:
    """Two extracted layers: the upper one deletes a file, and all of a folder."""
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    for name in ("gone", "kept", "opaque/old", "deep/a/b/gone", "both/x"):
        write_file(lower / name, name)
    write_file(upper / ".wh.gone", "")
    write_file(upper / "opaque/.wh..wh..opq", "")
    write_file(upper / "opaque/new", "new")
    write_file(upper / "deep/a/b/.wh.gone", "")
    write_file(upper / "both/y", "y")
    write_file(upper / ".wh.both", "")
    write_file(upper / ".wh.-x", "")
    (upper / "link").symlink_to(lower)
    return lower, upper


def test_whiteouts_become_those_of_overlayfs(sandbox: Sandbox, layers: tuple[Path, Path]) -> None:
    lower, upper = layers
    done = sandbox.call("enroot-aufs2ovlfs", str(upper))
    assert done.returncode == 0, done.stderr
    assert not list(upper.rglob(".wh.*"))
    for name in ("gone", "deep/a/b/gone", "-x"):
        status = (upper / name).lstat()
        assert stat.S_ISCHR(status.st_mode)
        assert status.st_rdev == 0
    assert sorted(os.listdir(lower / "deep/a/b")) == ["gone"]
    merged = sandbox.folder / "merged"
    merged.mkdir()
    output = script(
        sandbox,
        f'echo "overlay {merged} overlay lowerdir={upper}:{lower},userxattr" | enroot-mount -;'
        f"cd {merged}; find . -type f | sort",
    )
    assert output.split() == ["./both/y", "./kept", "./opaque/new"]


@pytest.mark.parametrize("installed", [True, False])
def test_an_overlay_is_squashed(
    sandbox: Sandbox, layers: tuple[Path, Path], installed: bool
) -> None:
    lower, upper = layers
    image = sandbox.folder / "image.sqsh"
    sandbox.call("enroot-aufs2ovlfs", str(upper))
    words = f"enroot-mksquashovlfs {upper}:{lower} {image} -all-root -no-progress -comp zstd"
    if installed:
        done = sandbox.call(*words.split())
        assert done.returncode == 0, done.stderr
    else:
        # Our own writer does it where mksquashfs is hidden.
        hide = f"echo /dev/null {shutil.which('mksquashfs')} none bind | enroot-mount -;"
        script(sandbox, f"{hide} {words}")
    listed = subprocess.run(["unsquashfs", "-l", image], capture_output=True, text=True, check=True)
    names = {line.removeprefix("squashfs-root") for line in listed.stdout.splitlines()}
    assert {"/kept", "/opaque/new", "/both/y"} <= names
    assert not {"/gone", "/opaque/old", "/both/x", "/deep/a/b/gone"} & names


def test_a_pid_namespace_ends_with_whoever_waits_for_it(sandbox: Sandbox) -> None:
    process = subprocess.Popen(
        [
            *(sandbox.programs / "enroot-nsenter", "--user", "--pid"),
            *("sh", "-c", "echo $ENROOT_NSENTER_PID; sleep 1000"),
        ],
        env=sandbox.environ,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    inner = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 60
    while os.path.exists(f"/proc/{inner}") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{inner}")
