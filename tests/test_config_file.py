"""Configuration files: which lines count, and what their values become."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from enroot_py.config_file import accepts_key, expand_value, parse_config, parse_directives
from enroot_py.errors import SettingsError

ENVIRON = {
    "V": "one two",
    "PAD": " pad ",
    "EMPTY": "",
    "HOME": "/home/me",
    "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
}


@pytest.mark.parametrize(
    "text, pairs",
    [
        ("", []),
        ("ENROOT_A b", [("ENROOT_A", "b")]),
        ("ENROOT_A=b", [("ENROOT_A", "b")]),
        ("ENROOT_A = b", [("ENROOT_A", "b")]),
        ("  ENROOT_A\t \tb  ", [("ENROOT_A", "b")]),
        ("ENROOT_A = = b", [("ENROOT_A", "= b")]),
        ("ENROOT_A b=", [("ENROOT_A", "b")]),
        ("ENROOT_A b c=", [("ENROOT_A", "b c=")]),
        ("ENROOT_A", [("ENROOT_A", "")]),
        ("ENROOT_A 'b  c'", [("ENROOT_A", "'b  c'")]),
        ("#ENROOT_A b", []),
        ("# ENROOT_A b", []),
        ("export ENROOT_A=b", [("export", "ENROOT_A=b")]),
        ("-x y", []),
        ("A-B c", []),
        ("A b\n\nC d\r\n", [("A", "b"), ("C", "d")]),
        ("A b\x0bB c\x85", [("A", "b\x0bB c\x85")]),
        ("A b\nA c", [("A", "b"), ("A", "c")]),
    ],
)
def test_lines_become_pairs(text: str, pairs: list[tuple[str, str]]) -> None:
    assert parse_config(text) == pairs


@pytest.mark.parametrize(
    "key, accepted",
    [
        ("ENROOT_DATA_PATH", True),
        ("ENROOT_X", True),
        ("ENROOT_", False),
        ("ENROOT_x", False),
        ("ENROOT_A1", False),
        ("NVIDIA_VISIBLE_DEVICES", True),
        ("NVIDIA_x", True),
        ("MELLANOX_VISIBLE_DEVICES", True),
        ("SSL_CERT_DIR", True),
        ("SSL_CERT_FILE", True),
        ("SSL_CERT_X", False),
        ("http_proxy", True),
        ("https_proxy", True),
        ("no_proxy", True),
        ("all_proxy", True),
        ("ftp_proxy", False),
        ("HTTP_PROXY", False),
        ("PATH", False),
        ("LD_PRELOAD", False),
        ("BASH_ENV", False),
        ("XDG_DATA_HOME", False),
    ],
)
def test_only_its_own_variables_can_be_set(key: str, accepted: bool) -> None:
    assert accepts_key(key) is accepted


VALUES = [
    ("", ""),
    ("a", "a"),
    ("a   b", "a b"),
    ("'a   b'", "a   b"),
    ('"a   b"', "a   b"),
    ("a'b'\"c\"d", "abcd"),
    ("''", ""),
    ("a # comment", "a"),
    ("a#b", "a#b"),
    ("'#'", "#"),
    (r"a\ b", "a b"),
    (r"\$V", "$V"),
    (r"a\\b", r"a\b"),
    ("a\\", "a\\"),
    (r'"\$V \" \\ \x"', r'$V " \ \x'),
    (r"'\$V'", r"\$V"),
    ("$V", "one two"),
    ("x$V.y", "xone two.y"),
    ("${V}x", "one twox"),
    ('"$PAD"', " pad "),
    ("$PAD", "pad"),
    ("a$PAD.", "a pad ."),
    ("$UNSET", ""),
    ("a${UNSET}b", "ab"),
    ("${UNSET:-d}", "d"),
    ("${EMPTY:-d}", "d"),
    ("${EMPTY-d}", ""),
    ("${V:-d}", "one two"),
    ("${UNSET:-$V}", "one two"),
    ("${UNSET:-/x/$UNSET/y}", "/x//y"),
    ("$", "$"),
    ("a$ b", "a$ b"),
    ("~", "/home/me"),
    ("~/x", "/home/me/x"),
    ("a~", "a~"),
    ("'~'", "~"),
    ("$UNSET~", "~"),
    ("a ~/b", "a /home/me/b"),
    ("~root/x", os.path.expanduser("~root/x")),
    ("/no*/such?/[x]", "/no*/such?/[x]"),
    ("é", "é"),
    # What is left to bash: rarer expansions, and commands.
    ("${V%o}", "one tw"),
    ("${V:+set}", "set"),
    ("${#V}", "7"),
    ("{a,b}", "a b"),
    ("$'a\\tb'", "a\tb"),
    ("${UNSET:-'q r'}", "q r"),
    ("\"${UNSET:-'q'}\"", "'q'"),
    ("$1x", "x"),
    ("$(echo a b)", "a b"),
    ("`echo a`", "a"),
    ('"$(printf %s "$V")"', "one two"),
    ("$((2 + 3))", "5"),
]


@pytest.mark.parametrize("raw, value", VALUES)
def test_values_are_expanded(raw: str, value: str) -> None:
    assert expand_value(raw, ENVIRON, origin="K in FILE") == value


@pytest.mark.parametrize("raw, value", VALUES)
def test_the_table_is_what_bash_does(raw: str, value: str) -> None:
    script = 'value=$1; set --; eval "echo $value"'
    done = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", raw], env=ENVIRON, capture_output=True, check=True
    )
    assert done.stdout.decode() == value + "\n"


def test_plain_values_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    assert (
        expand_value("\"$V\" ~/x ${UNSET:-d} 'q'", ENVIRON, origin="K") == "one two /home/me/x d q"
    )


@pytest.mark.parametrize(
    "raw, words",
    [
        ("'secret", "Unmatched '"),
        ('"secret', 'Unmatched "'),
        ("secret; rm x", "Invalid value"),
        ("secret > x", "Invalid value"),
        ("secret & x", "Invalid value"),
        ("secret | x", "Invalid value"),
        ("(secret)", "Invalid value"),
        ("${secret", "Cannot evaluate"),
        ("$(exit 3)secret", ""),
        ("$(secret", "Cannot evaluate"),
    ],
)
def test_errors_name_the_key_and_never_the_value(
    raw: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    if not words:  # as in a shell, the status of a command within words does not matter
        assert expand_value(raw, ENVIRON, origin="KEY in FILE") == "secret"
        return
    with pytest.raises(SettingsError, match="KEY in FILE") as raised:
        expand_value(raw, ENVIRON, origin="KEY in FILE")
    assert words in str(raised.value)
    assert "secret" not in f"{raised.value} {raised.value.hint}"


def test_a_command_without_bash_is_refused_with_a_hint(tmp_path: os.PathLike[str]) -> None:
    assert shutil.which("bash")
    environ = {**ENVIRON, "PATH": os.fspath(tmp_path)}
    with pytest.raises(SettingsError, match="KEY in FILE") as raised:
        expand_value("$(hostname)", environ, origin="KEY in FILE")
    assert "bash" in raised.value.hint


def test_a_command_does_not_read_our_input() -> None:
    assert expand_value("$(cat)x", ENVIRON, origin="K") == "x"


@pytest.mark.parametrize(
    "text, pairs",
    [
        ("#ENROOT_ROOTFS alpine", [("ENROOT_ROOTFS", "alpine")]),
        ("# \tENROOT_ROOTFS=a b", [("ENROOT_ROOTFS", "a b")]),
        (" #ENROOT_A b", []),
        ("ENROOT_A b", []),
        ("##ENROOT_A b", []),
        ("#!/bin/bash\n#ENROOT_A b\necho\n#ENROOT_C d", [("ENROOT_A", "b"), ("ENROOT_C", "d")]),
        ("#NVIDIA_VISIBLE_DEVICES all", []),
    ],
)
def test_directives_are_comments_that_name_a_setting(
    text: str, pairs: list[tuple[str, str]]
) -> None:
    assert parse_directives(text) == pairs
