"""Messages: enroot's marks, one line each, nothing that drives a terminal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from enroot_py import log


@pytest.fixture
def lines() -> Iterator[list[tuple[str, str]]]:
    seen: list[tuple[str, str]] = []
    log.set_sink(lambda level, text: seen.append((level, text)))
    yield seen
    log.set_sink(None)


def test_without_a_sink_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    log.set_sink(None)
    log.info("a")
    log.warn("b")
    log.error("c")
    assert capsys.readouterr() == ("", "")


def test_levels_reach_the_sink(lines: list[tuple[str, str]]) -> None:
    log.info("a")
    log.warn("b")
    log.error("c")
    assert lines == [("INFO", "a"), ("WARN", "b"), ("ERROR", "c")]


def test_a_cause_is_warned_of_once(lines: list[tuple[str, str]]) -> None:
    log.warn_once("test_log cause", "a")
    log.warn_once("test_log cause", "b")
    log.warn_once("test_log other", "c")
    assert lines == [("WARN", "a"), ("WARN", "c")]


@pytest.mark.parametrize(
    "level, colour, line",
    [
        ("INFO", False, "[INFO] text"),
        ("WARN", False, "[WARN] text"),
        ("ERROR", False, "[ERROR] text"),
        ("INFO", True, "\x1b[94m[INFO]\x1b[0m text"),
        ("ERROR", True, "\x1b[31m[ERROR]\x1b[0m text"),
    ],
)
def test_lines_have_enroots_form(level: str, colour: bool, line: str) -> None:
    assert log.format_line(level, "text", colour=colour) == line


@pytest.mark.parametrize(
    "text, shown",
    [
        ("plain é ✓", "plain é ✓"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("two\nlines\r", r"two\nlines\r"),
        ("tab\t", r"tab\t"),
        ("\x9b2J", r"\x9b2J"),
        ("bidi\u202etxt", r"bidi\u202etxt"),
        (b"bytes \xff\xfe".decode("utf-8", "surrogateescape"), r"bytes \xff\xfe"),
        ("\U000e0001", r"\U000e0001"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert log.printable(text) == shown
    assert log.format_line("INFO", text, colour=False) == f"[INFO] {shown}"
