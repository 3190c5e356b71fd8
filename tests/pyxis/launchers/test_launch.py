"""What `pyxis_py.launch` makes of its arguments; steps that it runs are in tests/slurm."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import pyxis_py
from enroot_py import UsageError
from pyxis_py.launchers.launch import container_flags


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, []),
        ({"image": "a.sqsh"}, ["--container-image=a.sqsh"]),
        ({"mounts": ["/a:/a", "/b:/c:ro"]}, ["--container-mounts=/a:/a,/b:/c:ro"]),
        ({"mounts": (), "env": ()}, []),
        ({"env": iter(["A", "B"])}, ["--container-env=A,B"]),
        (
            {"workdir": "/opt", "name": "n:exec", "save": "s.sqsh", "environment": "e.toml"},
            ["--container-workdir=/opt", "--container-name=n:exec", "--container-save=s.sqsh",
             "--environment=e.toml"],
        ),
        ({"writable": True}, ["--container-writable"]),
        ({"writable": False}, ["--container-readonly"]),
        ({"remap_root": None}, []),
        ({"remap_root": True}, ["--container-remap-root"]),
        ({"mount_home": False}, ["--no-container-mount-home"]),
        ({"entrypoint_log": True}, ["--container-entrypoint-log"]),
        ({"gpus": "all", "digest": "print"}, ["--container-gpus=all", "--container-digest=print"]),
        ({"unshare": ["net", "ipc"]}, ["--container-unshare=net,ipc"]),
        ({"device": ("nvidia.com/gpu=0",)}, ["--container-device=nvidia.com/gpu=0"]),
        ({"import_timeout": 90}, ["--container-import-timeout=90"]),
        ({"import_timeout": None}, []),
        ({"mounts": [Path("/a")]}, ["--container-mounts=/a"]),
    ],
)  # fmt: skip
def test_arguments_become_flags(given: dict[str, object], expected: list[str]) -> None:
    flags = container_flags(**given)  # type: ignore[arg-type]
    assert sorted(flags) == sorted(expected)
    assert [value.option.name for value in pyxis_py.read_flags(flags)] == [
        flag.removeprefix("--").partition("=")[0] for flag in flags
    ]


@pytest.mark.parametrize("switch", ["wriable", "image_x", "save_", "entrypoint_logs"])
@pytest.mark.parametrize("wanted", [True, False])
def test_switches_that_there_are_not(switch: str, wanted: bool) -> None:
    with pytest.raises(UsageError, match=switch):
        container_flags(**{switch: wanted})  # type: ignore[arg-type]


def test_a_flag_with_a_value_is_no_switch() -> None:
    with pytest.raises(UsageError, match="unshare"):
        pyxis_py.launch(["true"], launcher="local", unshare=True)


@pytest.mark.parametrize(
    ("command", "container", "message"),
    [
        ("true", {}, "command: expected a list of texts, got str"),
        ([], {}, "command: nothing to run"),
        (["echo", 1], {}, "command: expected texts, got int in it"),
        (["true"], {"mounts": "/a:/a"}, "mounts: expected a list of texts"),
        (["true"], {"env": "FOO"}, "env: expected a list of texts"),
        (["true"], {"writable": "no"}, "no flag of containers writable='no'"),
        (["true"], {"unshare": [1]}, "unshare: expected texts"),
        (["true"], {"srun_options": "-l"}, "srun_options: expected a list of texts"),
    ],
)
def test_values_of_another_type_are_refused(
    command: object, container: dict[str, object], message: str
) -> None:
    """A text was run letter by letter, and "no" meant yes."""
    with pytest.raises(UsageError, match=re.escape(message)):
        pyxis_py.launch(command, launcher="srun", **container)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=re.escape(message)):
        pyxis_py.launch_command(command, **container)  # type: ignore[arg-type]


def test_the_words_for_srun() -> None:
    words = pyxis_py.launch_command(
        ["train", "--image=x"], nodes=3, tasks_per_node=4, srun_options=["-l"], image="a.sqsh"
    )
    assert words[0] == sys.executable
    at = words.index("--nodes=3")
    assert words[at:] == [
        "--nodes=3", "--ntasks-per-node=4", "--ntasks=12", "-l", "--container-image=a.sqsh",
        "train", "--image=x",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "message"),
    [({"launcher": "mpirun"}, "no launcher"), ({"launcher": "local", "nodes": 2}, "2 nodes need")],
)
def test_launches_that_cannot_be(more: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        pyxis_py.launch(["true"], **more)  # type: ignore[arg-type]
