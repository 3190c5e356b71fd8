"""The files of a login. The rules are enroot-switchroot.c: load_config() and set_umask()."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from enroot_py.enter import login
from enroot_py.enter.login import read_parameters


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("UMASK 022", {"UMASK": "022"}),
        ("UMASK=022", {"UMASK": "022"}),
        ("  UMASK\t\t022  ", {"UMASK": "022"}),
        ('LANG="en_US.UTF-8"', {"LANG": "en_US.UTF-8"}),
        ('LANG = "C" # why', {"LANG": "C"}),
        ("ENV_PATH PATH=/usr/bin:/bin", {"ENV_PATH": "PATH=/usr/bin:/bin"}),
        ("A two words", {"A": "two"}),
        ("A 1\nA 2", {"A": "2"}),
        ("A a\\\nb", {"A": "ab"}),
        ("A \\#1", {"A": "#1"}),
        ("A 1#2", {"A": "1"}),
        ("# A 1\n\n   # B 2\nC 3", {"C": "3"}),
        ("A", {}),
        ("A=", {}),
        ('A ""', {}),
        ("", {}),
    ],
)
def test_parameters(tmp_path: Path, text: str, expected: dict[str, str]) -> None:
    (tmp_path / "conf").write_text(text)
    assert read_parameters(str(tmp_path / "conf")) == expected


def test_files_that_are_none_have_no_parameters(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"A \xff\xfe\nB 1")
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 30)
    for name in ("fifo", "folder", "missing", "huge"):
        assert read_parameters(str(tmp_path / name)) == {}
    assert read_parameters(str(tmp_path / "binary")) == {"A": "\udcff\udcfe", "B": "1"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("022", 0o22),
        ("0", 0),
        ("77", 77),
        ("0x1f", 31),
        ("", -1),
        ("x", -1),
        ("-1", -1),
        ("089", -1),
    ],
)
def test_numbers_are_read_as_c_does(text: str, value: int) -> None:
    assert login._parse_number(text) == value


@pytest.mark.parametrize(
    ("zone", "expected"), [("", ""), ("TZ=CET", "CET"), ("CET", "CET"), ("/nonexistent", "")]
)
def test_time_zones(zone: str, expected: str) -> None:
    assert login._timezone(zone) == expected


def test_a_time_zone_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "tz").write_text("TZ=Europe/Berlin\nmore\n")
    assert login._timezone(str(tmp_path / "tz")) == "Europe/Berlin"


@pytest.mark.parametrize(
    ("settings", "mailbox"),
    [
        ({}, ""),
        ({"MAIL_DIR": "/mail"}, ""),
        ({"MAIL_CHECK_ENAB": "yes", "MAIL_DIR": "/mail"}, "/mail/me"),
        ({"MAIL_CHECK_ENAB": "TRUE", "MAIL_FILE": ".mail"}, "/home/me/.mail"),
        ({"MAIL_CHECK_ENAB": "yes"}, "/var/mail/me"),
        ({"MAIL_CHECK_ENAB": "no"}, ""),
    ],
)
def test_mailboxes(settings: dict[str, str], mailbox: str) -> None:
    user = login.User("me", 1000, 1000, "/home/me", "/bin/sh")
    assert login._mailbox(settings, {}, user) == mailbox


@pytest.mark.parametrize(
    ("settings", "uid", "path"),
    [
        ({}, 1000, "/usr/local/bin:/bin:/usr/bin"),
        ({}, 0, "/bin:/usr/bin:/sbin:/usr/sbin"),
        ({"ENV_PATH": "PATH=/a", "ENV_SUPATH": "/b"}, 1000, "/a"),
        ({"ENV_PATH": "PATH=/a", "ENV_SUPATH": "/b"}, 0, "/b"),
        ({"ENV_PATH": "PATH="}, 1000, "/usr/local/bin:/bin:/usr/bin"),
    ],
)
def test_default_paths(settings: dict[str, str], uid: int, path: str) -> None:
    assert login._default_path(settings, uid) == path
