"""Which program a container starts with, and its words. Pure: files are asked for by a function.

Source: enroot 4.1.2 bin/enroot-switchroot.c, sys_init().
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

SCRIPT = "/etc/rc"
"""The image's command script, path inside the rootfs."""

DEFAULT_SHELL = "/bin/sh"
_REFUSALS = ("nologin", "false")
"""Programs that stand where an account has no shell. They would run nothing that is started."""


class Program(NamedTuple):
    """What to execute.

    Attributes:
        path: path inside the container.
        argv: its words, from argv[0] on.
        interactive: a shell that nobody gave anything to do.
    """

    path: str
    argv: tuple[str, ...]
    interactive: bool = False


def choose_shell(candidates: tuple[str, ...], is_program: Callable[[str], bool]) -> str:
    """Return the first shell that can be executed, "" if the image has none.

    Args:
        candidates: paths inside the container by preference; empty ones are skipped, and what a
            service's account has there to refuse logins.
        is_program: tells whether a path can be read and executed.
    """
    for path in (*candidates, DEFAULT_SHELL):
        if path and path.rpartition("/")[2] not in _REFUSALS and is_program(path):
            return path
    return ""


def shell_program(
    shell: str,
    command: tuple[str, ...],
    *,
    login: bool,
    script: str,
    is_script: Callable[[str], bool],
) -> Program:
    """Return how a shell is started.

    The command script gets the command's words. Without one the command is run by the shell: a
    first word with a blank in it is a command line, a file that exists and cannot be executed is a
    script, anything else a program.

    Args:
        shell: path of the shell inside the container.
        command: the words given; may be empty.
        login: start it as a login shell.
        script: path of the command script, "" for none.
        is_script: tells whether a path exists and cannot be executed.
    """
    name = shell.rpartition("/")[2]
    words: tuple[str, ...] = ("-" + name if login else name,)
    if script:
        words += (script, *command)
    elif not command:
        return Program(shell, words, interactive=True)
    elif " " in command[0]:
        words += ("-c", command[0], name, *command[1:])
    elif is_script(command[0]):
        words += command
    else:
        words += ("-c", 'exec "$@"', name, *command)
    return Program(shell, words)


def search_path(word: str, path: str) -> tuple[str, ...]:
    """Return where to look for a program, in order: execvp(3)'s rule.

    Args:
        word: the program as given; with a slash in it it is a path.
        path: the value of PATH; an empty entry is the working directory.
    """
    if "/" in word:
        return (word,)
    return tuple(f"{folder or '.'}/{word}" for folder in path.split(":"))
