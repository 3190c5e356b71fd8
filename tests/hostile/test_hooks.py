"""Hooks that go wrong, and images that aim at hooks: rows 38, 39, 43, 45 and 52 of the threats.

What a hook is allowed to do is what the user is allowed to do: it is the administrator's or his own
program. These tests hold what an image, another user or a broken hook can bring about.
"""

from __future__ import annotations

import os
import pwd
import signal
import time
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


def test_an_etc_that_leads_to_the_host_is_not_followed(sandbox: Sandbox) -> None:
    outside = sandbox.folder / "outside"
    outside.mkdir()
    (sandbox.rootfs / "etc").rmdir()
    (sandbox.rootfs / "etc").symlink_to(outside)
    name = pwd.getpwuid(os.getuid()).pw_name
    assert sandbox.start("box", "id", "-un").strip() == name
    assert list(outside.iterdir()) == []


def test_a_hook_cannot_mount_outside_of_the_rootfs(sandbox: Sandbox) -> None:
    target = sandbox.folder / "target"
    target.mkdir()
    (sandbox.rootfs / "leads-out").symlink_to(target)
    data = write_file(sandbox.folder / "data/mark", "x").parent
    sandbox.hook(
        "50-x.sh",
        f'#!/bin/sh\necho "{data} /../../..{target} none x-create=dir,bind" >> "$ENROOT_MOUNTS"\n'
        f'echo "{data} /leads-out none x-create=dir,bind" >> "$ENROOT_MOUNTS"\n'
        f"echo 'ls {target}' > ${{ENROOT_WORKDIR}}/x\n",
    )
    assert "mark" in sandbox.start("box", "ls", str(target))
    assert list(target.iterdir()) == []


def test_the_images_variables_never_reach_hooks(sandbox: Sandbox) -> None:
    (sandbox.rootfs / "etc/environment").write_text(
        "LD_PRELOAD=/evil.so\nPATH=/evil\nBASH_ENV=/evil\nNVIDIA_DEBUG=$(touch /tmp/evil)\n"
    )
    sandbox.hook("50-x.sh", '#!/bin/bash\nenv > "$HOME/seen"\ncp "$ENROOT_ENVIRON" "$HOME/file"\n')
    sandbox.start("box", "/bin/true")
    seen = (sandbox.folder / "home/seen").read_text()
    assert "evil" not in seen
    assert "LD_PRELOAD=/evil.so\n" in (sandbox.folder / "home/file").read_text()
    assert not os.path.exists("/tmp/evil")


@pytest.mark.parametrize(
    ("text", "mode", "settings", "message"),
    [
        ("#!/bin/sh\nexit 3\n", 0o755, {}, "failed: it exited with status 3"),
        ("#!/bin/sh\nsleep 1000\n", 0o755, {"ENROOT_HOOK_TIMEOUT": "0.5"}, "longer than 0.5 s"),
        ("#!/bin/sh\n", 0o777, {}, "Everybody may write"),
        ('#!/bin/sh\necho "/no /x none bind" >> $ENROOT_MOUNTS\n', 0o755, {}, "Cannot mount /no"),
        ("#!/bin/sh\nrm $ENROOT_ENVIRON\n", 0o755, {}, "left no readable"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--pid",)])
def test_a_bad_hook_stops_the_start(
    sandbox: Sandbox,
    options: tuple[str, ...],
    text: str,
    mode: int,
    settings: dict[str, str],
    message: str,
) -> None:
    path = sandbox.hook("50-bad.sh", text, mode=mode)
    done = sandbox.call("enroot", "start", *options, "box", "sh", "-c", "echo ran", **settings)
    assert done.returncode == 1
    assert done.stdout == ""
    assert message in done.stderr
    if "mount" not in message:
        assert str(path) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("options", [(), ("--pid",)])
def test_a_hook_that_hangs_leaves_no_process(sandbox: Sandbox, options: tuple[str, ...]) -> None:
    mark = f"hook-{os.getpid()}-{time.monotonic_ns()}"
    sleeper = f"exec -a {mark} sleep 1000"
    sandbox.hook("50-x.sh", f"#!/bin/bash\n({sleeper}) &\n( ({sleeper}) & {sleeper} ) & wait\n")
    done = sandbox.call("enroot", "start", *options, "box", "true", ENROOT_HOOK_TIMEOUT="0.5")
    assert done.returncode == 1
    deadline = time.monotonic() + 60
    while processes(mark) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert processes(mark) == []


def processes(mark: str) -> list[str]:
    """Return the processes that have `mark` in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def test_a_daemon_goes_on_and_holds_nothing_up(sandbox: Sandbox) -> None:
    folder = sandbox.folder / "home"
    # The daemon must be up before the hook ends: the root is switched for it, too.
    daemon = f"setsid sh -c 'touch {folder}/$$; exec sleep 1000' 2> /dev/null &\n"
    wait = f"while [ $(ls {folder} | wc -l) -le $count ]; do sleep 0.01; done\n"
    sandbox.hook("50-x.sh", f"#!/bin/sh\ncount=$(ls {folder} | wc -l)\n{daemon}{wait}")
    try:
        for _ in range(2):  # the lock of the rootfs is free, though a daemon was started under it
            sandbox.start("box", "true")
        assert len(os.listdir(folder)) == 2
        for name in os.listdir(folder):
            assert os.path.exists(f"/proc/{name}")
    finally:
        for name in os.listdir(folder):
            os.kill(int(name), signal.SIGKILL)


@pytest.mark.parametrize("name", ["environment", "fstab"])
def test_answers_that_lead_elsewhere_are_refused(sandbox: Sandbox, name: str) -> None:
    variable = {"environment": "ENROOT_ENVIRON", "fstab": "ENROOT_MOUNTS"}[name]
    sandbox.hook("50-x.sh", f"#!/bin/sh\nln -sf /etc/passwd ${variable}\n")
    done = sandbox.call("enroot", "start", "box", "true")
    assert done.returncode == 1
    assert "50-x.sh left no readable" in done.stderr


@pytest.mark.parametrize("path", ["etc/passwd", "etc/group", "etc/localtime", "etc/login.defs"])
@pytest.mark.parametrize("kind", ["fifo", "link-to-host", "link-to-itself", "directory", "huge"])
def test_an_image_with_traps_starts_or_says_why(sandbox: Sandbox, path: str, kind: str) -> None:
    outside = write_file(sandbox.folder / "outside", "untouched")
    trap = sandbox.rootfs / path
    if kind == "fifo":
        os.mkfifo(trap)
    elif kind == "directory":
        trap.mkdir()
    elif kind == "huge":
        with open(trap, "wb") as file:
            file.truncate(1 << 40)
    else:
        trap.symlink_to(outside if kind == "link-to-host" else trap.name)
    done = sandbox.call("enroot", "start", "box", "sh", "-c", "id -un")
    if done.returncode == 0:
        assert done.stdout.strip() == pwd.getpwuid(os.getuid()).pw_name
    else:
        assert path.startswith(("etc/passwd", "etc/group"))
        assert kind in ("directory", "huge")
        assert f"/{path} in the container" in done.stderr
    assert "Traceback" not in done.stderr
    assert outside.read_text() == "untouched"


def test_values_of_an_image_are_never_evaluated(sandbox: Sandbox) -> None:
    target = sandbox.folder / "evaluated"
    (sandbox.rootfs / "etc/environment").write_text(
        f"A=$(touch {target})\nB=`touch {target}`\nC='; touch {target}\nHOME=$(touch {target})\n"
        f"NVIDIA_VISIBLE_DEVICES=$(touch {target})\nPYTORCH_VERSION=;touch {target}\n"
    )
    (sandbox.rootfs / "etc/login.defs").write_text(
        f"UMASK $(touch {target})\nSKEL $(touch {target})\n"
    )
    conf = write_file(sandbox.folder / "conf.sh", "hooks() { :; }\nenviron() { :; }\n")
    sandbox.hook("50-x.sh", "#!/bin/bash\nsource ${ENROOT_LIBRARY_PATH}/common.sh\n")
    sandbox.call("enroot", "start", "--conf", str(conf), "box", "true")
    assert not target.exists()
