"""Flag values and variables become typed arguments."""

from __future__ import annotations

import pytest

from enroot_py import UsageError
from pyxis_py.args import (
    Arguments,
    MountEntry,
    RawValue,
    ignored_without_container,
    parse_arguments,
)
from pyxis_py.options import find_option

BIND = ("x-create=auto", "rbind")


def parse(*flags: str, environ: dict[str, str] | None = None) -> Arguments:
    given = []
    for flag in flags:
        name, _, argument = flag.removeprefix("--").partition("=")
        option = find_option(name)
        assert option is not None, name
        given.append(RawValue(option, argument))
    return parse_arguments(given, environ or {})


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--container-image=a", {"image": "a"}),
        ("--container-workdir=/w", {"workdir": "/w"}),
        ("--container-name=n", {"name": "n", "name_mode": "auto"}),
        ("--container-name=n:", {"name": "n", "name_mode": "auto"}),
        ("--container-name=n:no_exec", {"name": "n", "name_mode": "no_exec"}),
        ("--container-save=x.sqsh", {"save": "x.sqsh"}),
        ("--container-mount-home", {"mount_home": True}),
        ("--no-container-mount-home", {"mount_home": False}),
        ("--container-remap-root", {"remap_root": True}),
        ("--no-container-remap-root", {"remap_root": False}),
        ("--container-entrypoint", {"entrypoint": True}),
        ("--no-container-entrypoint", {"entrypoint": False}),
        ("--container-entrypoint-log", {"entrypoint_log": True}),
        ("--container-writable", {"writable": True}),
        ("--container-readonly", {"writable": False}),
        ("--container-env=A,B_1", {"env": ("A", "B_1")}),
        ("--container-unshare=net,ipc", {"unshare": ("net", "ipc")}),
        ("--container-import-timeout=2.5", {"import_timeout": 2.5}),
        ("--container-digest=print", {"digest": "print"}),
        ("--container-digest=sha256:" + "a" * 64, {"digest": "sha256:" + "a" * 64}),
        ("--container-gpus=all", {"gpus": "all"}),
        ("--container-gpus=None", {"gpus": "None"}),
        ("--container-gpus=void", {"gpus": "void"}),
        ("--container-gpus=0, 3", {"gpus": "0, 3"}),
        ("--container-gpus=host:2,1:0", {"gpus": "host:2,1:0"}),
        ("--container-gpus=GPU-5f,MIG-GPU-5f/1/0", {"gpus": "GPU-5f,MIG-GPU-5f/1/0"}),
        ("--container-gpus=0000:3B:00.0", {"gpus": "0000:3B:00.0"}),
        ("--container-gpus=nvidia.com/gpu=0", {"gpus": "nvidia.com/gpu=0"}),
        ("--container-device=a.b/c=d,a.b/c=e", {"devices": ("a.b/c=d", "a.b/c=e")}),
        ("--environment=job.toml", {"environment": "job.toml"}),
        ("--container-mounts=/a", {"mounts": (MountEntry("/a", "/a", BIND),)}),
        ("--container-mounts=/a:/b", {"mounts": (MountEntry("/a", "/b", BIND),)}),
        ("--container-mounts=./a:/b:", {"mounts": (MountEntry("./a", "/b", BIND),)}),
        (
            "--container-mounts=/a:/b:ro+rprivate,tmpfs:/t:size=1M",
            {
                "mounts": (
                    MountEntry("/a", "/b", (*BIND, "ro", "rprivate")),
                    MountEntry("tmpfs", "/t", ("x-create=dir", "size=1M")),
                )
            },
        ),
        ("--container-mounts=umount:/x", {"mounts": (MountEntry("umount", "/x", ("x-detach",)),)}),
    ],
)
def test_one_flag(flag: str, expected: dict[str, object]) -> None:
    assert parse(flag) == Arguments()._replace(**expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--container-image="], ["--container-image"]),
        (["--container-image=a", "--container-image=b"], ["more than once", "'a'", "'b'"]),
        (["--container-workdir=/a", "--container-workdir=/b"], ["--container-workdir"]),
        (["--container-name="], ["--container-name"]),
        (["--container-name=:exec"], ["empty"]),
        (["--container-name=a:run"], ["'run'"]),
        (["--container-name=a/b"], ["'a/b'"]),
        (["--container-name=.."], ["'..'"]),
        (["--container-name=-x"], ["'-x'"]),
        (["--container-name=" + "x" * 201], ["--container-name"]),
        (["--container-save=dir/"], ["folder"]),
        (["--container-mount-home", "--no-container-mount-home"], ["contradict"]),
        (["--container-remap-root", "--no-container-remap-root"], ["contradict"]),
        (["--container-entrypoint", "--no-container-entrypoint"], ["contradict"]),
        (["--container-writable", "--container-readonly"], ["contradict"]),
        (["--container-env=A,,B"], ["empty item"]),
        (["--container-env=A=1"], ["'A=1'"]),
        (["--container-env=1A"], ["'1A'"]),
        (["--container-env=$(id)"], ["--container-env"]),
        (["--container-unshare=pid"], ["'pid'"]),
        (["--container-unshare="], ["empty item"]),
        (["--container-import-timeout=soon"], ["'soon'"]),
        (["--container-import-timeout=0"], ["'0'"]),
        (["--container-import-timeout=nan"], ["'nan'"]),
        (["--container-digest=sha256:abc"], ["'sha256:abc'"]),
        (["--container-digest=sha256:" + "A" * 64], ["--container-digest"]),
        (["--container-gpus="], ["--container-gpus"]),
        (["--container-gpus=some"], ["--container-gpus", "'some'"]),
        (["--container-gpus=0,-1"], ["'-1'"]),
        (["--container-gpus=bad"], ["'bad'"]),
        (["--container-gpus=host:"], ["'host:'"]),
        (["--container-device="], ["empty item"]),
        (["--container-device=none"], ["--container-device", "'none'"]),
        (["--container-device=a.b/c=d,/c=d"], ["'/c=d'"]),
        (["--container-device=a.b/c="], ["'a.b/c='"]),
        (["--container-mounts="], ["malformed"]),
        (["--container-mounts=/a,"], ["malformed"]),
        (["--container-mounts=/a:"], ["malformed"]),
        (["--container-mounts=:/a"], ["malformed"]),
        (["--container-mounts=a:/b"], ["'a'"]),
        (["--container-mounts=/a:b"], ["'b'"]),
    ],
)
def test_wrong_values_name_the_flag_and_the_value(flags: list[str], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse(*flags)
    for word in words:
        assert word in str(caught.value)


def test_the_same_value_twice_is_one_value() -> None:
    assert parse("--container-image=a", "--container-image=a").image == "a"
    assert len(parse("--container-mounts=/a:/b", "--container-mounts=/a:/b").mounts) == 1
    assert parse("--container-env=A", "--container-env=A,B").env == ("A", "B")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"PYXIS_CONTAINER_IMAGE": "a"}, {"image": "a"}),
        ({"PYXIS_CONTAINER_MOUNT_HOME": "yes"}, {"mount_home": True}),
        ({"PYXIS_CONTAINER_MOUNT_HOME": "0"}, {"mount_home": False}),
        ({"PYXIS_CONTAINER_MOUNT_HOME": "perhaps"}, {}),
        ({"PYXIS_CONTAINER_WRITABLE": "n"}, {"writable": False}),
        ({"PYXIS_CONTAINER_READONLY": "y"}, {"writable": False}),
        ({"PYXIS_CONTAINER_READONLY": "false"}, {"writable": True}),
        ({"PYXIS_CONTAINER_WRITABLE": "y", "PYXIS_CONTAINER_READONLY": "y"}, {"writable": True}),
        ({"PYXIS_CONTAINER_ENV": "A,B"}, {"env": ("A", "B")}),
        ({"PYXIS_CONTAINER_NAME": "n:exec"}, {"name": "n", "name_mode": "exec"}),
        ({"PYXIS_CONTAINER_IMAGE": ""}, {}),
    ],
)
def test_variables(environ: dict[str, str], expected: dict[str, object]) -> None:
    assert parse(environ=environ) == Arguments()._replace(**expected)  # type: ignore[arg-type]


def test_a_flag_beats_its_variable_and_a_bad_variable_is_not_looked_at() -> None:
    environ = {
        "PYXIS_CONTAINER_IMAGE": "b",
        "PYXIS_CONTAINER_NAME": "a/b",
        "PYXIS_CONTAINER_WRITABLE": "y",
    }
    arguments = parse(
        "--container-image=a", "--container-name=n", "--container-readonly", environ=environ
    )
    assert (arguments.image, arguments.name, arguments.writable) == ("a", "n", False)
    with pytest.raises(UsageError, match="PYXIS_CONTAINER_NAME"):
        parse("--container-image=a", environ=environ)


def test_what_is_ignored_without_a_container() -> None:
    assert ignored_without_container(parse("--container-workdir=/w")) == ["workdir"]
    assert ignored_without_container(parse("--container-readonly")) == ["writable"]
    assert ignored_without_container(parse("--container-name=n", "--container-readonly")) == []
    assert ignored_without_container(parse()) == []
