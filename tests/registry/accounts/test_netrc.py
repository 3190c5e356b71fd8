"""The credentials file: netrc's words and quotes, and what is no such file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from enroot_py import log
from enroot_py.errors import AuthenticationError
from enroot_py.registry.accounts.netrc import parse_netrc, read_credentials_file

ONE = [("a", "u", "p")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("machine h login u password p", [("h", "u", "p")]),
        ("machine h login u password p\n" * 2, [("h", "u", "p")] * 2),
        ("  machine\th \t login u\tpassword  p  \r\n", [("h", "u", "p")]),
        ("machine h\n  login u\n  password p\n", [("h", "u", "p")]),
        ("machine h password p login u", [("h", "u", "p")]),
        ("machine h login u account a password p", [("h", "u", "p")]),
        ("machine H:5000 login u password p", [("h:5000", "u", "p")]),
        ("# machine x login y password z\nmachine h login u password p", [("h", "u", "p")]),
        ("machine h login u password p # machine x login y password z", [("h", "u", "p")]),
        ("machine h login u password p#x", [("h", "u", "p#x")]),
        ("machine h login $oauthtoken password p", [("h", "$oauthtoken", "p")]),
        ("machine h login dom\\u password p\\q", [("h", "dom\\u", "p\\q")]),
        ('machine h login u password "a b"', [("h", "u", "a b")]),
        ('machine h login u password "$x"', [("h", "u", "$x")]),
        (r'machine h login "a b" password "q\"\\\n\tz"', [("h", "a b", 'q"\\\n\tz')]),
        ('machine h login u password "open', [("h", "u", "open")]),
        ("machine a login u password p machine b login v password q", [*ONE, ("b", "v", "q")]),
        ("machine h login u", []),
        ("machine h password p", []),
        ("machine", []),
        ("machine h login", []),
        ("default login u password p\nmachine h login v password q", [("h", "v", "q")]),
        ("macdef m\n machine x login y password z\n\nmachine a login u password p", ONE),
        ("machine h login u password " + "x" * 4096, [("h", "u", "x" * 4096)]),
        ("\0\xff machine h login u password p", [("h", "u", "p")]),
    ],
)  # fmt: skip
def test_entries(text: str, expected: list[tuple[str, str, str]]) -> None:
    entries = parse_netrc(text, "file")
    assert [(entry.machine, entry.login, entry.password) for entry in entries] == expected
    assert not any(entry.expression for entry in entries)


def test_a_dollar_makes_the_rest_of_the_line_an_expression() -> None:
    text = "machine h login u password $(cat 'a b' | tr x y) # note\nmachine i login v password p"
    first, second = parse_netrc(text, "file")
    assert first.expression and first.password == "$(cat 'a b' | tr x y) # note"
    assert (second.machine, second.line) == ("i", 2)


def test_secrets_are_not_in_the_representation() -> None:
    assert "hunter2" not in repr(parse_netrc("machine h login u password hunter2", "file"))


def test_a_stray_word_is_warned_of_and_not_shown() -> None:
    messages: list[str] = []
    log.set_sink(lambda level, text: messages.append(text))
    parse_netrc("machine h login u password two words", "/home/me/.credentials")
    assert len(messages) == 1
    assert "/home/me/.credentials, line 1" in messages[0]
    assert "words" not in messages[0].replace("unexpected word", "")


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("machine h login u", "password"),
        ("machine h password hunter2", "login"),
        ("machine g login u password p\nmachine h", "login"),
        ("machine", "machine"),
        ("machine h login u password p", ""),
    ],
)
def test_an_incomplete_entry_is_warned_of(
    text: str, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it looks as if the registry wanted an account that is there."""
    messages: list[str] = []
    monkeypatch.setattr(log, "_sink", lambda level, text: messages.append(text))
    parse_netrc(text, str(tmp_path))
    line = text.count("\n") + 1
    expected = f"{tmp_path}, line {line}: an entry without a {missing} is not used"
    assert messages == ([expected] if missing else [])


@pytest.mark.parametrize(
    ("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True), (0o660, True)]
)
def test_a_file_open_to_others_is_warned_of(tmp_path: Path, mode: int, warned: bool) -> None:
    messages: list[str] = []
    log.set_sink(lambda level, text: messages.append(text))
    path = tmp_path / ".credentials"
    path.write_text("machine h login u password p\n")
    path.chmod(mode)
    read_credentials_file(str(path))
    assert bool(messages) == warned


def test_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    link = tmp_path / "link"
    link.symlink_to("/dev/zero")
    for path in (fifo, link, tmp_path):
        with pytest.raises(AuthenticationError):
            read_credentials_file(str(path))
    large = tmp_path / "large"
    with open(large, "wb") as file:
        file.truncate(5 << 20)
    with pytest.raises(AuthenticationError):
        read_credentials_file(str(large))


def test_a_missing_or_empty_file_has_no_entries(tmp_path: Path) -> None:
    assert read_credentials_file(str(tmp_path / "none")).entries == ()
    (tmp_path / "empty").touch()
    assert read_credentials_file(str(tmp_path / "empty")).entries == ()
    assert read_credentials_file(str(tmp_path / "empty" / "below")).entries == ()


def test_a_symbolic_link_to_an_own_file_is_followed(tmp_path: Path) -> None:
    target = tmp_path / "real"
    target.write_text("machine h login u password p\n")
    target.chmod(0o600)
    (tmp_path / "link").symlink_to(target)
    file = read_credentials_file(str(tmp_path / "link"))
    assert file.private and len(file.entries) == 1
