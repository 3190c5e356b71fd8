"""Hooks in order, built in and executed; what executed ones get and what becomes of bad ones."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from enroot_py.errors import HookError
from enroot_py.hooks.context import Edits
from enroot_py.hooks.find import STUB, find_hooks
from enroot_py.hooks.run import run_hooks
from enroot_py.plan.fstab import Mount
from tests.hooks.contexts import Container, descriptors_of, inheritable_descriptors, write_file

HOME = {"HOME": "/home/alice"}


def run(container: Container, **arguments: object) -> Edits:
    context = container.context(**arguments)
    return run_hooks(context, find_hooks(context.settings))


def pids_named(mark: str) -> list[int]:
    """Return processes that have `mark` in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_answers_of_all_kinds_come_together(container: Container) -> None:
    container.hook("10-home.sh", f"{STUB}home\n")
    container.hook(
        "20-foreign.sh",
        "#!/bin/sh\n"
        'grep -q "^HOME=/home/alice$" "$ENROOT_ENVIRON" || exit 3\n'
        'grep -q "^/home/alice /home/alice none " "$ENROOT_MOUNTS" || exit 4\n'
        'echo "FROM_HOOK=yes" >> "$ENROOT_ENVIRON"\n'
        'echo "/data /data none bind" >> "$ENROOT_MOUNTS"\n',
    )
    container.hook("30-sharp.sh", f"{STUB}sharp\n")
    host = {**HOME, "SLURM_NETWORK": "sharp"}
    edits = run(container, host=host, environ={"MELLANOX_VISIBLE_DEVICES": "all"}, mount_home=True)
    assert [mount.target for mount in edits.mounts] == ["/home/alice", "/data"]
    environ = dict(edits.environ)
    assert environ["FROM_HOOK"] == "yes"
    assert environ["NCCL_COLLNET_ENABLE"] == "1"


def test_the_context_is_not_changed(container: Container) -> None:
    container.hook("10-x.sh", '#!/bin/sh\necho A=2 >> "$ENROOT_ENVIRON"\n')
    context = container.context(environ={"A": "1"})
    edits = run_hooks(context, find_hooks(context.settings))
    assert (context.environ, dict(edits.environ)) == ({"A": "1"}, {"A": "2"})


def test_builtin_hooks_alone_write_no_files(container: Container) -> None:
    run(container, environ={"A": "1"})
    assert os.listdir(container.workdir) == []


def test_what_hooks_get(container: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = container.folder / "commands"
    write_file(commands / "enroot-mount", "", mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(commands / "enroot")])
    container.hook(
        "10-x.sh", f"#!/bin/sh\nenv > {container.folder}/seen\npwd >> {container.folder}/seen\n"
    )
    host = {"SITE": "x", "BASH_ENV": "/evil", "PATH": "/usr/bin:/bin", "ENROOT_REMAP_ROOT": "no"}
    context = container.context(
        host, {"LD_PRELOAD": "/image.so", "PATH": "/image"}, unshare_net=True, hook_timeout=90
    )
    run_hooks(context, find_hooks(context.settings))
    lines = (container.folder / "seen").read_text().splitlines()
    seen = dict(line.partition("=")[::2] for line in lines)
    assert seen["ENROOT_PID"] == str(os.getpid())
    assert seen["ENROOT_ROOTFS"] == str(container.rootfs)
    assert seen["ENROOT_WORKDIR"] == str(container.workdir)
    assert seen["ENROOT_ENVIRON"] == str(container.workdir / "environment")
    assert seen["ENROOT_MOUNTS"] == str(container.workdir / "fstab")
    assert seen["ENROOT_LIBRARY_PATH"]
    assert seen["ENROOT_UNSHARE_NET"] == "y"
    assert seen["ENROOT_VERSION"]
    assert seen["SITE"] == "x"
    assert seen["PATH"] == f"/usr/bin:/bin:{commands}"
    assert lines[-1] == os.getcwd()
    assert not {"LD_PRELOAD", "BASH_ENV", "ENROOT_REMAP_ROOT"} & set(seen)


def test_standard_output_is_dropped_and_errors_are_shown(
    container: Container, capfd: pytest.CaptureFixture[str]
) -> None:
    container.hook("10-x.sh", "#!/bin/sh\necho out\necho err >&2\n")
    run(container)
    assert capfd.readouterr() == ("", "err\n")


def test_hooks_have_the_signals_of_a_shell(container: Container) -> None:
    path = container.folder / "signals"
    container.hook("10-x.sh", f"#!/bin/sh\ngrep SigIgn /proc/self/status > {path}\n")
    run(container)
    ignored = int(path.read_text().split()[1], 16)
    assert not ignored & (1 << signal.SIGPIPE - 1)


def test_a_script_without_an_interpreter_line_runs_in_bash(container: Container) -> None:
    container.hook("10-x.sh", 'a=(1 2)\necho "A=${a[1]}" >> "$ENROOT_ENVIRON"\n')
    assert dict(run(container).environ)["A"] == "2"


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("#!/bin/sh\nexit 7\n", 7, "it exited with status 7"),
        ("#!/bin/sh\nkill -9 $$\n", 137, "killed by signal 9"),
        ("#!/no/such/interpreter\n", 126, "cannot be executed"),
    ],
)
def test_a_hook_that_fails_stops_the_start(
    container: Container, text: str, status: int, message: str
) -> None:
    path = container.hook("10-x.sh", text)
    container.hook("20-y.sh", f"#!/bin/sh\ntouch {container.folder}/ran\n")
    with pytest.raises(HookError, match=message) as caught:
        run(container)
    assert str(path) in str(caught.value)
    assert (caught.value.path, caught.value.status) == (str(path), status)
    assert not (container.folder / "ran").exists()
    assert ("#!" in caught.value.hint) == ("interpreter" in text)


@pytest.mark.parametrize("pidfd", [True, False])
def test_a_hook_that_hangs_is_killed_with_its_children(
    container: Container, monkeypatch: pytest.MonkeyPatch, pidfd: bool
) -> None:
    if not pidfd:
        monkeypatch.delattr(os, "pidfd_open")
    mark = f"hang-{os.getpid()}-{time.monotonic_ns()}"
    sleeper = f"exec -a {mark} sleep 1000"
    container.hook(
        "10-x.sh",
        f"#!/bin/bash\ntrap '' TERM INT\n( ({sleeper}) & {sleeper} ) &\n({sleeper}) & wait\n",
    )
    with pytest.raises(HookError, match="longer than 0.3 seconds") as caught:
        run(container, hook_timeout=0.3)
    assert "ENROOT_HOOK_TIMEOUT" in caught.value.hint
    deadline = time.monotonic() + 60
    while pids_named(mark) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert pids_named(mark) == []


def test_a_fast_hook_passes_without_pidfd(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    container.hook("10-x.sh", '#!/bin/sh\necho A=1 >> "$ENROOT_ENVIRON"\n')
    assert dict(run(container).environ) == {"A": "1"}


def test_a_daemon_does_not_hold_up_the_start(container: Container) -> None:
    pidfile = container.folder / "pid"
    container.hook("10-x.sh", f"#!/bin/sh\nsetsid sleep 1000 &\necho $! > {pidfile}\n")
    run(container, hook_timeout=60)
    daemon = int(pidfile.read_text())
    try:
        assert descriptors_of(daemon, "sleep") <= inheritable_descriptors()
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_hooks_may_mount_at_once_and_later(container: Container) -> None:
    container.hook("10-devices.sh", f"{STUB}devices\n")
    container.hook("20-x.sh", '#!/bin/sh\necho "/x /y none bind" >> "$ENROOT_MOUNTS"\n')
    edits = run(container, restrict_dev=True)
    assert container.mounted[1] == edits.mounts[0]._replace(
        source="tmpfs",
        target="/dev",
        fstype="tmpfs",
        options=container.mounted[1].options,
    )
    assert edits.mounts == (Mount("/x", "/y", "none", ("bind",)),)
