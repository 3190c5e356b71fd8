"""Command words. The rules are enroot-switchroot.c: sys_init()."""

from __future__ import annotations

import pytest

from enroot_py.plan.command import Program, choose_shell, search_path, shell_program

SH = "/bin/sh"
EXEC = ("-c", 'exec "$@"', "sh")


@pytest.mark.parametrize(
    ("script", "command", "argv"),
    [
        ("/etc/rc", (), ("sh", "/etc/rc")),
        ("/etc/rc", ("a", "b c"), ("sh", "/etc/rc", "a", "b c")),
        ("", ("true",), ("sh", *EXEC, "true")),
        ("", ("/bin/echo", "", "a\nb", "*"), ("sh", *EXEC, "/bin/echo", "", "a\nb", "*")),
        ("", ("echo $1", "x"), ("sh", "-c", "echo $1", "sh", "x")),
        ("", ("/script", "x"), ("sh", "/script", "x")),
        ("", ("-e",), ("sh", *EXEC, "-e")),
    ],
)
def test_a_shell_gets_its_words(
    script: str, command: tuple[str, ...], argv: tuple[str, ...]
) -> None:
    for login, first in ((False, "sh"), (True, "-sh")):
        program = shell_program(
            SH, command, login=login, script=script, is_script=lambda path: path == "/script"
        )
        assert program == Program(SH, (first, *argv[1:]))


def test_without_script_and_command_the_shell_is_interactive() -> None:
    program = shell_program("/usr/bin/fish", (), login=True, script="", is_script=lambda path: True)
    assert program == Program("/usr/bin/fish", ("-fish",), interactive=True)


@pytest.mark.parametrize(
    ("candidates", "there", "chosen"),
    [
        (("", "/bin/bash"), {"/bin/bash", SH}, "/bin/bash"),
        (("/fake", "/bin/bash"), {"/bin/bash", SH}, "/bin/bash"),
        (("/fake", "/bin/bash"), {"/fake", "/bin/bash", SH}, "/fake"),
        (("", "/bin/bash"), {SH}, SH),
        (("", "/bin/bash"), set(), ""),
        # A service's account, which may start containers as others do.
        (("", "/usr/sbin/nologin"), {"/usr/sbin/nologin", SH}, SH),
        (("/bin/false", ""), {"/bin/false", SH}, SH),
    ],
)
def test_the_first_shell_that_works_is_chosen(
    candidates: tuple[str, ...], there: set[str], chosen: str
) -> None:
    assert choose_shell(candidates, there.__contains__) == chosen


@pytest.mark.parametrize(
    ("word", "path", "expected"),
    [
        ("ls", "/bin:/usr/bin", ("/bin/ls", "/usr/bin/ls")),
        ("ls", ":/bin", ("./ls", "/bin/ls")),
        ("./ls", "/bin", ("./ls",)),
        ("/ls", "", ("/ls",)),
    ],
)
def test_programs_are_searched_as_execvp_does(
    word: str, path: str, expected: tuple[str, ...]
) -> None:
    assert search_path(word, path) == expected
