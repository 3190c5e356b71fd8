"""Mount entries. The expected guesses are those of enroot-mount.c: mount_fstab()."""

from __future__ import annotations

import pytest

from enroot_py.errors import InvalidMountError
from enroot_py.plan.fstab import Mount, parse_fstab, parse_mount, substitute, unescape

GUESSED = ("rbind", "x-create=auto")


def one(line: str, **environ: str) -> Mount:
    (mount,) = parse_fstab(line, environ, "test.fstab")
    return mount


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tmpfs /dst", Mount("tmpfs", "/dst", "tmpfs")),
        ("tmpfs /dst mode=700,ro", Mount("tmpfs", "/dst", "tmpfs", ("mode=700", "ro"))),
        ("tmpfs /dst ro", Mount("tmpfs", "/dst", "tmpfs", ("ro",))),
        ("tmpfs /dst none ro", Mount("tmpfs", "/dst", "tmpfs", ("ro",))),
        ("tmpfs /dst ramfs", Mount("tmpfs", "/dst", "ramfs")),
        ("/src", Mount("/src", "/src", "none", GUESSED)),
        ("/src bind", Mount("/src", "/src", "none", ("bind",))),
        ("/src ro,bind", Mount("/src", "/src", "none", ("ro", "bind"))),
        ("/src /dst", Mount("/src", "/dst", "none", GUESSED)),
        ("/src /dst none", Mount("/src", "/dst", "none", GUESSED)),
        ("/src /dst bind", Mount("/src", "/dst", "none", ("bind",))),
        ("/src none bind", Mount("/src", "/src", "none", ("bind",))),
        ("/src none none bind", Mount("/src", "none", "none", ("bind",))),
        ("none /dst devpts", Mount("none", "/dst", "devpts")),
        ("none /dst none", Mount("none", "/dst", "none", GUESSED)),
        ("proc /proc proc rw,,nosuid 0 -1", Mount("proc", "/proc", "proc", ("rw", "nosuid"), -1)),
        ("/a /b none bind 2", Mount("/a", "/b", "none", ("bind",), 2)),
        ("/a /b none bind 2 0", Mount("/a", "/b", "none", ("bind",), 2)),
        ("/a /b none bind 2 3 more words", Mount("/a", "/b", "none", ("bind",), 3)),
        ("\t/a\t/b  none\tbind", Mount("/a", "/b", "none", ("bind",))),
        ("/a\\040b /c\\011d", Mount("/a b", "/c\td", "none", GUESSED)),
        ("/a\\134040 /b", Mount("/a\\040", "/b", "none", GUESSED)),
    ],
)
def test_missing_fields_are_guessed(line: str, expected: Mount) -> None:
    assert one(line) == expected


@pytest.mark.parametrize("text", ["", "\n\n", "# /a /b", "  # /a /b", " \t \n#"])
def test_comments_and_empty_lines_are_nothing(text: str) -> None:
    assert parse_fstab(text, {}, "x") == ()


@pytest.mark.parametrize(
    ("line", "culprit"),
    [("tmpfs", "a target"), ("tmpfs bind", "a target"), ("/a /b none bind x", "'x'")],
)
def test_an_entry_that_cannot_be_completed_names_file_and_reason(line: str, culprit: str) -> None:
    with pytest.raises(InvalidMountError) as caught:
        parse_fstab(f"/ok\n{line}\n", {}, "/etc/x.fstab")
    assert "/etc/x.fstab" in str(caught.value)
    assert line in str(caught.value)
    assert culprit in caught.value.hint


def test_entries_keep_their_order_and_a_last_line_without_an_end() -> None:
    assert [mount.source for mount in parse_fstab("/a\n/b\n/c", {}, "x")] == ["/a", "/b", "/c"]


@pytest.mark.parametrize(
    ("line", "source", "target"),
    [
        ("${HOME} /mnt", "/home/me", "/mnt"),
        ("${HOME}/x /mnt/${USER}", "/home/me/x", "/mnt/me"),
        ("${GONE} /src /dst", "/src", "/dst"),
        ("/a${GONE}/b /c", "/a/b", "/c"),
        ("${ODD} /c", "/with a\tblank\\", "/c"),
        ("$HOME /c", "$HOME", "/c"),
        ("${1X} /c", "${1X}", "/c"),
        ("${A-b}${USER} /c", "${A-b}me", "/c"),
        ("${ /c", "${", "/c"),
    ],
)
def test_variables_are_substituted_once_and_stay_one_field(
    line: str, source: str, target: str
) -> None:
    environ = {"HOME": "/home/me", "USER": "me", "ODD": "/with a\tblank\\"}
    mount = one(line, **environ)
    assert (mount.source, mount.target) == (source, target)


def test_what_a_value_holds_is_not_expanded_again() -> None:
    assert substitute("${A}", {"A": "${B}$(id)`id`", "B": "x"}) == "${B}$(id)`id`"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/src", Mount("/src", "/src", "none", GUESSED)),
        (".:mnt", Mount(".", "mnt", "none", GUESSED)),
        ("/src:/dst", Mount("/src", "/dst", "none", GUESSED)),
        ("/src:/dst:ro", Mount("/src", "/dst", "none", ("ro",))),
        ("/src:/dst:none:bind,ro", Mount("/src", "/dst", "none", ("bind", "ro"))),
        ("/src:/dst:none:bind:0:0", Mount("/src", "/dst", "none", ("bind",))),
        ("tmpfs:/dst:size=1m,ro", Mount("tmpfs", "/dst", "tmpfs", ("size=1m", "ro"))),
        ("/with blank:/dst", Mount("/with blank", "/dst", "none", GUESSED)),
        ("/a\\072b:/dst", Mount("/a:b", "/dst", "none", GUESSED)),
    ],
)
def test_a_mount_argument(text: str, expected: Mount) -> None:
    assert parse_mount(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", ":", ":/dst", "/src:", "/src::ro", "/a\n/b", "/a\0", "tmpfs", "/a:/b:none:bind:0:-1"],
)
def test_a_mount_argument_that_is_refused(text: str) -> None:
    with pytest.raises(InvalidMountError) as caught:
        parse_mount(text)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("plain", "plain"),
        ("a\\040b", "a b"),
        ("a\\40b", "a b"),
        ("a\\\\040", "a\\040"),
        ("a\\x", "a\\x"),
        ("a\\", "a\\"),
        ("\\000", "\\000"),
        ("\\400x", "\\400x"),
    ],
)
def test_escapes(word: str, expected: str) -> None:
    assert unescape(word) == expected
