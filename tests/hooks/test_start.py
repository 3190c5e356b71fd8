"""Hooks of real containers, started by an ordinary user."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hooks.contexts import write_file
from tests.hooks.sandbox import Sandbox, sandbox_in

pytestmark = pytest.mark.kernel


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with sandbox_in(tmp_path) as sandbox:
        yield sandbox


def test_the_user_is_known_inside(sandbox: Sandbox) -> None:
    entry = pwd.getpwuid(os.getuid())
    assert sandbox.start("box", "id", "-un").strip() == entry.pw_name
    assert sandbox.start("--root", "box", "id", "-un").strip() == "root"
    lines = (sandbox.rootfs / "etc/passwd").read_text().splitlines()
    assert [line.split(":")[0] for line in lines] == ["root", "nobody", entry.pw_name]
    assert os.access(f"{sandbox.rootfs}{entry.pw_dir}", os.F_OK)


def test_a_rootfs_without_write_permissions_starts(sandbox: Sandbox) -> None:
    (sandbox.rootfs / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    (sandbox.rootfs / "etc/passwd").chmod(0)
    for path in (sandbox.rootfs / "etc", sandbox.rootfs):
        path.chmod(0o555)
    name = pwd.getpwuid(os.getuid()).pw_name
    assert sandbox.start("box", "id", "-un").strip() == name


@pytest.mark.parametrize("options", [(), ("--net",), ("--net", "--root")])
def test_cgroups_are_shown_read_only(sandbox: Sandbox, options: tuple[str, ...]) -> None:
    """With `--net` too, on version 1 and hybrid hosts, where the original fails."""
    mounts = sandbox.start(*options, "box", "cat", "/proc/self/mountinfo").splitlines()
    hierarchies = [line.split() for line in mounts if " - cgroup" in line]
    with open("/proc/self/mountinfo") as file:
        host = [line for line in file if " - cgroup" in line]
    assert bool(hierarchies) == bool(host)
    visible = {fields[4]: fields for fields in hierarchies}  # the last mount is on top
    assert all("ro" in fields[5].split(",") for fields in visible.values())
    assert all(fields[3] == "/" for fields in visible.values())


def test_a_restricted_dev(sandbox: Sandbox) -> None:
    names = sandbox.start("--ipc", "box", "ls", "/dev").split()
    assert {"null", "zero", "pts", "shm", "fd", "ptmx", "stdin"} <= set(names)
    assert not {"kvm", "fuse", "loop0", "sda", "vda"} & set(names)
    names = sandbox.start("box", "ls", "/dev", ENROOT_RESTRICT_DEV="y").split()
    assert "null" in names
    assert "loop0" not in names


def test_the_home_folder_is_mounted(sandbox: Sandbox) -> None:
    write_file(sandbox.folder / "home/mine", "here")
    script = 'echo "$HOME"; cat "$HOME/mine"'
    home = str(sandbox.folder / "home")
    assert sandbox.start("box", "sh", "-c", script, ENROOT_MOUNT_HOME="y") == f"{home}\nhere"
    remapped = sandbox.start("--root", "box", "sh", "-c", script, ENROOT_MOUNT_HOME="y")
    assert remapped == "/root\nhere"


@pytest.mark.parametrize("options", [(), ("--root",), ("--pid",), ("--pid", "--root")])
def test_a_foreign_hook_works_as_with_enroot(sandbox: Sandbox, options: tuple[str, ...]) -> None:
    write_file(sandbox.folder / "data.txt", "data")
    sandbox.hook(
        "50-site.sh",
        '#!/usr/bin/env bash\nset -euo pipefail\nsource "${ENROOT_LIBRARY_PATH}/common.sh"\n'
        "common::checkcmd enroot-mount enroot-nsenter enroot-switchroot\n"
        "common::getpwent | cut -d: -f1 > ${HOME}/user\n"
        "[ $(readlink /proc/self/ns/mnt) = $(readlink /proc/${ENROOT_PID}/ns/mnt) ]\n"
        'cat << EOF | enroot-mount --root "${ENROOT_ROOTFS}" -\n'
        f"{sandbox.folder}/data.txt /run/now none x-create=file,bind,ro\n"
        "tmpfs /scratch tmpfs x-create=dir,mode=777\n"
        "EOF\n"
        f'echo "{sandbox.folder}/data.txt /later" >> "${{ENROOT_MOUNTS}}"\n'
        'echo "SITE=yes" >> "${ENROOT_ENVIRON}"\n'
        'echo hello > "${ENROOT_ROOTFS}/mnt/written"\n',
    )
    script = 'cat /run/now /later /mnt/written; echo " $SITE"; touch /scratch/x'
    output = sandbox.start(*options, "box", "sh", "-c", script)
    assert output == "datadatahello\n yes\n"
    assert (sandbox.folder / "home/user").read_text().strip() == pwd.getpwuid(os.getuid()).pw_name


def test_a_hook_that_is_not_executable_is_off(sandbox: Sandbox) -> None:
    sandbox.hook("50-off.sh", "#!/bin/sh\nexit 1\n", mode=0o644)
    sandbox.start("box", "true")


def test_a_system_folder_says_which_hooks_there_are(sandbox: Sandbox) -> None:
    (sandbox.sysconf / "hooks.d").mkdir(parents=True)
    sandbox.start("box", "/bin/true")
    assert not (sandbox.rootfs / "etc/passwd").exists()


def test_a_stub_run_by_path_does_what_the_built_in_hook_does(sandbox: Sandbox) -> None:
    (sandbox.sysconf / "hooks.d").mkdir(parents=True)
    sandbox.hook(
        "50-indirect.sh",
        '#!/bin/sh\nPATH="$PATH:/nonexistent"\n'
        '"$ENROOT_LIBRARY_PATH/hooks.d/10-shadow.sh" && '
        'ENROOT_MOUNT_HOME=y "$ENROOT_LIBRARY_PATH/hooks.d/10-home.sh"\n',
    )
    output = sandbox.start("box", "sh", "-c", 'id -un; echo "$HOME"; ls -d "$HOME"')
    home = str(sandbox.folder / "home")
    assert output.split() == [pwd.getpwuid(os.getuid()).pw_name, home, home]


CONF = """\
#ENROOT_REMAP_ROOT=y
environ() { echo "FROM_CONF=1"; [ -n "${HOME-}" ] && echo "HOST_HOME=${HOME}" || :; }
mounts() { echo "${ENROOT_ROOTFS}/mnt /copy none x-create=dir,bind"; }
hooks() { echo 'exec "$@"' > ${ENROOT_ROOTFS}/etc/rc.local; enroot-mount --root ${ENROOT_ROOTFS} - \
<<< "tmpfs /fromhook tmpfs x-create=dir"; }
rc() { echo "rc: $*"; exec "$@"; }
"""


def test_a_configuration_script(sandbox: Sandbox) -> None:
    path = write_file(sandbox.folder / "conf.sh", CONF)
    write_file(sandbox.rootfs / "mnt/mark", "mark")
    output = sandbox.start(
        "--conf",
        str(path),
        "box",
        "sh",
        "-c",
        'id -u; echo "$FROM_CONF $HOST_HOME"; ls /copy; cat /etc/rc.local; '
        "grep -c fromhook /proc/self/mountinfo",
    )
    lines = output.splitlines()
    assert lines[0].startswith("rc: sh -c id -u")
    assert lines[-5:] == ["0", f"1 {sandbox.folder}/home", "mark", 'exec "$@"', "1"]


def test_a_batch_file(sandbox: Sandbox) -> None:
    path = write_file(
        sandbox.folder / "job", f"#ENROOT_ROOTFS=box\n{CONF.splitlines()[-1]}\n", mode=0o755
    )
    done = sandbox.call("enroot", "batch", str(path), "echo", "words")
    assert (done.returncode, done.stdout) == (0, "rc: echo words\nwords\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("environ() {\n", "not a valid bash file"),
        ("hooks() { false; }\n", "The hooks function"),
        ("mounts() { echo /no; }\n", "Cannot mount /no"),
    ],
)
def test_a_bad_configuration_script_stops_the_start(
    sandbox: Sandbox, text: str, message: str
) -> None:
    path = write_file(sandbox.folder / "conf.sh", text)
    done = sandbox.call("enroot", "start", "--conf", str(path), "box", "sh", "-c", "echo ran")
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
