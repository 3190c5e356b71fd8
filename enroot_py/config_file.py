"""Read `enroot.conf`-style text: `KEY value` lines whose values follow shell rules.

Pure but for one case: a value that holds `$(command)`, or another expansion than the usual ones, is
handed to bash, as the original does with every value. Quotes, `$VAR`, `${VAR:-word}`, `~` and
comments are expanded here, so that reading a plain configuration starts no process. File names are
not expanded: `*` stands for itself. Not for environment files or fstab.
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
_SPECIAL_PARAMETERS = frozenset("0123456789@*#?$!-")


def parse_config(text: str) -> list[tuple[str, str]]:
    """Return the `(key, raw value)` pairs of a configuration file, in order, values unexpanded.

    A line is a key, then blanks and at most one `=`, then the value. Lines whose first word is not
    a name (comments among them) are skipped: `accepts_key` decides about the rest.

    Source: enroot 4.1.2 enroot.in, config::load().
    """
    pairs = []
    for line in text.split("\n"):
        stripped = (line[:-1] if line.endswith("\r") else line).strip(" \t")
        end = 0
        while end < len(stripped) and stripped[end] in _NAME:
            end += 1
        if not end or (end < len(stripped) and stripped[end] not in " \t="):
            continue
        rest = stripped[end:].lstrip(" \t")
        if rest.startswith("="):
            rest = rest[1:].lstrip(" \t")
        pairs.append((stripped[:end], _without_delimiter(rest)))
    return pairs


def _without_delimiter(value: str) -> str:
    # Parity: bash's `read` drops a `=` behind the value if the value has no other delimiter.
    if value.endswith("="):
        field = value[:-1].rstrip(" \t")
        if not set(field) & set(" \t="):
            return field
    return value


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


def parse_directives(text: str) -> list[tuple[str, str]]:
    """Return the `#ENROOT_…` lines of a container configuration as `(key, raw value)` pairs.

    Source: enroot 4.1.2 enroot.in, enroot::start() and enroot::batch(), their sed command.
    """
    lines = []
    for line in text.split("\n"):
        if line.startswith("#") and line[1:].lstrip(" \t\v\f\r").startswith("ENROOT_"):
            lines.append(line[1:].lstrip(" \t\v\f\r"))
    return parse_config("\n".join(lines))


def expand_value(raw: str, environ: Mapping[str, str], *, origin: str) -> str:
    """Expand a raw value as `echo VALUE` in a shell would, without a shell where possible.

    Args:
        raw: the value as written.
        environ: variables that `$NAME` refers to; an unset one is empty.
        origin: where the value stands, for messages; they never show the value, which may hold a
            password.

    Raises:
        SettingsError: if quotes do not match, an operator stands outside quotes, or bash fails.
    """
    if "$(" not in raw and "`" not in raw:
        try:
            return " ".join(_Words(raw, environ, origin).split())
        except _NeedsBash:
            pass
    return _expand_with_bash(raw, environ, origin)


class _NeedsBash(Exception):
    """An expansion that is valid and rare."""


def _expand_with_bash(raw: str, environ: Mapping[str, str], origin: str) -> str:
    import subprocess

    # `set --` after the value has been taken: its own $1 is nothing, not the value itself.
    script = 'value=$1; set --; eval "echo $value"'
    try:
        done = subprocess.run(
            ["bash", "--norc", "-c", script, "bash", raw],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise SettingsError(
            f"Cannot evaluate {origin}",
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
            # A word begins after a blank as written, even where an empty expansion stands before.
            first = self.at == 0 or (raw[self.at - 1] in " \t\n" and self.word is None)
            if character in " \t\n":
                self.end_word()
            elif character == "#" and first:
                break
            elif character == "'":
                self.append(self.until("'"))
            elif character == '"':
                self.double_quoted()
            elif character == "\\":
                self.at += 1
                self.append(raw[self.at : self.at + 1] or "\\")
            elif character == "$":
                self.unquoted_variable()
                continue
            elif character == "~" and first:
                self.home()
                continue
            elif character == "{":
                raise _NeedsBash  # {a,b}: rare enough
            elif character in _OPERATORS:
                raise SettingsError(
                    f"Invalid value of {self.origin}", hint=f"put quotes around the {character!r}"
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
            raise SettingsError(f"Unmatched {quote} in {self.origin}")
        text = self.raw[self.at + 1 : end]
        self.at = end
        return text

    def double_quoted(self) -> None:
        self.append("")
        self.at += 1
        while self.at < len(self.raw) and self.raw[self.at] != '"':
            character = self.raw[self.at]
            if character == "$":
                self.append(self.variable(quoted=True))
                continue
            if character == "\\" and self.raw[self.at + 1 : self.at + 2] in ("$", '"', "\\", "`"):
                self.at += 1
                character = self.raw[self.at]
            self.append(character)
            self.at += 1
        if self.at >= len(self.raw):
            raise SettingsError(f'Unmatched " in {self.origin}')

    def unquoted_variable(self) -> None:
        # An unquoted expansion is split at blanks again; its outer pieces join their neighbours.
        value = self.variable(quoted=False)
        if value[:1] in (" ", "\t", "\n"):
            self.end_word()
        pieces = value.replace("\t", " ").replace("\n", " ").split(" ")
        for index, piece in enumerate(piece for piece in pieces if piece):
            if index:
                self.end_word()
            self.append(piece)
        if value[-1:] in (" ", "\t", "\n"):
            self.end_word()

    def variable(self, *, quoted: bool) -> str:
        """Expand the `$…` at the current position and move behind it."""
        self.at += 1
        following = self.raw[self.at : self.at + 1]
        if following == "{":
            return self.braced(quoted=quoted)
        if following in _SPECIAL_PARAMETERS or (following in ("'", '"') and not quoted):
            raise _NeedsBash
        end = self.at
        if following in _NAME_START:
            while end < len(self.raw) and self.raw[end] in _NAME:
                end += 1
        name, self.at = self.raw[self.at : end], end
        return self.environ.get(name, "") if name else "$"

    def braced(self, *, quoted: bool) -> str:
        end = self.raw.find("}", self.at)
        body = self.raw[self.at + 1 : end]
        cut = 0
        while cut < len(body) and body[cut] in _NAME:
            cut += 1
        name, rest = body[:cut], body[cut:]
        operator = ":-" if rest.startswith(":-") else rest[:1]
        word = rest[len(operator) :]
        # In the word of an expansion, quotes and blanks mean different things inside and outside
        # double quotes; only a plain word means the same.
        if end < 0 or not cut or operator not in ("", "-", ":-") or set(word) & set("'\"\\ \t~{"):
            raise _NeedsBash
        self.at = end + 1
        value = self.environ.get(name, "")
        if not operator or value or (operator == "-" and name in self.environ):
            return value
        return _Words(word, self.environ, self.origin).plain()

    def plain(self) -> str:
        """Expand a word that holds nothing but text and `$NAME`, without splitting it."""
        text = ""
        while self.at < len(self.raw):
            if self.raw[self.at] == "$":
                text += self.variable(quoted=True)
            else:
                text += self.raw[self.at]
                self.at += 1
        return text

    def home(self) -> None:
        end = self.at + 1
        while end < len(self.raw) and self.raw[end] not in "/ \t\n":
            end += 1
        user = self.raw[self.at + 1 : end]
        if set(user) & set("$'\"\\{:"):
            raise _NeedsBash
        self.append(home_folder(self.environ) if not user else os.path.expanduser("~" + user))
        self.at = end


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
