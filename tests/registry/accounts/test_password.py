"""Looked-up passwords: what is evaluated, and what must never be."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from enroot_py.errors import AuthenticationError
from enroot_py.registry.accounts.netrc import read_credentials_file
from enroot_py.registry.accounts.password import find_password, run_helper

AWKWARD = 'a b"c$d\\e:#é'


def lookup(
    folder: Path, password: str, *, mode: int = 0o600, timeout: float = 60.0, **environ: str
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
    for limit in (1.0, 10.0, 60.0):  # the shortest in which the command has begun at all
        started = time.monotonic()
        with pytest.raises(AuthenticationError, match="still running"):
            lookup(tmp_path, f"$(sleep 600 & echo $! > {pid_file}; wait)", timeout=limit)
        assert time.monotonic() - started < 300
        if pid_file.exists() and pid_file.read_text():
            break
    pid = int(pid_file.read_text())
    for _ in range(1200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
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


def test_a_helper_gets_its_request_on_standard_input() -> None:
    output = run_helper(["/bin/cat"], {}, where="helper", request=b"host.io")
    assert output == b"host.io"
    with pytest.raises(AuthenticationError, match="cannot run"):
        run_helper(["/no/such/program"], {}, where="helper")
