"""Environment files. The rules are enroot's common.sh: envsubst() and envfmt()."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enroot_py.errors import InvalidEnvironmentError
from enroot_py.plan.environ import format_environ, parse_assignment, parse_environ


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("A=b", ("A", "b")),
        ("  \tA=b", ("A", "b")),
        ("A=", ("A", "")),
        ("A=b=c", ("A", "b=c")),
        ("_a1=b", ("_a1", "b")),
        ("A= b ", ("A", " b ")),
        ('A="b c"', ("A", "b c")),
        ("A='b'", ("A", "b")),
        ("A=\"b'  ", ("A", "b")),
        ('A=""', ("A", "")),
        ('A="', ("A", '"')),
        ('A=b"c"', ("A", 'b"c"')),
        ('A=""b""', ("A", '"b"')),
        ("A=$(id)`id`$B\\n", ("A", "$(id)`id`$B\\n")),
        ("A=b # c", ("A", "b # c")),
    ],
)
def test_a_line_is_a_variable(line: str, expected: tuple[str, str]) -> None:
    assert parse_environ(line, {"B": "no"}) == (expected,)


@pytest.mark.parametrize(
    "line", ["", "#A=b", "  # A=b", "A", "A b=c", "1A=b", "A-B=c", "=b", "export A=b", "Ä=b"]
)
def test_anything_else_is_skipped(line: str) -> None:
    assert parse_environ(f"{line}\nX=y", {}) == (("X", "y"),)


@pytest.mark.parametrize("name", ["ENROOT_PID", "ENROOT_", "ENROOT_ROOTFS"])
def test_reserved_names_do_not_arrive(name: str) -> None:
    assert parse_environ(f"{name}=x", {}) == ()


def test_host_variables_are_substituted_in_files_that_ask_for_it() -> None:
    text = "TERM=${TERM}\nPATH=/x:${PATH}\nNONE=${GONE}\nLITERAL=$TERM"
    host = {"TERM": "xterm", "PATH": "/bin"}
    values = ("xterm", "/x:/bin", "", "$TERM")
    assert tuple(value for _, value in parse_environ(text, host)) == values
    assert parse_environ("A=${TERM}", None) == (("A", "${TERM}"),)


def test_a_name_may_come_twice_in_order() -> None:
    assert parse_environ("A=1\nA=2", {}) == (("A", "1"), ("A", "2"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=x\n# enroot-exact: A=x\\012y\\134z", "x\ny\\z"),
        ("A=${H}\n# enroot-exact: A=${H}", "${H}"),
        ("A=edited\n# enroot-exact: A=x\\012y", "edited"),
        ("# enroot-exact: A=x\\012y\nA=x", "x"),
        ("A=x\nB=x\n# enroot-exact: A=x\\012y", "x"),
    ],
)
def test_an_exact_value_counts_only_right_after_its_first_line(text: str, expected: str) -> None:
    assert dict(parse_environ(text, {"H": "host"}))["A"] == expected


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: not name.startswith("ENROOT_")
)
values = st.text(st.characters(blacklist_characters="\0", blacklist_categories=()), max_size=30)


@given(st.lists(st.tuples(names, values), max_size=5))
def test_what_is_written_is_read_again_exactly(pairs: list[tuple[str, str]]) -> None:
    assert parse_environ(format_environ(pairs), None) == tuple(pairs)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=b", ("A", "b")),
        ("A=", ("A", "")),
        ("A", ("A", "host")),
        ("GONE", ("GONE", "")),
        ('A="b"', ("A", '"b"')),
        ("A=${A}$(id)\nx", ("A", "${A}$(id)\nx")),
    ],
)
def test_an_assignment_is_taken_as_it_is(text: str, expected: tuple[str, str]) -> None:
    assert parse_assignment(text, {"A": "host"}) == expected


@pytest.mark.parametrize("text", ["", "=b", "1=2", "A B", "A-B=c", "A=b\0c", "-e"])
def test_a_bad_assignment_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidEnvironmentError) as caught:
        parse_assignment(text, {})
    assert text in str(caught.value)
