"""Replace this process by the container's program. After the root switch: nothing is imported.

Exit statuses are a shell's: 127 for a program that is missing, 126 for one that cannot be executed.
"""

from __future__ import annotations

import errno
import os

from enroot_py.enter.login import Login, log_in, show_file
from enroot_py.enter.process import restore_signals
from enroot_py.errors import CommandError
from enroot_py.linux.kernel import Kernel
from enroot_py.linux.path import read_file
from enroot_py.plan.command import (
    SCRIPT,
    choose_shell,
    search_path,
    shell_program,
)
from enroot_py.plan.rc import RcScript, parse_rc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_USER_PATH = "/usr/local/bin:/bin:/usr/bin"
_LONGEST_WORD = 128 << 10


def execute(
    kernel: Kernel,
    command: tuple[str, ...],
    environ: dict[str, str],
    *,
    login: bool,
    rc: bytes | None,
    uid: int,
    outside_uid: int,
    use_rc: bool = True,
    workdir: str = "",
) -> NoReturn:
    """Start the container's program by the rules of its command script and login shell.

    Args:
        kernel: the way to system calls.
        command: the words given; may be empty.
        environ: the container's environment.
        login: complete the environment as a login does and use a login shell.
        rc: a command script to use instead of the image's; None for the image's.
        uid, outside_uid: the user inside and on the host.
        use_rc: whether a command script counts at all.
        workdir: a folder inside to go to; "" to stay where the login leads.

    Raises:
        CommandError: with exit code 127 or 126, if nothing can be started.
    """
    session = Login()
    if login:
        opened = log_in(kernel, environ, uid=uid, outside_uid=outside_uid)
        if opened is None:
            os._exit(0)
        session = opened
    if workdir:
        os.chdir(workdir)
    script = SCRIPT if use_rc and os.access(SCRIPT, os.F_OK) else ""
    if rc is not None and use_rc:
        script = _as_file(rc)
    shell = choose_shell((session.shell, environ.get("SHELL", "")), _is_program)
    restore_signals()
    if not shell:
        _execute_without_shell(command, environ, _read_script(script, rc))
    program = shell_program(shell, command, login=login, script=script, is_script=_is_script)
    if program.interactive:
        for path in session.motd:
            show_file(path)
    _execute(program.path, program.argv, environ)


def _is_program(path: str) -> bool:
    return os.access(path, os.R_OK | os.X_OK) and not os.path.isdir(path)


def _is_script(path: str) -> bool:
    return os.access(path, os.F_OK) and not os.access(path, os.R_OK | os.X_OK)


def _as_file(script: bytes) -> str:
    """Return a path in the container that leads to `script`, whatever its file systems are."""
    fd = os.memfd_create("rc", 0)
    while script:
        script = script[os.write(fd, script) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return f"/proc/self/fd/{fd}"


def _read_script(script: str, rc: bytes | None) -> RcScript | None:
    """Read the command script of an image that has no shell to run it."""
    if not script:
        return None
    try:
        text = read_file(script, limit=1 << 20) if rc is None else rc
    except OSError as error:
        raise CommandError(f"Cannot read {script}: {os.strerror(error.errno or 0)}") from error
    parsed = parse_rc(text)
    if parsed is None:
        raise CommandError(
            f"No shell to run {script} with",
            hint="the image has no /bin/sh, and its command script is not one that import wrote",
        )
    return parsed


def _execute_without_shell(
    command: tuple[str, ...], environ: dict[str, str], script: RcScript | None
) -> NoReturn:
    """Do what the image's command script says, or run the command itself."""
    words = command
    if script is not None:
        words = (*script.entrypoint, *(command or script.cmd))
        folder = script.workdir or "/"
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            pass  # in a read-only rootfs; whether it is there shows next
        try:
            os.chdir(folder)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise CommandError(f"Cannot enter the working directory {folder}: {reason}") from error
    if not words:
        raise CommandError(
            "Nothing to start: the image has no shell", hint="give a command to start"
        )
    run_program(words, environ)


def run_program(words: tuple[str, ...], environ: dict[str, str]) -> NoReturn:
    """Execute a program that is looked for in the environment's PATH.

    Raises:
        CommandError: with exit code 127 or 126.
    """
    refused = ""
    for path in search_path(words[0], environ.get("PATH", _USER_PATH)):
        # A missing file is the usual case: asking first is cheaper than failing to execute it.
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            _execute(path, words, environ)
        if not refused and os.access(path, os.F_OK):
            refused = path
    if refused:
        raise _refusal(refused, errno.EACCES)
    raise CommandError(
        f"Command not found: {words[0]}",
        hint=f"searched in {environ.get('PATH', _USER_PATH)}" if "/" not in words[0] else "",
    )


def _execute(path: str, words: tuple[str, ...], environ: dict[str, str]) -> NoReturn:
    try:
        os.execve(path, words, environ)
    except OSError as error:
        raise _refusal(path, error.errno or 0, words, environ) from error


def _refusal(
    path: str, code: int, words: tuple[str, ...] = (), environ: dict[str, str] | None = None
) -> CommandError:
    """Explain a failed execve(2)."""
    hint = ""
    if code == errno.ENOENT and os.access(path, os.F_OK):
        hint = "it is there; its interpreter or loader (the #! line, ld.so) is not in the image"
    elif code == errno.ENOEXEC:
        hint = "it is no program of this machine's architecture, nor a script with a #! line"
    elif code == errno.EACCES and os.statvfs(path).f_flag & os.ST_NOEXEC:
        hint = "the file system it lies on is mounted noexec (see ENROOT_DATA_PATH)"
    elif code == errno.E2BIG:
        largest = max([*words, *(environ or {}).values()], key=len, default="")
        hint = f"the longest word or variable has {len(largest)} characters; arguments and"
        hint += f" environment share a limit (ulimit -s), each at most {_LONGEST_WORD}"
    failure = CommandError(f"Cannot execute {path}: {os.strerror(code)}", hint=hint)
    failure.exit_code = 127 if code == errno.ENOENT else 126
    return failure
