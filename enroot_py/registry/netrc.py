"""enroot's `.credentials` file: netrc's words, with passwords that may be looked up.

    machine nvcr.io login $oauthtoken password nvapi-…
    machine host:5000 login me password "with spaces \\" and \\\\ quotes"
    machine eu.example login AWS password $(aws ecr get-login-password)

Only a password may be looked up, only when it begins with `$`, and only when the file is the
user's own and nobody else can write it. Secrets never go into messages, arguments or logs.

Source: enroot 4.1.2 src/common.sh, common::evalnetrc(), and doc/cmd/import.md; curl's netrc rules.
"""

from __future__ import annotations

import errno
import os
import re
import selectors
import signal
import stat
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO

from enroot_py import log
from enroot_py.errors import AuthenticationError

MAX_FILE_SIZE = 4 << 20
MAX_SECRET_SIZE = 256 << 10
HELPER_TIMEOUT = 60.0
"""Seconds that a command in the password field may take."""

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_LITERAL = re.compile(r"[A-Za-z0-9_./:=@%+,~^!?*\[\]-]+")


@dataclass(frozen=True, slots=True)
class NetrcEntry:
    """One machine's account.

    Attributes:
        machine: host or host:port, in lower case.
        login: the user name.
        password: the password, or the expression to look it up with.
        expression: `password` begins with `$` and is an expression.
        line: where the entry begins in the file, from 1.
    """

    machine: str
    login: str
    password: str = field(repr=False)
    expression: bool
    line: int


@dataclass(frozen=True, slots=True)
class CredentialsFile:
    """What a credentials file holds, and whether its expressions may be evaluated.

    Attributes:
        path: of the file.
        entries: in file order.
        private: it is the user's and writable by nobody else.
    """

    path: str
    entries: tuple[NetrcEntry, ...]
    private: bool


def read_credentials_file(path: str) -> CredentialsFile:
    """Read the file; a missing one has no entries.

    Warns, once, about a file that others can read or write.

    Raises:
        AuthenticationError: if it is something else than a readable file of reasonable size.
    """
    try:
        data, found = read_small_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return CredentialsFile(path, (), private=True)
    except OSError as error:
        raise AuthenticationError(f"Cannot read {path}: {error.strerror}") from error
    _warn_about_mode(path, found)
    private = found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return CredentialsFile(path, tuple(parse_netrc(data.decode("utf-8", "replace"), path)), private)


def read_small_file(path: str) -> tuple[bytes, os.stat_result]:
    """Read a regular file of reasonable size; waits neither for a fifo nor for a device.

    Raises:
        OSError: if it cannot be read, or is something else.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        if found.st_size > MAX_FILE_SIZE:
            raise OSError(errno.EFBIG, "too large", path)
        with open(fd, "rb", closefd=False) as file:
            return file.read(MAX_FILE_SIZE), found
    finally:
        os.close(fd)


def _warn_about_mode(path: str, found: os.stat_result) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        log.warn_once(path, f"{path} belongs to another user (uid {found.st_uid})")
    elif found.st_mode & 0o022:
        log.warn_once(path, f"{path} can be written by others: chmod 600 {path}")
    elif found.st_mode & 0o004:
        log.warn_once(path, f"{path} can be read by everybody: chmod 600 {path}")


def parse_netrc(text: str, path: str) -> list[NetrcEntry]:
    """Return the complete entries of a file, in order. `path` is for warnings.

    `default` entries are left out: they would go to any host at all.
    """
    reader = _Reader(text, path)
    entries = []
    while (machine := reader.next_machine()) is not None:
        line = reader.line
        login, password, expression = reader.account()
        if machine and login and password:
            entries.append(NetrcEntry(machine.lower(), login, password, expression, line))
    return entries


class _Reader:
    """Goes through a file word by word; knows which line it is in."""

    def __init__(self, text: str, path: str) -> None:
        self.lines = text.split("\n")
        self.path = path
        self.line = 0
        self.rest = ""
        self.pushed: str | None = None

    def next_machine(self) -> str | None:
        """Skip to the next `machine` and return its name; None at the end of the file."""
        while (word := self.word()) is not None:
            if word == "machine":
                return self.word() or ""
            if word == "default":
                log.warn_once(
                    f"{self.path} default",
                    f"{self.path}, line {self.line}: a default entry is not used: name the machine",
                )
            elif word == "macdef":
                self.skip_macro()
            elif word.startswith("#"):
                self.rest = ""
        return None

    def account(self) -> tuple[str, str, bool]:
        """Read up to the next machine: (login, password, is it an expression)."""
        login, password, expression = "", "", False
        while (word := self.word()) is not None:
            if word in ("machine", "default"):
                self.pushed = word
                break
            if word == "login":
                login = self.word() or ""
            elif word == "account":
                self.word()
            elif word == "password":
                if self.skip_blanks() and self.rest.startswith("$"):
                    password, expression = self.rest.strip(), True
                    self.rest = ""
                else:
                    password = self.word() or ""
            elif word == "macdef":
                self.skip_macro()
            elif word.startswith("#"):
                self.rest = ""
            else:
                # Not repeated here: it may be the second half of a password.
                log.warn_once(
                    f"{self.path} {self.line}",
                    f"{self.path}, line {self.line}: unexpected word; put a password that has "
                    "blanks in double quotes",
                )
        return login, password, expression

    def word(self) -> str | None:
        """Return the next word, unquoted; None at the end of the file."""
        if self.pushed is not None:
            word, self.pushed = self.pushed, None
            return word
        if not self.skip_blanks():
            return None
        if self.rest.startswith('"'):
            return self.quoted()
        word, _, self.rest = self.rest.replace("\t", " ").partition(" ")
        return word

    def skip_blanks(self) -> bool:
        """Go to the next word, over line ends; False at the end of the file."""
        self.rest = self.rest.strip(" \t\r")
        while not self.rest:
            if self.line == len(self.lines):
                return False
            self.rest = self.lines[self.line].strip(" \t\r")
            self.line += 1
        return True

    def quoted(self) -> str:
        letters, at = [], 1
        while at < len(self.rest) and self.rest[at] != '"':
            if self.rest[at] == "\\" and at + 1 < len(self.rest):
                at += 1
                letters.append(_ESCAPES.get(self.rest[at], self.rest[at]))
            else:
                letters.append(self.rest[at])
            at += 1
        self.rest = self.rest[at + 1 :]
        return "".join(letters)

    def skip_macro(self) -> None:
        """Leave out a macro: it ends with an empty line."""
        while self.line < len(self.lines) and self.lines[self.line].strip():
            self.line += 1
        self.rest = ""


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
