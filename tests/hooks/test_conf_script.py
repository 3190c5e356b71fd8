"""Configuration scripts: directives, the four functions, and scripts that are wrong."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from enroot_py.errors import HookError, NotFoundError, UsageError
from enroot_py.hooks.conf_script import ConfScript, read_directives
from enroot_py.hooks.run import run_hooks
from enroot_py.plan.fstab import Mount
from enroot_py.settings import load_settings
from tests.hooks.contexts import Container, descriptors_of, inheritable_descriptors, write_file
from tests.this_process import children, open_files

SCRIPT = """\
#ENROOT_REMAP_ROOT=y
# ENROOT_ROOTFS_WRITABLE yes
counter=0
environ() {
    counter=$((counter + 1))
    grep -q '^BASE=1$' "${ENROOT_ENVIRON}"
    echo "FROM_ENVIRON=${counter}"
    echo "ENROOT_SECRET=x"
    echo "HOST=${SITE-}"
}
hooks() {
    counter=$((counter + 1))
    echo noise
    echo 'exec "$@"' > "${ENROOT_ROOTFS}/rc.local"
    echo "FROM_HOOKS=${counter}" >> "${ENROOT_ENVIRON}"
    echo "/h /h none bind" >> "${ENROOT_MOUNTS}"
}
mounts() {
    counter=$((counter + 1))
    echo "/data:${counter} /mnt none bind,ro"
    echo "/blank\\\\040dir /b none bind"
}
rc() {
    echo "rc $counter"
    if true; then
        exec "$@"
    fi
}
"""


@pytest.fixture
def script(container: Container) -> Path:
    return write_file(container.folder / "conf.sh", SCRIPT)


def test_functions_run_in_one_shell(container: Container, script: Path) -> None:
    context = container.context({"SITE": "here"}, {"BASE": "1"})
    with ConfScript(str(script), context) as conf:
        assert conf.functions() == {"environ", "mounts", "hooks", "rc"}
        environ = conf.environ()
        assert environ == {"BASE": "1", "FROM_ENVIRON": "1", "HOST": "here"}
        edits = run_hooks(context._replace(environ=environ), (), conf)
        assert dict(edits.environ) == {**environ, "FROM_HOOKS": "2"}
        assert edits.mounts == (Mount("/h", "/h", "none", ("bind",)),)
        assert conf.mounts() == (
            Mount("/data:3", "/mnt", "none", ("bind", "ro")),
            Mount("/blank dir", "/b", "none", ("bind",)),
        )
        rc = conf.rc()
    assert context.environ == {"BASE": "1"}
    assert rc.splitlines()[0].strip() == 'echo "rc $counter";'
    assert 'exec "$@"' in rc
    assert (container.rootfs / "rc.local").read_text() == 'exec "$@"\n'


def test_a_script_without_functions_does_nothing(container: Container) -> None:
    path = write_file(container.folder / "empty", "")
    context = container.context(environ={"A": "1"})
    with ConfScript(str(path), context) as conf:
        assert conf.environ() == {"A": "1"}
        assert conf.mounts() == ()
        assert conf.rc() == ""
        assert dict(run_hooks(context, (), conf).environ) == {"A": "1"}


def test_output_of_the_script_itself_is_dropped(
    container: Container, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write_file(container.folder / "noisy", "echo out; echo err >&2\nhooks() { echo out; }\n")
    with ConfScript(str(path), container.context()) as conf:
        run_hooks(container.context(), (), conf)
    assert capfd.readouterr() == ("", "err\n")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("touch ran\nenviron() {\n", UsageError, "not a valid bash file"),
        ("exit 5\n", HookError, "exited with status 5"),
        ("false\n", HookError, "exited with status 1"),
        ("echo $UNSET_VARIABLE\n", HookError, "failed"),
        ("environ() { false; echo A=1; }\n", HookError, "The environ function of .* status 1"),
        ("environ() { kill -9 $$; }\n", HookError, "signal 9"),
        ("environ() { sleep 1000; }\n", HookError, "longer than 0.5 seconds"),
        ("sleep 1000\n", HookError, "longer than 0.5 seconds"),
    ],
)
def test_a_script_that_fails(
    container: Container,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    error: type[Exception],
    message: str,
) -> None:
    monkeypatch.chdir(container.folder)
    path = write_file(container.folder / "bad.sh", text)
    before = (open_files(), children())
    started = time.monotonic()
    context = container.context(hook_timeout=0.5 if "longer" in message else 60)
    with ConfScript(str(path), context) as conf, pytest.raises(error, match=message) as caught:
        conf.environ()
    assert str(path) in str(caught.value)
    assert time.monotonic() - started < 120
    assert not (container.folder / "ran").exists()
    assert (open_files(), children()) == before


def test_a_missing_bash_is_named(container: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    path = write_file(container.folder / "x", "")
    with pytest.raises(UsageError, match="bash") as caught:
        ConfScript(str(path), container.context())
    assert "bash" in caught.value.hint


def test_a_daemon_of_the_script_does_not_hold_it_up(container: Container) -> None:
    """Whatever descriptors the pipes get: bash treats those from 10 on differently."""
    pidfile = container.folder / "pid"
    path = write_file(
        container.folder / "x", f"hooks() {{ setsid sleep 1000 & echo $! > {pidfile}; }}\n"
    )
    occupied = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
    try:
        with ConfScript(str(path), container.context()) as conf:
            run_hooks(container.context(), (), conf)
    finally:
        for fd in occupied:
            os.close(fd)
    daemon = int(pidfile.read_text())
    try:
        assert descriptors_of(daemon, "sleep") <= inheritable_descriptors()
    finally:
        os.kill(daemon, 9)


def test_common_functions_are_there(container: Container) -> None:
    path = write_file(container.folder / "x", 'environ() { echo "A=$(common::debarch x86_64)"; }\n')
    with ConfScript(str(path), container.context()) as conf:
        assert conf.environ() == {"A": "amd64"}


def test_directives_are_read_in_order_and_override(script: Path, container: Container) -> None:
    directives = read_directives(str(script))
    assert directives == (("ENROOT_REMAP_ROOT", "y"), ("ENROOT_ROOTFS_WRITABLE", "yes"))
    settings = load_settings({"ENROOT_REMAP_ROOT": "no"}, directives=directives)
    assert settings.remap_root
    assert settings.rootfs_writable


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("#ENROOT_ROOTFS=x.sqsh", (("ENROOT_ROOTFS", "x.sqsh"),)),
        ("#\t ENROOT_ROOTFS x", (("ENROOT_ROOTFS", "x"),)),
        ("##ENROOT_ROOTFS=x", ()),
        (" #ENROOT_ROOTFS=x", ()),
        ("ENROOT_ROOTFS=x", ()),
        ("#PATH=x", ()),
        ("#enroot_x=y", ()),
        ("#!/usr/bin/enroot batch", ()),
        ("", ()),
    ],
)
def test_what_a_directive_is(
    container: Container, line: str, expected: tuple[tuple[str, str], ...]
) -> None:
    path = write_file(container.folder / "x", line + "\n")
    assert read_directives(str(path)) == expected


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "below-a-file"])
def test_directives_of_what_is_no_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "conf"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "below-a-file":
        path = write_file(path, "") / "x"
    with pytest.raises(NotFoundError, match="No such file"):
        read_directives(str(path))
