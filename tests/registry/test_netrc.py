"""The credentials file: netrc's words, quotes, looked-up passwords and their limits."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from enroot_py import log
from enroot_py.errors import AuthenticationError
from enroot_py.registry.netrc import find_password, parse_netrc, read_credentials_file, run_helper

ONE = [("a", "u", "p")]
AWKWARD = 'a b"c$d\\e:#é'


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


def lookup(
    folder: Path, password: str, *, mode: int = 0o600, timeout: float = 20.0, **environ: str
) -> str:
    path = folder / ".credentials"
    path.write_text(f"machine h login u password {password}\n")
    path.chmod(mode)
    file = read_credentials_file(str(path))
    return find_password(
        file.entries[0], file, {"PATH": os.environ["PATH"], **environ}, timeout=timeout
    )


def test_expressions_are_looked_up(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(AWKWARD + "\n")
    long = "x" * 4096
    cases = {
        "$TOKEN": "t o'k",
        "${TOKEN}": "t o'k",
        "$TOKEN # a note": "t o'k",
        "pre": "pre",
        "$TOKEN-$TOKEN": "t o'k-t o'k",
        f"$(cat {secret})": AWKWARD,
        f"$(cat '{secret}' | cat)": AWKWARD,
        "$(printf '%s' \"$TOKEN\")": "t o'k",
        "$(printf '%s' ')(')": ")(",
        "$(echo $(echo in))": "in",
        "$(printf 'a\\nb\\n\\n')": "a\nb",
        f"$(printf {long})": long,
    }
    for password, expected in cases.items():
        assert lookup(tmp_path, password, TOKEN="t o'k") == expected, password


@pytest.mark.parametrize(
    ("password", "words"),
    [
        ("$NOT_SET", "NOT_SET is not set"),
        ("$(exit 3)", "status 3"),
        ("$(true)", "gives nothing"),
        ("$(no-such-command-anywhere)", "status 127"),
        ("$(printf '\\033[2Jhunter2')", "junk"),
        ("$(head -c 300000 /dev/zero | tr '\\0' x)", "junk"),
        ("$(echo x", "cannot be evaluated"),
        ("$", "cannot be evaluated"),
        ("$TOKEN;id", "cannot be evaluated"),
        ("$TOKEN id", "cannot be evaluated"),
        ("$TOKEN`id`", "cannot be evaluated"),
        ("$TOKEN|id", "cannot be evaluated"),
        ("$TOKEN>x", "cannot be evaluated"),
        ("${TOKEN:-x}", "cannot be evaluated"),
    ],
)
def test_what_cannot_be_looked_up_is_said_without_the_secret(
    tmp_path: Path, password: str, words: str
) -> None:
    with pytest.raises(AuthenticationError) as caught:
        lookup(tmp_path, password, TOKEN="hunter2")
    assert words in str(caught.value)
    assert "line 1" in str(caught.value)
    assert "hunter2" not in str(caught.value) + caught.value.hint


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    started = time.monotonic()
    with pytest.raises(AuthenticationError, match="still running"):
        lookup(tmp_path, f"$(sleep 60 & echo $! > {pid_file}; wait)", timeout=1.0)
    assert time.monotonic() - started < 30
    pid = int(pid_file.read_text())
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    raise AssertionError("the command's child is still there")


def test_a_command_sees_neither_the_terminal_nor_our_input(tmp_path: Path) -> None:
    assert lookup(tmp_path, "$(cat; echo end)") == "end"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o777])
def test_expressions_of_a_file_that_others_can_write_are_refused(tmp_path: Path, mode: int) -> None:
    marker = tmp_path / "ran"
    with pytest.raises(AuthenticationError) as caught:
        lookup(tmp_path, f"$(touch {marker}; echo x)", mode=mode)
    assert not marker.exists()
    assert "chmod 600" in caught.value.hint
    assert lookup(tmp_path, "plain", mode=mode) == "plain"


@pytest.mark.parametrize(
    ("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True), (0o660, True)]
)
def test_a_file_open_to_others_is_warned_of(tmp_path: Path, mode: int, warned: bool) -> None:
    messages: list[str] = []
    log.set_sink(lambda level, text: messages.append(text))
    lookup(tmp_path, "plain", mode=mode)
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


def test_a_helper_gets_its_request_on_standard_input() -> None:
    output = run_helper(["/bin/cat"], {}, where="helper", request=b"host.io")
    assert output == b"host.io"
    with pytest.raises(AuthenticationError, match="cannot run"):
        run_helper(["/no/such/program"], {}, where="helper")
