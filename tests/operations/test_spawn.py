"""Containers beside a program that goes on."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from enroot_py.errors import (
    CommandError,
    EnrootError,
    HookError,
    InvalidMountError,
    KernelError,
    NotFoundError,
    UnsupportedError,
)
from enroot_py.operations.spawn import Container, spawn
from enroot_py.plan.fstab import Mount
from enroot_py.plan.spec import StartSpec
from enroot_py.settings import Settings, load_settings
from tests.hooks.contexts import inheritable_descriptors, wait_until_asleep, write_file
from tests.hooks.sandbox import Sandbox, identity, sandbox_in
from tests.operations.starting import gone, long_sleep, make_image
from tests.this_process import open_files

pytestmark = pytest.mark.kernel


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with sandbox_in(tmp_path) as sandbox:
        yield sandbox


@pytest.fixture
def settings(sandbox: Sandbox) -> Settings:
    return load_settings(sandbox.environ)


def output_of(spec: StartSpec, settings: Settings) -> tuple[str, int]:
    """Run a container to its end; return what it printed and its status."""
    reader, writer = os.pipe()
    with spawn(spec, settings=settings, stdout=writer) as container:
        os.close(writer)
        with open(reader) as file:
            return file.read(), container.wait()


def test_a_container_runs_beside_a_program_with_threads(settings: Settings) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        spec = StartSpec(
            "box",
            ("sh", "-c", "id -u; echo $A; ls /mnt/x; exit 4"),
            root=True,
            environ=("A=a b",),
            mounts=(Mount("/etc/hostname", "/mnt/x", options=("x-create=file", "bind")),),
        )
        assert output_of(spec, settings) == ("0\na b\n/mnt/x\n", 4)
    finally:
        stop.set()
        thread.join()


def test_the_handles_process_is_the_container(settings: Settings) -> None:
    output, _ = output_of(StartSpec("box", ("sh", "-c", "echo $$ $PPID")), settings)
    pid, parent = map(int, output.split())
    assert parent == os.getpid()
    assert pid != os.getpid()
    with spawn(StartSpec("box", ("sleep", "100")), settings=settings) as container:
        # `spawn` returns with the execve(2) of a shell, which executes what was asked for.
        wait_until_asleep(container.pid, "sleep")
        assert identity(container.pid, "user") != identity("self", "user")


def test_the_end_of_the_block_is_the_containers(settings: Settings) -> None:
    for pid_namespace in (False, True):
        spec = StartSpec("box", tuple(long_sleep().split()), unshare_pid=pid_namespace)
        with spawn(spec, settings=settings) as container:
            assert container.pid > 0
        assert container.wait() == 128 + signal.SIGKILL
        assert not gone(long_sleep())


def test_signals_time_limits_and_statuses(settings: Settings) -> None:
    with spawn(StartSpec("box", ("sleep", "100")), settings=settings) as container:
        with pytest.raises(TimeoutError, match=str(container.pid)):
            container.wait(0.01)
        container.send_signal(signal.SIGTERM)
        assert container.wait(60) == 128 + signal.SIGTERM
        container.send_signal(signal.SIGTERM)  # nobody is there any more: nothing happens
        assert container.kill() == 128 + signal.SIGTERM


@pytest.mark.parametrize("pid_namespace", [False, True])
def test_more_processes_in_the_same_container(settings: Settings, pid_namespace: bool) -> None:
    spec = StartSpec("box", ("sleep", "100"), unshare_pid=pid_namespace, environ=("A=1",))
    with spawn(spec, settings=settings) as container:
        reader, writer = os.pipe()
        with container.exec(
            ("sh", "-c", "echo $A $B; exit 9"), environ=("B=2",), stdout=writer
        ) as process:
            os.close(writer)
            with open(reader) as file:
                assert file.read() == "1 2\n"
            assert process.wait() == 9
        with pytest.raises(CommandError) as caught:
            container.exec(("nonexistent",))
        assert caught.value.exit_code == 127


@pytest.mark.parametrize(
    ("spec", "kind", "words"),
    [
        (StartSpec("nonexistent"), NotFoundError, "nonexistent"),
        (StartSpec("box", mounts=("/nonexistent:/x",)), KernelError, "/nonexistent at /x"),
        (StartSpec("box", mounts=("::",)), InvalidMountError, "::"),
        (StartSpec("box", preserve_fds=1), UnsupportedError, "Descriptors"),
    ],
)
def test_errors_are_raised_as_what_they_are(
    settings: Settings, spec: StartSpec, kind: type[EnrootError], words: str
) -> None:
    with pytest.raises(kind) as caught:
        spawn(spec, settings=settings)
    assert type(caught.value) is kind
    assert words in str(caught.value)
    assert caught.value.hint


def test_a_failing_hook_keeps_its_name_and_status(sandbox: Sandbox, settings: Settings) -> None:
    path = sandbox.hook("50-fail.sh", "#!/bin/sh\nexit 3\n")
    with pytest.raises(HookError) as caught:
        spawn(StartSpec("box", ("true",)), settings=settings)
    assert (caught.value.path, caught.value.status) == (str(path), 3)


def test_hooks_do_not_hold_the_channels_of_a_spawn(sandbox: Sandbox, settings: Settings) -> None:
    """A daemon that a hook leaves behind would otherwise keep `spawn` waiting."""
    seen = sandbox.folder / "seen"
    sandbox.hook("50-fds.sh", f"#!/bin/sh\nls /proc/self/fd > {seen}\n")
    assert output_of(StartSpec("box", ("true",)), settings) == ("", 0)
    own = {"0", "1", "2", "3"}  # the last one is the listing's
    assert (
        set(seen.read_text().split()) - inheritable_descriptors() == own - inheritable_descriptors()
    )


def test_an_image_is_unpacked_where_nothing_serves_it(sandbox: Sandbox, settings: Settings) -> None:
    """The fresh interpreter finds the libraries of this one for that."""
    image = make_image(sandbox.rootfs, sandbox.folder / "box.sqsh")
    environment = {**settings.environment, "PATH": "/nonexistent"}
    bare = settings._replace(environment=environment)
    assert output_of(StartSpec(str(image), ("echo", "hi")), bare) == ("hi\n", 0)


def test_this_process_stays_as_it_is(sandbox: Sandbox, settings: Settings) -> None:
    conf = write_file(sandbox.folder / "conf", "#ENROOT_REMAP_ROOT=y\nrc() { exec true; }\n")
    before = (open_files(), os.getcwd(), dict(os.environ), os.umask(0o022))
    os.umask(before[3])
    for _ in range(3):
        with spawn(StartSpec("box", ("true",), conf=str(conf)), settings=settings) as container:
            assert container.wait() == 0
        with pytest.raises(EnrootError):
            spawn(StartSpec("nonexistent"), settings=settings)
    assert (open_files(), os.getcwd(), dict(os.environ)) == before[:3]


def test_a_descriptor_that_is_not_open_is_named(settings: Settings) -> None:
    with pytest.raises(UnsupportedError, match="9999"):
        spawn(StartSpec("box", ("true",)), settings=settings, stdout=9999)


def test_a_handle_works_on_kernels_without_process_descriptors(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(38, "no such call")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with spawn(StartSpec("box", ("sleep", "100")), settings=settings) as container:
        assert isinstance(container, Container)
        with pytest.raises(UnsupportedError):
            container.wait(0.1)
        container.send_signal(signal.SIGTERM)
        assert container.wait() == 128 + signal.SIGTERM
