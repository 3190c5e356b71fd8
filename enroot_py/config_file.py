"""Read `enroot.conf`-style text: `KEY value` lines whose values follow shell rules.

Pure but for one case: a value that holds `$(command)` or backquotes is handed to bash, as the
original does. Everything else (quotes, `$VAR`, `${VAR:-word}`, `~`, comments) is expanded here, so
that reading the usual configuration starts no process. Not for environment files or fstab.
"""

from __future__ import annotations

import os

from enroot_py.errors import SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME_START = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
_NAME = _NAME_START | frozenset("0123456789")
# Outside quotes these would end the command in a shell; a configuration value has no use for them.
_OPERATORS = frozenset(";|&<>()")


def parse_config(text: str) -> list[tuple[str, str]]:
    """Return the `(key, raw value)` pairs of a configuration file, in order, values unexpanded.

    A line is a key, then blanks and at most one `=`, then the value. Lines whose first word is not
    a name (comments among them) are skipped: `accepts_key` decides about the rest.

    Source: enroot 4.1.2 enroot.in, config::load().
    """
    pairs = []
    for line in text.splitlines():
        stripped = line.strip(" \t")
        end = 0
        while end < len(stripped) and stripped[end] in _NAME:
            end += 1
        if not end or (end < len(stripped) and stripped[end] not in " \t="):
            continue
        rest = stripped[end:].lstrip(" \t")
        if rest.startswith("="):
            rest = rest[1:].lstrip(" \t")
        pairs.append((stripped[:end], rest))
    return pairs


def accepts_key(key: str) -> bool:
    """Tell whether a configuration file may set the environment variable `key`.

    Source: enroot 4.1.2 enroot.in, config::load(), its four patterns.
    """
    if key.startswith("ENROOT_"):
        tail = key[len("ENROOT_") :]
        return bool(tail) and all("A" <= letter <= "Z" or letter == "_" for letter in tail)
    if key.startswith(("MELLANOX_", "NVIDIA_")):
        return True
    return key in (
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "all_proxy",
        "no_proxy",
        "http_proxy",
        "https_proxy",
    )


def expand_value(raw: str, environ: Mapping[str, str], *, origin: str) -> str:
    """Expand a raw value as `echo VALUE` in a shell would, without a shell where possible.

    Args:
        raw: the value as written.
        environ: variables that `$NAME` refers to; an unset one is empty.
        origin: file name for messages.

    Raises:
        SettingsError: if quotes do not match, or an operator stands outside quotes.
    """
    if "$(" in raw or "`" in raw:
        return _expand_with_bash(raw, environ, origin)
    return " ".join(_Words(raw, environ, origin).split())


def _expand_with_bash(raw: str, environ: Mapping[str, str], origin: str) -> str:
    import subprocess

    command = ["bash", "--norc", "-c", 'eval "echo $1"', "bash", raw]
    try:
        done = subprocess.run(command, env=dict(environ), stdout=subprocess.PIPE, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SettingsError(
            f"Cannot evaluate the value {raw!r} in {origin}",
            hint="a value with $(command) needs bash, and the command must succeed",
        ) from error
    return os.fsdecode(done.stdout).rstrip("\n")


class _Words:
    """Split a value into words: the states of a shell's word splitting, for one line."""

    def __init__(self, raw: str, environ: Mapping[str, str], origin: str) -> None:
        self.raw, self.environ, self.origin = raw, environ, origin
        self.at = 0
        self.words: list[str] = []
        self.word: str | None = None

    def split(self) -> list[str]:
        raw = self.raw
        while self.at < len(raw):
            character = raw[self.at]
            if character in " \t":
                self.end_word()
            elif character == "#" and self.word is None:
                break
            elif character == "'":
                self.append(self.until("'"))
            elif character == '"':
                self.double_quoted()
            elif character == "\\":
                self.at += 1
                self.append(raw[self.at : self.at + 1])
            elif character == "$":
                self.unquoted_variable()
                continue
            elif character == "~" and self.word is None:
                self.home()
                continue
            elif character in _OPERATORS:
                raise SettingsError(
                    f"Invalid value in {self.origin}: {raw}",
                    hint=f"put quotes around the {character!r}",
                )
            else:
                self.append(character)
            self.at += 1
        self.end_word()
        return self.words

    def append(self, text: str) -> None:
        self.word = (self.word or "") + text

    def end_word(self) -> None:
        if self.word is not None:
            self.words.append(self.word)
        self.word = None

    def until(self, quote: str) -> str:
        end = self.raw.find(quote, self.at + 1)
        if end < 0:
            raise SettingsError(f"Unmatched {quote} in {self.origin}: {self.raw}")
        text = self.raw[self.at + 1 : end]
        self.at = end
        return text

    def double_quoted(self) -> None:
        self.append("")
        self.at += 1
        while self.at < len(self.raw) and self.raw[self.at] != '"':
            character = self.raw[self.at]
            if character == "$":
                self.append(self.variable())
                continue
            if character == "\\" and self.raw[self.at + 1 : self.at + 2] in ("$", '"', "\\", "`"):
                self.at += 1
                character = self.raw[self.at]
            self.append(character)
            self.at += 1
        if self.at >= len(self.raw):
            raise SettingsError(f'Unmatched " in {self.origin}: {self.raw}')

    def unquoted_variable(self) -> None:
        # An unquoted expansion is split at blanks again; its outer pieces join their neighbours.
        value = self.variable()
        pieces = value.split()
        if value[:1].isspace():
            self.end_word()
        for index, piece in enumerate(pieces):
            if index:
                self.end_word()
            self.append(piece)
        if pieces and value[-1:].isspace():
            self.end_word()

    def variable(self) -> str:
        """Expand the `$…` at the current position and move behind it."""
        self.at += 1
        if self.raw[self.at : self.at + 1] == "{":
            return self.braced()
        end = self.at
        if self.raw[end : end + 1] in _NAME_START:
            while end < len(self.raw) and self.raw[end] in _NAME:
                end += 1
        name, self.at = self.raw[self.at : end], end
        return self.environ.get(name, "") if name else "$"

    def braced(self) -> str:
        end = _matching_brace(self.raw, self.at)
        body = self.raw[self.at + 1 : end]
        cut = 0
        while cut < len(body) and body[cut] in _NAME:
            cut += 1
        name, operator = body[:cut], body[cut:]
        if end < 0 or not name or not operator.startswith(("", ":-", "-")):
            raise SettingsError(f"Invalid expansion in {self.origin}: {self.raw}")
        self.at = end + 1
        value = self.environ.get(name)
        if not operator:
            return value or ""
        if operator.startswith(":-"):
            return value or expand_value(operator[2:], self.environ, origin=self.origin)
        if operator.startswith("-"):
            if value is not None:
                return value
            return expand_value(operator[1:], self.environ, origin=self.origin)
        raise SettingsError(
            f"Unsupported expansion ${{{body}}} in {self.origin}",
            hint="use $NAME, ${NAME}, ${NAME:-word} or ${NAME-word}",
        )

    def home(self) -> None:
        end = self.at + 1
        while end < len(self.raw) and self.raw[end] not in "/ \t":
            end += 1
        user = self.raw[self.at + 1 : end]
        self.append(home_folder(self.environ) if not user else os.path.expanduser("~" + user))
        self.at = end


def _matching_brace(text: str, start: int) -> int:
    depth = 0
    for index in range(start, len(text)):
        if text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if not depth:
                return index
    return -1


def home_folder(environ: Mapping[str, str]) -> str:
    """Return the user's home folder: HOME, else the password database's, else "/"."""
    home = environ.get("HOME", "")
    if home:
        return home
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"
