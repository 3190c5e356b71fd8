"""Containers that a configuration script names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from enroot_py.errors import NotFoundError, SettingsError
from enroot_py.operations.batch import plan_batch, read_directives
from tests.cli.command import Command
from tests.hooks.sandbox import Sandbox


@pytest.fixture
def enroot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    command = Command(tmp_path)
    for name in [name for name in os.environ if name.startswith("ENROOT_")]:
        monkeypatch.delenv(name)
    for name, value in command.environ.items():
        monkeypatch.setenv(name, value)
    return command


def write(enroot: Command, text: str) -> str:
    path = enroot.root / "conf"
    path.write_text(text)
    return str(path)


def test_directives_name_the_container_and_its_settings(enroot: Command) -> None:
    conf = write(
        enroot,
        "#!/usr/bin/env enroot batch\n"
        "#ENROOT_ROOTFS ${ENROOT_DATA_PATH}/../work\n"
        "#ENROOT_REMAP_ROOT=y\n"
        "#ENROOT_ROOTFS_WRITABLE yes\n"
        "#ENROOT_MOUNT_HOME no\n"
        "environ() { echo A=b; }\n",
    )
    spec, settings = plan_batch(conf, ["true", "-x"])
    assert spec.target == f"{enroot.data}/../work"
    assert (spec.command, spec.conf) == (("true", "-x"), conf)
    assert settings.remap_root and settings.rootfs_writable and not settings.mount_home
    assert settings.environment["ENROOT_REMAP_ROOT"] == "y"


def test_directives_override_the_environment(
    enroot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENROOT_ROOTFS", "other")
    monkeypatch.setenv("ENROOT_REMAP_ROOT", "y")
    spec, settings = plan_batch(write(enroot, "#ENROOT_ROOTFS a\n#ENROOT_REMAP_ROOT no\n"))
    assert spec.target == "a"
    assert not settings.remap_root
    assert "ENROOT_REMAP_ROOT" not in settings.environment


def test_the_environment_may_name_the_container(
    enroot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENROOT_ROOTFS", "other")
    assert plan_batch(write(enroot, "echo\n"))[0].target == "other"


def test_without_a_container_the_directive_is_named(enroot: Command) -> None:
    conf = write(enroot, "# ENROOT_DATA_PATH /x\n")
    with pytest.raises(SettingsError, match="ENROOT_ROOTFS") as raised:
        plan_batch(conf)
    assert "#ENROOT_ROOTFS" in raised.value.hint
    done = enroot.run("batch", conf)
    assert done.returncode == 1 and "ENROOT_ROOTFS" in done.stderr


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe"])
def test_only_an_ordinary_file_is_a_script(enroot: Command, kind: str) -> None:
    path = enroot.root / "conf"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(NotFoundError, match="conf"):
        read_directives(str(path))
    done = enroot.run("batch", str(path))
    assert done.returncode == 1 and done.stderr.startswith("[ERROR] ")


@pytest.mark.kernel
def test_a_batch_is_a_start_with_a_script(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    conf = tmp_path / "conf"
    conf.write_text(
        "#ENROOT_ROOTFS box\n"
        "#ENROOT_REMAP_ROOT y\n"
        "environ() { echo 'GREETING=hello'; }\n"
        'rc() { echo "$GREETING" "$(id -u)" "$@"; exit 7; }\n'
    )
    done = sandbox.call("enroot", "batch", str(conf), "one", "--two")
    assert (done.returncode, done.stdout) == (7, "hello 0 one --two\n"), done.stderr


@pytest.mark.kernel
def test_directives_count_for_start_too(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    conf = tmp_path / "conf"
    conf.write_text("#ENROOT_REMAP_ROOT y\n")
    assert sandbox.start("-c", str(conf), "box", "id", "-u") == "0\n"
    assert sandbox.start("box", "id", "-u") == f"{os.getuid()}\n"
