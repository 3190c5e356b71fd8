"""What `pyxis_py.launch` makes of its arguments; steps that it runs are in tests/slurm."""

from __future__ import annotations

import sys

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
