"""How the plugin is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from enroot_py import NotFoundError, UnsupportedError, UsageError
from pyxis_py.plugin.build import build, compiler_command, find_sources


def test_the_compiler_gets_every_source_and_no_warning_passes(tmp_path: Path) -> None:
    command = compiler_command(
        tmp_path / "x.so", python="/usr/bin/python3", packages=tmp_path, compiler="cc"
    )
    sources = {path.name for path in find_sources().glob("*.c")}
    assert {Path(word).name for word in command if word.endswith(".c")} == sources
    assert {"-Wall", "-Wextra", "-Werror"} <= set(command)
    assert '-DPYXIS_PYTHON="/usr/bin/python3"' in command


@pytest.mark.parametrize("python", ['/usr/bin/py"thon', "python3", "/a\nb", "/a\\b"])
def test_paths_that_would_break_out_of_a_string_are_refused(tmp_path: Path, python: str) -> None:
    with pytest.raises(UsageError):
        compiler_command(tmp_path / "x.so", python=python, packages=tmp_path, compiler="cc")


@pytest.mark.parametrize(
    ("printed", "error", "said"),
    [
        ("plugin.c:2:10: fatal error: slurm/spank.h: No such file", NotFoundError, "headers"),
        ("plugin.c:9: error: too odd", UnsupportedError, "cannot be compiled"),
    ],
)
def test_what_the_compiler_says_is_passed_on(
    tmp_path: Path, printed: str, error: type[Exception], said: str
) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text(f"#!/bin/sh\necho '{printed}' >&2\nexit 1\n")
    compiler.chmod(0o755)
    with pytest.raises(error, match=said):
        build(tmp_path / "x.so", compiler=str(compiler))
    assert not (tmp_path / "x.so").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["cc"]


def test_a_compiler_that_says_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        build(tmp_path / "x.so", compiler="false")
    assert caught.value.hint == "false ended with status 1"


def test_headers_are_not_taken_from_elsewhere(tmp_path: Path) -> None:
    """A folder too deep: the compiler would build for whatever Slurm it knows itself."""
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm/spank.h").write_text("")
    call = {"python": "/usr/bin/python3", "packages": tmp_path, "compiler": "cc"}
    command = compiler_command(tmp_path / "x.so", include=str(tmp_path), **call)  # type: ignore[arg-type]
    assert f"-I{tmp_path}" in command
    with pytest.raises(NotFoundError, match="no slurm/spank.h in"):
        compiler_command(tmp_path / "x.so", include=str(tmp_path / "slurm"), **call)  # type: ignore[arg-type]
