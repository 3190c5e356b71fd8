"""What a caller asks for: values of another type are refused before they mean something else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from enroot_py.errors import UsageError
from enroot_py.operations.dry_run import describe_start
from enroot_py.operations.spawn import Container, spawn
from enroot_py.operations.start import start
from enroot_py.plan.fstab import Mount
from enroot_py.plan.spec import StartSpec

WRONG: tuple[dict[str, Any], ...] = (
    {"command": "echo"},
    {"command": ("echo", 3)},
    {"command": ("cat", Path("x"))},
    {"target": Path("image.sqsh")},
    {"environ": {"A": "1"}},
    {"environ": "A=1"},
    {"mounts": "/data:/mnt"},
    {"mounts": (("/data", "/mnt"),)},
    {"mounts": ({"/data": "/mnt"},)},
    {"devices": "nvidia.com/gpu=all"},
    {"gpus": 2},
    {"rc": None},
)


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_an_attribute_of_another_type_is_named(wrong: dict[str, Any]) -> None:
    spec = StartSpec(**{"target": "box", **wrong})
    for take in (spawn, describe_start, start):
        with pytest.raises(UsageError) as caught:
            take(spec)
        assert f"StartSpec.{next(iter(wrong))}: " in str(caught.value)


@pytest.mark.parametrize("environ", [{"TOKEN": "secret"}, (("TOKEN", "secret"),), "TOKEN=secret"])
def test_no_message_tells_a_variables_value(environ: Any) -> None:
    with pytest.raises(UsageError) as caught:
        StartSpec("box", environ=environ).check()
    assert "secret" not in str(caught.value)


def test_lists_and_records_are_taken() -> None:
    command: Any = ["echo", "a"]
    StartSpec("box", command, mounts=("/data", Mount("/data", "/mnt")), environ=("A",)).check()


@pytest.mark.parametrize("wrong", [("true", ()), (("true",), {"A": "1"}), ((1,), ())], ids=str)
def test_a_command_to_join_with_is_words_too(wrong: tuple[Any, Any]) -> None:
    command, environ = wrong
    container = Container(os.getpid())
    try:
        with pytest.raises(UsageError, match="command|environ"):
            container.exec(command, environ=environ)
    finally:
        os.close(container._pidfd)
