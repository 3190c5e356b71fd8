"""The functions that hooks written for enroot find in common.sh."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from enroot_py.settings import package_share_path
from tests.hooks.contexts import write_file

SHARE = Path(package_share_path())
FUNCTIONS = (
    *("fmt", "log", "err", "rmall", "mktmpdir", "read", "readstrarray", "chdir", "curl", "jq"),
    *("realpath", "envsubst", "evalnetrc", "envfmt", "runparts", "checkcmd", "fixperms"),
    *("getpwent", "getgrent", "debarch", "mountpoint"),
)


def bash(
    text: str, *, folder: Path | None = None, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a script as hooks are written."""
    prologue = 'set -euo pipefail\nsource "${ENROOT_LIBRARY_PATH}/common.sh"\n'
    return subprocess.run(
        ["bash", "--norc", "-c", prologue + text],
        env={"PATH": os.environ["PATH"], "ENROOT_LIBRARY_PATH": str(SHARE), **environ},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def output(text: str, *, folder: Path | None = None, **environ: str) -> str:
    done = bash(text, folder=folder, **environ)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_function_is_there() -> None:
    checks = " ".join(f"common::{name}" for name in FUNCTIONS)
    assert output(f"declare -F {checks} > /dev/null") == ""


def test_it_may_be_sourced_twice() -> None:
    assert output('source "${ENROOT_LIBRARY_PATH}/common.sh"; echo ok') == "ok\n"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("log INFO hello", "[INFO] hello\n"),
        ("log WARN 'a\\nb'", "[WARN] a\nb\n"),
        ("log ERROR x NL", "[ERROR] x\n"),
        ("log", ""),
        ("log INFO - <<< $'one\\ntwo'", "[INFO] one\n[INFO] two\n"),
    ],
)
def test_messages_go_to_stderr(call: str, text: str) -> None:
    done = bash(f"common::{call}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", text)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("err 'no good'", "no good"),
        ("checkcmd sh no-such-command", "Command not found: no-such-command"),
        ("chdir /no/such", "Cannot change to the folder: /no/such"),
        ("realpath /no/such/path", "No such file or folder: /no/such/path"),
        ("debarch sparc", "Unsupported architecture: sparc"),
    ],
)
def test_errors_end_the_script(call: str, message: str) -> None:
    done = bash(f"common::{call}; echo went on")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"[ERROR] {message}\n"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("debarch x86_64", "amd64"),
        ("debarch aarch64", "arm64"),
        ("realpath /proc/../proc", "/proc"),
        ("mountpoint /proc/self/", "/proc"),
        ("readstrarray words $'a b\\nc'; echo ${#words[@]}", "2\n"),
        ("readstrarray words ''; echo ${words-unset}", "unset\n"),
        ("read -r line < /dev/null; echo on", "on\n"),
        ("fmt none text", "text"),
    ],
)
def test_small_helpers(call: str, text: str) -> None:
    assert output(f"common::{call}") == text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a=${SET}", "a=value"),
        ("${SET}${SET}", "valuevalue"),
        ("${UNSET}|${NOT_EXPORTED}|${EMPTY}|", "|||"),
        ("$SET $ ${ ${} ${1} ${SET:-x} }", "$SET $ ${ ${} ${1} ${SET:-x} }"),
        ("no line feed at the end", "no line feed at the end"),
        ("\\${SET} '${SET}'", "\\value 'value'"),
        ("${QUOTED}", "a $(b) \\ *"),
    ],
)
def test_variables_are_substituted(tmp_path: Path, line: str, expected: str) -> None:
    path = write_file(tmp_path / "f", line)
    text = output(
        f"NOT_EXPORTED=x; common::envsubst {path}", SET="value", EMPTY="", QUOTED="a $(b) \\ *"
    )
    assert text == expected + "\n"
    assert output(f"common::envsubst {tmp_path}/missing") == ""


def test_environment_files_are_cleaned(tmp_path: Path) -> None:
    path = write_file(
        tmp_path / "f", '  A=1\n#c\n\nbad\n1B=2\nENROOT_X=3\nC="q"\nD=\'q\' \nE="open\nF=a=b\n'
    )
    output(f"common::envfmt {path}")
    assert path.read_text().splitlines() == ["A=1", "C=q", "D=q", 'E="open', "F=a=b"]


def test_parts_are_listed_and_run_in_order(tmp_path: Path) -> None:
    for name, mode in (("20-b.sh", 0o755), ("10-a.sh", 0o755), ("15-off.sh", 0o644)):
        write_file(tmp_path / name, f"#!/bin/sh\necho {name}\n", mode=mode)
    write_file(tmp_path / "30.txt", "", mode=0o755)
    listed = output(f"common::runparts list .sh {tmp_path}").split()
    assert [Path(path).name for path in listed] == ["10-a.sh", "15-off.sh", "20-b.sh"]
    assert output(f"common::runparts exec .sh {tmp_path}").split() == ["10-a.sh", "20-b.sh"]
    assert output(f"common::runparts list .sh {tmp_path}/none") == ""
    write_file(tmp_path / "10-a.sh", "#!/bin/sh\nexit 3\n", mode=0o755)
    done = bash(f"common::runparts exec .sh {tmp_path}")
    assert (done.returncode, done.stdout) == (1, "")
    assert "10-a.sh failed: it exited with status 3" in done.stderr


def test_the_user_is_found_in_the_hosts_databases() -> None:
    entry = pwd.getpwuid(os.getuid())
    assert output("common::getpwent").startswith(f"{entry.pw_name}:")
    assert output("common::getgrent").split(":")[2] == str(os.getgid())


def test_temporary_folders_are_private(tmp_path: Path) -> None:
    path = Path(output("common::mktmpdir prefix", ENROOT_TEMP_PATH=str(tmp_path)).strip())
    assert path.parent == tmp_path
    assert path.name.startswith("prefix.")
    assert path.stat().st_mode & 0o777 == 0o700


def test_closed_folders_are_opened_and_removed(tmp_path: Path) -> None:
    write_file(tmp_path / "tree/a/b", "")
    for mode, path in ((0, "tree/a/b"), (0o500, "tree/a"), (0o400, "tree")):
        (tmp_path / path).chmod(mode)
    output(f"common::fixperms {tmp_path}/tree")
    assert (tmp_path / "tree/a").stat().st_mode & 0o700 == 0o700
    (tmp_path / "tree/a").chmod(0)
    output(f"common::rmall {tmp_path}/tree")
    assert not (tmp_path / "tree").exists()


def test_passwords_by_command_are_evaluated(tmp_path: Path) -> None:
    path = write_file(
        tmp_path / "c",
        "machine a login b password $SECRET\nmachine c login d password p$x\n"
        "machine e login f password $(echo two words)\n",
    )
    assert output(f"common::evalnetrc {path}", SECRET="s").splitlines() == [
        "machine a login b password s",
        "machine c login d password p$x",
        "machine e login f password two words",
    ]


@pytest.mark.parametrize(
    ("status", "ignored", "code"), [("200", "", 0), ("404", "", 1), ("404", "401 404", 0)]
)
def test_http_errors_end_the_script(tmp_path: Path, status: str, ignored: str, code: int) -> None:
    """With a curl that writes a body and prints a status, as the real one is asked to."""
    write_file(tmp_path / "curl", f'#!/bin/sh\nprintf body > "$2"\nprintf {status}\n', mode=0o755)
    done = bash(
        "common::curl http://x/y",
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        CURL_IGNORE=ignored,
    )
    assert (done.returncode, done.stdout) == (code, "body")
    assert ("http://x/y answered with HTTP status 404" in done.stderr) is bool(code)
