"""External importers: the words of what they did wrong."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from enroot_py import CommandError, load_settings
from pyxis_py.importer import get_image, release_image
from pyxis_py.step.cleanup import StepState, finish

ENVIRON = {"PATH": "/usr/bin:/bin", "WHICH": "5.0"}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "importer"
    path.write_text(f'#!/bin/sh\necho "$@" $WHICH >> {tmp_path}/log\n')
    path.chmod(0o755)
    return path


def add(program: Path, line: str) -> str:
    program.write_text(f"{program.read_text()}{line}\n")
    return str(program)


def test_the_first_line_is_the_image_and_the_environment_is_the_steps(program: Path) -> None:
    importer = add(program, "printf '/a b.sqsh\\nmore\\n'")
    assert get_image(importer, "docker://x", ENVIRON) == "/a b.sqsh"
    release_image(importer, ENVIRON)
    assert (program.parent / "log").read_text() == "get docker://x 5.0\nrelease 5.0\n"


@pytest.mark.parametrize(
    ("line", "said", "hint"),
    [
        ("echo why >&2; exit 3", "The importer failed with status 3: .* get docker://x", "why"),
        ("echo why >&2; kill -KILL $$", "The importer was ended by signal 9: .* get", "why"),
        ("echo x.sqsh; echo why >&2", "printed no path of an image: 'x.sqsh'", "why"),
        ("", "printed no path of an image: ''", ""),
        ("seq 50 >&2; exit 1", "failed with status 1", "\n".join(map(str, range(21, 51)))),
    ],
)
def test_an_importer_that_fails_is_quoted(program: Path, line: str, said: str, hint: str) -> None:
    with pytest.raises(CommandError, match=said) as caught:
        get_image(add(program, line), "docker://x", ENVIRON)
    assert caught.value.hint == hint


def test_an_importer_that_cannot_be_run(program: Path) -> None:
    program.chmod(stat.S_IRUSR)
    with pytest.raises(CommandError, match=f"Cannot run the importer {program}: Permission denied"):
        get_image(str(program), "docker://x", ENVIRON)
    with pytest.raises(CommandError, match="Cannot run the importer /no/such: No such file"):
        release_image("/no/such", ENVIRON)


def test_a_steps_end_quotes_an_importer_that_cannot_let_go(program: Path, tmp_path: Path) -> None:
    importer = add(program, "printf 'it\\nis stuck\\n' >&2; exit 5")
    settings = load_settings({"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    state = StepState("", False, "", importer, "")
    done, failed = finish(state, settings, complete=True)
    assert done == []
    message = f"The importer failed with status 5: {importer} release"
    assert failed == [message, "it", "is stuck"]
