"""Looks up the password of an entry: `$NAME`, `${NAME}`, `$(command)`, credential helpers.

Only in a credentials file that is the user's own and that nobody else can write. What commands
print never goes into messages, arguments or logs.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from typing import IO

from enroot_py.errors import AuthenticationError
from enroot_py.registry.accounts.netrc import CredentialsFile, NetrcEntry

MAX_SECRET_SIZE = 256 << 10
HELPER_TIMEOUT = 60.0
"""Seconds that a command in the password field may take."""

_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_LITERAL = re.compile(r"[A-Za-z0-9_./:=@%+,~^!?*\[\]-]+")


def find_password(
    entry: NetrcEntry,
    file: CredentialsFile,
    environ: Mapping[str, str],
    *,
    timeout: float = HELPER_TIMEOUT,
) -> str:
    """Return an entry's password; evaluates its expression.

    Raises:
        AuthenticationError: if the file's mode forbids it, a variable is not set, or a command
            fails, takes too long or prints what cannot be a password.
    """
    if not entry.expression:
        return entry.password
    where = f"{file.path}, line {entry.line}"
    if not file.private:
        raise AuthenticationError(
            f"{where}: the password's expression is not evaluated, because others could change it",
            hint=f"make the file yours alone: chown {os.geteuid()} {file.path}; "
            f"chmod 600 {file.path}",
        )
    password = _Expression(entry.password, environ, where, timeout).value()
    if not password:
        raise AuthenticationError(f"{where}: the password's expression gives nothing")
    return password


class _Expression:
    """`$NAME`, `${NAME}`, `$(command)` and plain characters between them."""

    def __init__(self, text: str, environ: Mapping[str, str], where: str, timeout: float) -> None:
        self.text, self.environ, self.where, self.timeout = text, environ, where, timeout

    def value(self) -> str:
        parts, at = [], 0
        while at < len(self.text) and not self.text[at].isspace():
            if self.text.startswith("$(", at):
                end = self.closing_parenthesis(at + 2)
                parts.append(self.output_of(self.text[at + 2 : end]))
                at = end + 1
            elif variable := _VARIABLE.match(self.text, at):
                parts.append(self.variable(variable[1] or variable[2]))
                at = variable.end()
            elif literal := _LITERAL.match(self.text, at):
                parts.append(literal[0])
                at = literal.end()
            else:
                raise self.malformed()
        rest = self.text[at:].strip()
        if rest and not rest.startswith("#"):
            raise self.malformed()
        return "".join(parts)

    def malformed(self) -> AuthenticationError:
        return AuthenticationError(
            f"{self.where}: the password's expression cannot be evaluated",
            hint="expected $NAME, ${NAME} or $(command); put a password that really begins "
            "with a dollar sign in double quotes",
        )

    def variable(self, name: str) -> str:
        if name not in self.environ:
            raise AuthenticationError(f"{self.where}: the variable {name} is not set")
        return self.environ[name]

    def closing_parenthesis(self, start: int) -> int:
        depth, at, quote = 1, start, ""
        while at < len(self.text):
            letter = self.text[at]
            if letter == "\\" and quote != "'":
                at += 1
            elif quote:
                quote = "" if letter == quote else quote
            elif letter in "'\"":
                quote = letter
            elif letter in "()":
                depth += 1 if letter == "(" else -1
                if not depth:
                    return at
            at += 1
        raise self.malformed()

    def output_of(self, command: str) -> str:
        # The command may stand in a file that is read aloud in a support case, but what it
        # prints never is, and neither are its own error messages.
        arguments = ["/bin/sh", "-c", command]
        output = run_helper(arguments, self.environ, where=self.where, timeout=self.timeout)
        text = output.decode("utf-8", "replace").rstrip("\r\n")
        if any(not letter.isprintable() and letter not in "\n\r\t" for letter in text):
            raise AuthenticationError(f"{self.where}: the command printed no password but junk")
        return text


def run_helper(
    arguments: list[str],
    environ: Mapping[str, str],
    *,
    where: str,
    timeout: float = HELPER_TIMEOUT,
    request: bytes = b"",
) -> bytes:
    """Run a program that prints a secret and return what it printed.

    Args:
        arguments: program and arguments; no secret among them.
        environ: its whole environment.
        where: what made it run, for messages.
        timeout: seconds; then it and what it started in its session are killed.
        request: what it gets on standard input (at most what fits into a pipe at once).

    Raises:
        AuthenticationError: if it cannot be run, fails, prints too much or takes too long.
    """
    try:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            start_new_session=True,
        )
    except OSError as error:
        raise AuthenticationError(
            f"{where}: cannot run {arguments[0]}: {error.strerror}"
        ) from error
    assert process.stdin and process.stdout
    try:
        try:
            with process.stdin as stdin:
                stdin.write(request)
        except BrokenPipeError:
            pass  # it need not read what it is told
        output = _read_output(process.stdout, where, timeout)
        status = process.wait(timeout=5)
    except subprocess.TimeoutExpired as error:
        raise AuthenticationError(f"{where}: the command does not end") from error
    finally:
        _end(process)
    if status:
        raise AuthenticationError(
            f"{where}: the command failed with status {status}",
            hint="run the command by hand to see why",
        )
    return output


def _read_output(stream: IO[bytes], where: str, timeout: float) -> bytes:
    output = b""
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise AuthenticationError(
                    f"{where}: the command was still running after {timeout:g} s"
                )
            piece = os.read(stream.fileno(), 65536)
            if not piece:
                return output
            output += piece
            if len(output) > MAX_SECRET_SIZE:
                raise AuthenticationError(f"{where}: the command printed no password but junk")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout
    process.stdout.close()
