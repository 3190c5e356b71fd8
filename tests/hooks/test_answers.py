"""The files by which hooks answer: what is written is read back, and junk is refused."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from enroot_py.errors import HookError
from enroot_py.hooks.answers import Answers, format_fstab
from enroot_py.hooks.context import Edits
from enroot_py.plan.fstab import Mount, parse_fstab
from tests.hooks.contexts import Container

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
OPTIONS = st.text("abc=/ \t#\\\n:é", min_size=1)


@example("/no\u00a0break\u2028\u3000", "/x\x1c\x85", ["\u1680"], 0)
@given(WORDS, WORDS, st.lists(OPTIONS, max_size=3), st.sampled_from([-1, 0, 1]))
def test_every_mount_survives_the_file(
    source: str, target: str, options: list[str], passno: int
) -> None:
    mount = Mount(source, target, "ext4", ("rw", *options), passno)
    text = format_fstab([mount]).replace("${", "\\044{")
    assert parse_fstab(text, {}, "test") == (mount,)


def test_a_mount_without_options_gets_none_guessed() -> None:
    (mount,) = parse_fstab(format_fstab([Mount("/a", "/b")]), {}, "test")
    assert mount.options == ("defaults",)


def test_hooks_find_what_was_asked_for_before(container: Container) -> None:
    context = container.context(environ={"A": "1", "MULTI": "x\ny", "QUOTED": '"q"'})
    answers = Answers(context)
    answers.add(Edits((Mount("/a b", "/c"),), (("B", "2"),)))
    answers.write()
    text = (container.workdir / "environment").read_text()
    assert "A=1\n" in text
    assert "B=2\n" in text
    assert (container.workdir / "fstab").read_text() == "/a\\040b /c none defaults 0 0\n"
    answers.read("hook")
    assert answers.environ == {"A": "1", "MULTI": "x\ny", "QUOTED": '"q"', "B": "2"}


def test_what_hooks_append_edit_and_remove(container: Container) -> None:
    answers = Answers(container.context(environ={"A": "1", "GONE": "x", "MULTI": "x\ny"}))
    answers.add(Edits((Mount("/early", "/early"),), ()))
    answers.write()
    path = container.workdir / "environment"
    path.write_text(path.read_text().replace("GONE=x\n", "") + "A=2\nENROOT_PID=1\njunk\n#c\n")
    with open(container.workdir / "fstab", "a") as file:
        file.write("/data /mnt none bind,ro\n# comment\ntmpfs /late tmpfs rw 0 -1\n/lit${HOME}\n")
    answers.read("hook")
    assert answers.environ == {"A": "2", "MULTI": "x\ny"}
    assert [mount.source for mount in answers.mounts] == ["/early", "/data", "/lit${HOME}"]


def test_unchanged_files_are_not_written_again(container: Container) -> None:
    answers = Answers(container.context(environ={"A": "1"}))
    answers.write()
    (container.workdir / "environment").unlink()
    answers.write()
    assert not (container.workdir / "environment").exists()


def test_a_replaced_file_is_read(container: Container) -> None:
    answers = Answers(container.context(environ={"A": "1"}))
    answers.write()
    (container.workdir / "new").write_text("B=2\n")
    os.rename(container.workdir / "new", container.workdir / "environment")
    answers.read("hook")
    assert answers.environ == {"B": "2"}


@pytest.mark.parametrize("name", ["environment", "fstab"])
@pytest.mark.parametrize("kind", ["missing", "link", "fifo", "folder", "huge", "unreadable"])
def test_junk_in_place_of_answers_is_refused(container: Container, name: str, kind: str) -> None:
    answers = Answers(container.context())
    answers.write()
    path = container.workdir / name
    path.unlink()
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        with open(path, "wb") as file:
            file.truncate(1 << 40)
    elif kind == "unreadable":
        os.mkfifo(path, 0)
    with pytest.raises(HookError, match="the-hook") as caught:
        answers.read("the-hook")
    assert caught.value.path == "the-hook"


def test_a_bad_mount_names_the_hook(container: Container) -> None:
    answers = Answers(container.context())
    answers.write()
    (container.workdir / "fstab").write_text("/a /b none bind zero zero\n")
    with pytest.raises(HookError, match="the-hook"):
        answers.read("the-hook")
