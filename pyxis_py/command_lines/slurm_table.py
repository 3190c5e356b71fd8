"""The options that the Slurm at hand has: asked for once, and remembered on this node."""

from __future__ import annotations

import os

from pyxis_py.command_lines.slurm_options import (
    SlurmOption,
    built_in_options,
    decode_options,
    encode_options,
    options_from_help,
)
from pyxis_py.plugin_config import WORDS_VARIABLE
from pyxis_py.runtime_folder import find_folder, runtime_path

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slurm_options.py")


def read_options(command: str) -> tuple[SlurmOption, ...]:
    """Return the options of srun or sbatch here; the built-in table if it cannot be asked.

    The table is remembered as long as the program and this module are the same.
    """
    program = _find_program(command)
    if not program:
        return built_in_options(command)
    path = _table_path(command, program)
    try:
        with open(path, encoding="utf-8") as file:
            return decode_options(file.read(), command)
    except (FileNotFoundError, ValueError):
        pass
    text = _ask_for_help(program)
    if not text:
        return built_in_options(command)
    options = options_from_help(text, command)
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
        file.write(encode_options(options))
    os.rename(file.name, path)
    return options


def _table_path(command: str, program: str) -> str:
    folder = find_folder(runtime_path(os.environ.get(WORDS_VARIABLE, "").split()), os.environ)
    theirs, ours = os.stat(program), os.stat(TABLE)
    mark = f"{theirs.st_mtime_ns:x}-{theirs.st_size:x}-{ours.st_mtime_ns:x}"
    return f"{folder}/{command}-{mark}.options"


def _ask_for_help(program: str) -> str:
    import subprocess

    try:
        done = subprocess.run(
            [program, "--help"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _find_program(name: str) -> str:
    for folder in os.environ.get("PATH", os.defpath).split(":"):
        path = os.path.join(folder or ".", name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return ""
