"""What a login does to the environment, from the files of the container. After the root switch.

Nothing here asks the C library about users: it would load its plug-ins from the image. The files
are read as they are, once, up to a megabyte; a fifo or a device in place of one is skipped.

Different from the original: no entry is written to the container's lastlog, which it lets grow to
292 bytes times the user id; and a home folder that is missing stops a start only where the image
says DEFAULT_HOME no, not wherever it does not say yes.

Source: enroot 4.1.2 bin/enroot-switchroot.c, sys_login(); login.defs(5); locale.conf(5).
"""

from __future__ import annotations

import errno
import os

from enroot_py import log
from enroot_py.errors import CommandError
from enroot_py.linux.kernel import Kernel
from enroot_py.linux.path import read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

_LIMIT = 1 << 20
# musl's <paths.h>, which the original is built with.
_ROOT_PATH = "/bin:/usr/bin:/sbin:/usr/sbin"
_USER_PATH = "/usr/local/bin:/bin:/usr/bin"
_MAIL_FOLDER = "/var/mail"
_NOLOGIN = "/etc/nologin"
_LOCALE_VARIABLES = frozenset(
    {
        "LANG", "LANGUAGE", "LC_CTYPE", "LC_NUMERIC", "LC_TIME", "LC_COLLATE", "LC_MONETARY",
        "LC_MESSAGES", "LC_PAPER", "LC_NAME", "LC_ADDRESS", "LC_TELEPHONE", "LC_MEASUREMENT",
        "LC_IDENTIFICATION",
    }
)  # fmt: skip


class User(NamedTuple):
    """An entry of passwd(5)."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str


class Login(NamedTuple):
    """What a login leaves for starting the shell.

    Attributes:
        shell: FAKE_SHELL, or "".
        motd: files to show before an interactive shell, in order.
    """

    shell: str = ""
    motd: tuple[str, ...] = ()


def log_in(kernel: Kernel, environ: dict[str, str], *, uid: int, outside_uid: int) -> Login | None:
    """Complete the environment, set the umask and go to the home folder.

    Args:
        kernel: the way to system calls.
        environ: the container's environment; variables that are missing are added.
        uid: the user inside.
        outside_uid: the user on the host, who may have a name of his own in the container.

    Returns:
        None if logins are off (/etc/nologin exists): its text was shown, there is nothing to start.

    Raises:
        CommandError: if the home folder cannot be entered and DEFAULT_HOME forbids that.
    """
    settings = read_parameters("/etc/login.defs")
    nologin = settings.get("NOLOGINS_FILE", _NOLOGIN)
    if uid != 0 and os.access(nologin, os.F_OK):
        show_file(nologin)
        return None
    users = _read_users()
    user = _find_user(users, uid)
    outside = _find_user(users, outside_uid)
    environ.setdefault("TERM", "dumb")
    for name, value in (
        ("HOME", user.home if user else ""),
        ("SHELL", user.shell if user else ""),
        ("USER", user.name if user else ""),
        ("LOGNAME", outside.name if outside else ""),
        ("PATH", _default_path(settings, uid)),
        ("MAIL", _mailbox(settings, environ, user)),
        ("TZ", _timezone(settings.get("ENV_TZ", ""))),
    ):
        if value:
            environ.setdefault(name, value)
    for name, value in read_parameters("/etc/locale.conf").items():
        if name in _LOCALE_VARIABLES:
            environ.setdefault(name, value)
    _set_umask(settings, user)
    _set_file_limit(kernel, settings.get("ULIMIT", ""))
    required = settings.get("DEFAULT_HOME", "").lower() in ("no", "false")
    _go_home(environ.get("HOME", ""), required=required)
    return Login(settings.get("FAKE_SHELL", ""), _motd(settings))


def read_parameters(path: str) -> dict[str, str]:
    """Read `NAME value` or `NAME=value` lines; the last line of a name counts.

    Values end at the first blank and lose double quotes; `#` begins a comment anywhere unless a
    backslash stands before it, and a line that ends in a backslash goes on in the next one.
    """
    parameters = {}
    for line in _logical_lines(_read_text(path)):
        line = line.lstrip(" \t")
        end = 0
        while end < len(line) and line[end] not in " \t=":
            end += 1
        value = line[end:].lstrip(' \t"=')
        for mark in ' \t"':
            value = value.partition(mark)[0]
        if value:
            parameters[line[:end]] = value
    return parameters


def _logical_lines(text: str) -> list[str]:
    lines = []
    current = ""
    at = 0
    while at < len(text):
        letter = text[at]
        if letter == "\\" and at + 1 < len(text):
            at += 1
            current += "" if text[at] == "\n" else text[at]
        elif letter == "#":
            end = text.find("\n", at)
            at = (len(text) if end < 0 else end) - 1
        elif letter == "\n":
            lines.append(current)
            current = ""
        else:
            end = at
            while end < len(text) and text[end] not in "\\#\n":
                end += 1
            current += text[at:end]
            at = end - 1
        at += 1
    lines.append(current)
    return lines


def _read_text(path: str) -> str:
    try:
        return read_file(path, limit=_LIMIT).decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def _read_users() -> list[User]:
    users = []
    for line in _read_text("/etc/passwd").split("\n"):
        fields = line.split(":")
        if len(fields) >= 7 and fields[2].isdecimal() and fields[3].isdecimal():
            users.append(User(fields[0], int(fields[2]), int(fields[3]), fields[5], fields[6]))
    return users


def _find_user(users: list[User], uid: int) -> User | None:
    for user in users:
        if user.uid == uid:
            return user
    return None


def _is_on(settings: dict[str, str], name: str) -> bool:
    return settings.get(name, "").lower() in ("true", "yes")


def _default_path(settings: dict[str, str], uid: int) -> str:
    path = _value(settings.get("ENV_SUPATH" if uid == 0 else "ENV_PATH", ""), "PATH=")
    return path or (_ROOT_PATH if uid == 0 else _USER_PATH)


def _without(prefix: str, text: str) -> str:
    return text[len(prefix) :] if text.startswith(prefix) else text


def _mailbox(settings: dict[str, str], environ: dict[str, str], user: User | None) -> str:
    if not _is_on(settings, "MAIL_CHECK_ENAB"):
        return ""
    name = environ.get("USER") or (user.name if user else "")
    home = environ.get("HOME") or (user.home if user else "")
    for folder, file in (
        (settings.get("MAIL_DIR", ""), name),
        (home, settings.get("MAIL_FILE", "")),
        (_MAIL_FOLDER, name),
    ):
        if folder and file:
            return f"{folder}/{file}"
    return ""


def _timezone(zone: str) -> str:
    if zone.startswith("/"):
        zone = _read_text(zone).partition("\n")[0]
    return _value(zone, "TZ=")


def _set_umask(settings: dict[str, str], user: User | None) -> None:
    mask = _parse_number(settings.get("UMASK", ""))
    if mask >= 0:
        os.umask(mask & 0o777)
    if not user or not _is_on(settings, "USERGROUPS_ENAB"):
        return
    if user.uid != 0 and user.uid == user.gid and user.name == _group_name(user.gid):
        mask = os.umask(0o777)
        os.umask(mask & ~0o070 | mask >> 3 & 0o070)


def _parse_number(text: str) -> int:
    """Parse a number as C does, octal after a leading zero; -1 if it is none."""
    try:
        if text.startswith("0") and text.isdecimal():
            return int(text, 8)
        return int(text, 0)
    except ValueError:
        return -1


def _group_name(gid: int) -> str:
    for line in _read_text("/etc/group").split("\n"):
        fields = line.split(":")
        if len(fields) >= 3 and fields[2] == str(gid):
            return fields[0]
    return ""


def _set_file_limit(kernel: Kernel, blocks: str) -> None:
    if blocks == "-1":
        kernel.limit_file_size(-1)
    elif blocks.isdecimal():
        kernel.limit_file_size(min(int(blocks) * 512, 2**63 - 1))


def _go_home(home: str, *, required: bool) -> None:
    if not home:
        return
    try:
        os.chdir(home)
    except OSError as error:
        message = f"Cannot enter the home folder {home}: {os.strerror(error.errno or errno.ENOENT)}"
        if required:
            raise CommandError(
                message, hint="the image's login.defs wants it (DEFAULT_HOME no); HOME names it"
            ) from error
        log.warn(message)


def _motd(settings: dict[str, str]) -> tuple[str, ...]:
    hush = settings.get("HUSHLOGIN_FILE", "")
    if hush and os.access(hush, os.F_OK):
        return ()
    return tuple(filter(None, settings.get("MOTD_FILE", "").split(":")))


def show_file(path: str) -> None:
    """Write a file to standard output; a file that is missing shows nothing."""
    try:
        data = read_file(path, limit=_LIMIT)
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        pass


def _value(text: str, name: str) -> str:
    """Return what is behind `name`, where a setting is written as an assignment."""
    return text[len(name) :] if text.startswith(name) else text
