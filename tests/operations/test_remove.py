"""Removing containers."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from enroot_py.errors import BusyError, InvalidNameError, NotFoundError
from enroot_py.operations.remove import remove
from enroot_py.settings import Settings, load_settings
from tests.cli.command import ENROOT, Command


@pytest.fixture
def enroot(tmp_path: Path) -> Command:
    return Command(tmp_path)


def settings_of(enroot: Command) -> Settings:
    return load_settings(enroot.environ)


def make(enroot: Command, *names: str) -> None:
    for name in names:
        (enroot.data / name / "etc").mkdir(parents=True, exist_ok=True)
        (enroot.data / name / "etc/passwd").touch()


def left(enroot: Command) -> list[str]:
    return sorted(os.listdir(enroot.data))


def test_the_name_and_everything_below_is_gone(enroot: Command) -> None:
    make(enroot, "a", "b")
    remove("a", settings=settings_of(enroot))
    assert left(enroot) == ["b"]


@pytest.mark.parametrize("name", ["", "/", "..", ".", "a/b", "../a", "x" * 256, "a\0b", ".hidden"])
def test_names_that_lead_elsewhere_are_refused(enroot: Command, name: str) -> None:
    make(enroot, "a", ".hidden")
    with pytest.raises(InvalidNameError):
        remove(name, settings=settings_of(enroot))
    assert left(enroot) == [".hidden", "a"]


def test_a_missing_one_gets_a_hint(enroot: Command) -> None:
    make(enroot, "work")
    with pytest.raises(NotFoundError, match="wrk") as raised:
        remove("wrk", settings=settings_of(enroot))
    assert "work" in raised.value.hint


@pytest.mark.parametrize("target", ["../outside", "nowhere"])
def test_of_a_link_only_the_link_goes(enroot: Command, target: str) -> None:
    outside = enroot.root / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    enroot.data.mkdir()
    (enroot.data / "link").symlink_to(target)
    remove("link", settings=settings_of(enroot))
    assert left(enroot) == []
    assert (outside / "kept").exists()


def test_modes_do_not_matter(enroot: Command) -> None:
    make(enroot, "a")
    for mode, name in ((0o000, "none"), (0o500, "read"), (0o555, "all")):
        folder = enroot.data / "a" / name
        (folder / "sub").mkdir(parents=True)
        (folder / "sub/file").touch(mode=0)
        (folder / "sub").chmod(mode)
        folder.chmod(mode)
    (enroot.data / "a").chmod(0o555)
    remove("a", settings=settings_of(enroot))
    assert left(enroot) == []


def test_a_container_in_use_stays(enroot: Command) -> None:
    make(enroot, "a")
    with open(enroot.data / "a/.lock", "w") as lock:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BusyError):
            remove("a", settings=settings_of(enroot))
    assert left(enroot) == ["a"]


def test_the_command_asks_and_takes_only_a_y(enroot: Command) -> None:
    for answer, stays in (("n\n", True), ("\n", True), ("yes\n", True), ("y\n", False)):
        make(enroot, "a")
        done = enroot.run("remove", "a", answer=answer)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert left(enroot) == (["a"] if stays else [])
    make(enroot, "a")
    assert enroot.run("remove", "a", answer="Y\n").returncode == 0
    assert left(enroot) == []


def test_without_an_answer_nothing_is_removed(enroot: Command) -> None:
    make(enroot, "a")
    done = enroot.run("remove", "a")
    assert done.returncode == 1
    assert "[ERROR] No answer" in done.stderr and "--force" in done.stderr
    assert left(enroot) == ["a"]


def test_the_question_is_for_terminals_and_names_the_folder(enroot: Command) -> None:
    make(enroot, "a")
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [str(ENROOT), "remove", "a"], env=enroot.environ, stdin=follower, stderr=subprocess.PIPE
    )
    os.close(follower)
    os.write(leader, b"y\n")
    _, stderr = process.communicate(timeout=120)
    os.close(leader)
    assert stderr.decode().startswith(f"Do you really want to delete {enroot.data}/a? [y/N] ")
    assert (process.returncode, left(enroot)) == (0, [])


@pytest.mark.parametrize("words, environ", [(["-f"], {}), ([], {"ENROOT_FORCE_OVERRIDE": "y"})])
def test_force_does_not_ask(enroot: Command, words: list[str], environ: dict[str, str]) -> None:
    make(enroot, "a", "b", "c")
    done = enroot.run("remove", *words, "a", "b", environ=environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert left(enroot) == ["c"]


def test_several_names_are_answered_one_by_one(enroot: Command) -> None:
    make(enroot, "a", "b", "c")
    assert enroot.run("remove", "a", "b", "c", answer="y\nn\ny\n").returncode == 0
    assert left(enroot) == ["b"]


def test_one_that_fails_does_not_keep_the_others(enroot: Command) -> None:
    make(enroot, "a", "b")
    done = enroot.run("remove", "-f", "a", "nosuch", "..", "b")
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("[ERROR]")]
    assert len(errors) == 2 and "nosuch" in errors[0]
    assert left(enroot) == []
