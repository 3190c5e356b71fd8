"""The environment that `enroot-nsenter` and `enroot-switchroot` give to what they run."""

from __future__ import annotations

import os

from enroot_py.errors import NotFoundError
from enroot_py.plan.environ import is_variable_name

_LARGEST_FILE = 16 << 20


def read_environment(source: str | int) -> dict[str, str]:
    """Read `NAME=value` lines; lines of another form are left out, values are taken as they are.

    Args:
        source: a path, or a descriptor, which is closed.

    Raises:
        NotFoundError: if it cannot be read.

    Source: enroot 4.1.2 bin/common.h, load_environment_fd().
    """
    try:
        with open(source, "rb") as file:
            data = file.read(_LARGEST_FILE)
    except OSError as error:
        raise NotFoundError(f"Cannot read the environment {source}: {error.strerror}") from error
    environ = {}
    for line in os.fsdecode(data).split("\n"):
        name, equals, value = line.partition("=")
        if equals and is_variable_name(name) and "\0" not in value:
            environ[name] = value
    return environ
