"""Who owns what: hooks of root and of others, unknown users, a rootfs of root. Runs as root."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hooks.contexts import write_file
from tests.hooks.sandbox import Sandbox, sandbox_in

pytestmark = pytest.mark.root

UNKNOWN = 4147706236


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    # pytest's own temporary folders are closed to other users, again and again.
    with tempfile.TemporaryDirectory(prefix="enroot-owners-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with sandbox_in(folder) as sandbox:
            yield sandbox


def give(folder: Path, uid: int) -> None:
    """Let a user own a folder and everything below it."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


def start_as(sandbox: Sandbox, uid: int, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sandbox.programs / "enroot", "start", *words],
        user=uid,
        group=uid,
        extra_groups=[],
        env=sandbox.environ,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(("owner", "refused"), [(0, False), (UNKNOWN, False), (4242, True)])
def test_hooks_belong_to_root_or_to_the_user(sandbox: Sandbox, owner: int, refused: bool) -> None:
    give(sandbox.folder, UNKNOWN)
    path = write_file(
        sandbox.sysconf / "hooks.d/10-x.sh", "#!/bin/sh\necho A=1 >> $ENROOT_ENVIRON\n", mode=0o755
    )
    os.chown(path, owner, owner)
    done = start_as(sandbox, UNKNOWN, "box", "sh", "-c", "echo $A")
    assert (done.returncode, done.stdout) == ((1, "") if refused else (0, "1\n"))
    if refused:
        assert f"{path} belongs to another user (uid 4242)" in done.stderr


def test_a_user_whom_the_host_does_not_know(sandbox: Sandbox) -> None:
    give(sandbox.folder, UNKNOWN)
    done = start_as(sandbox, UNKNOWN, "box", "sh", "-c", "id -u; id -un; id -gn; pwd")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split()
    assert lines[:3] == [str(UNKNOWN), f"user{UNKNOWN}", f"user{UNKNOWN}"]
    done = start_as(sandbox, UNKNOWN, "--root", "box", "id", "-un")
    assert done.stdout == "root\n"


def test_a_rootfs_of_root_is_not_changed(sandbox: Sandbox) -> None:
    for name in ("run", "home"):
        give(sandbox.folder / name, UNKNOWN)
    for name in ("hosts", "hostname", "resolv.conf", "machine-id", "passwd", "group"):
        write_file(sandbox.rootfs / "etc" / name, "")
    for name in ("run", "lock"):
        (sandbox.rootfs / "var" / name).mkdir(parents=True)
    before = sorted(path for path in sandbox.rootfs.rglob("*"))
    done = start_as(sandbox, UNKNOWN, "box", "id", "-un")
    assert (done.returncode, done.stdout) == (0, f"user{UNKNOWN}\n"), done.stderr
    assert sorted(path for path in sandbox.rootfs.rglob("*")) == before
    assert (sandbox.rootfs / "etc/passwd").read_text() == ""


def test_root_himself_keeps_his_name(sandbox: Sandbox) -> None:
    assert sandbox.start("box", "id", "-un") == "root\n"
    passwd = (sandbox.rootfs / "etc/passwd").read_text().splitlines()
    assert [line.split(":")[0] for line in passwd] == ["root", "nobody"]
