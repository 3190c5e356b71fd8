"""enroot's `.credentials` file: netrc's words, with passwords that may be looked up.

    machine nvcr.io login $oauthtoken password nvapi-…
    machine host:5000 login me password "with spaces \\" and \\\\ quotes"
    machine eu.example login AWS password $(aws ecr get-login-password)

Only a password may be looked up, only when it begins with `$`: see `password`.

Source: enroot 4.1.2 src/common.sh, common::evalnetrc(), and doc/cmd/import.md; curl's netrc rules.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field

from enroot_py import log
from enroot_py.errors import AuthenticationError

MAX_FILE_SIZE = 4 << 20
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


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
            continue
        missing = "machine" if not machine else "password" if login else "login"
        log.warn_once(
            f"{path} {line} {missing}",
            f"{path}, line {line}: an entry without a {missing} is not used",
        )
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
