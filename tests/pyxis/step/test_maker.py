"""The job that made a container is noted in it, whatever an image holds in that place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pyxis_py.step.maker import read_maker, write_maker


def test_the_job_is_noted(tmp_path: Path) -> None:
    assert read_maker(str(tmp_path)) == 0
    write_maker(str(tmp_path), 4711)
    assert read_maker(str(tmp_path)) == 4711
    assert read_maker(str(tmp_path / "nosuch")) == 0


@pytest.mark.parametrize("text", ["", "x", "-1", "12 13", "9" * 30, "\0", "²"])
def test_a_lock_file_of_anybody_elses(tmp_path: Path, text: str) -> None:
    (tmp_path / ".lock").write_text(text)
    assert read_maker(str(tmp_path)) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.mkdir(),
        lambda path: os.mkfifo(path),
        lambda path: path.symlink_to("target"),
    ],
)
def test_what_an_image_holds_there_is_left_alone(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    (tmp_path / "target").write_text("77")
    make(tmp_path / ".lock")
    write_maker(str(tmp_path), 5)
    assert read_maker(str(tmp_path)) == 0
    assert (tmp_path / "target").read_text() == "77"
