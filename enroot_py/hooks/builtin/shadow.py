"""Hook `10-shadow`: make the user, root and nobody known inside the container.

Writes `/etc/passwd` and `/etc/group` (and completes `/etc/shadow` and `/etc/gshadow` where the
image has them), then creates the user's home folder from the image's skeleton and, if the image
asks for it, a mailbox. A rootfs that cannot be written gets the two databases by bind mounts.

Source: enroot 4.1.2 conf/hooks/10-shadow.sh; pwck(8), grpck(8), useradd(8), login.defs(5).
"""

from __future__ import annotations

import errno
import os
import pwd
import stat

from enroot_py import log
from enroot_py.errors import HookError
from enroot_py.hooks.context import Edits
from enroot_py.hooks.rootfs_files import UNWRITABLE, RootfsFiles
from enroot_py.plan.fstab import Mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple

    from enroot_py.hooks.context import HookContext
else:
    from enroot_py.record import NamedTuple

_LARGEST_DATABASE = 16 << 20
_LARGEST_DEFAULTS = 1 << 20
_OVERFLOW_ID = "65534"
_READ_ONLY_FILE = ("x-create=file", "bind", "ro", "nosuid", "nodev", "noexec", "private", "nofail")


class User(NamedTuple):
    """Whom the container runs as, by the host's databases; the fields of passwd(5) and group(5)."""

    name: str
    uid: int
    gid: int
    group: str
    gecos: str
    home: str
    shell: str


def run(context: HookContext) -> Edits:
    """Install the databases and the home folder."""
    user = find_user(context.host.euid, context.host.egid, context.settings.environment)
    mounts: tuple[Mount, ...] = ()
    with RootfsFiles(context.rootfs) as files:
        defaults = _read_defaults(files)
        shell = usable_shell(files, user.shell, defaults)
        passwd, group = generated_entries(user, shell)
        for path, entries, shadow in (
            ("/etc/passwd", passwd, "/etc/shadow"),
            ("/etc/group", group, "/etc/gshadow"),
        ):
            mounts += _install(context, files, path, entries)
            _complete_shadow(files, shadow, entries)
        try:
            _create_home(files, user.home, defaults)
            _create_mailbox(files, user.name, defaults)
        except OSError as error:
            # Parity would be to fail; but a missing home folder is no reason not to start.
            log.warn(f"Cannot create {user.home} in the container: {error.strerror}")
    return Edits(mounts=mounts)


def find_user(uid: int, gid: int, environ: Mapping[str, str]) -> User:
    """Return the user's entries in the host's databases, made up where the host has none."""
    try:
        entry = pwd.getpwuid(uid)
        name, gecos, home, shell = entry.pw_name, entry.pw_gecos, entry.pw_dir, entry.pw_shell
    except KeyError:
        # Users of federated clusters may be unknown to the node that their job runs on.
        name = environ.get("LOGNAME") or environ.get("USER") or ""
        if not _is_new_name(name):
            name = f"user{uid}"
        gecos, home, shell = "", environ.get("HOME", ""), environ.get("SHELL", "")
    return User(
        name=name,
        uid=uid,
        gid=gid,
        group=_group_name(gid, name),
        gecos=_field(gecos),
        home=_field(home) if home.startswith("/") else "/",
        shell=_field(shell) or "/bin/sh",
    )


def _group_name(gid: int, user: str) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return user if user == f"user{gid}" else f"group{gid}"


def _is_new_name(name: str) -> bool:
    """Tell whether `name` can stand in passwd(5) and belongs to nobody on the host."""
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or name.isdigit():
        return False
    try:
        pwd.getpwnam(name)
    except KeyError:
        return not name.startswith("-")
    return False


def _field(text: str) -> str:
    return "".join(" " if letter in ":\n\r\0" else letter for letter in text)


def usable_shell(files: RootfsFiles, shell: str, defaults: Mapping[str, str]) -> str:
    """Return the user's shell if the container has it, else the image's default or /bin/sh."""
    try:
        found = files.stat(shell) if shell.startswith("/") else None
    except OSError:
        found = None
    if found is not None and stat.S_ISREG(found.st_mode) and found.st_mode & 0o111:
        return shell
    return _field(defaults.get("SHELL", "")) or "/bin/sh"


def generated_entries(user: User, shell: str) -> tuple[list[bytes], list[bytes]]:
    """Return the lines for passwd(5) and group(5): root, nobody or nogroup, then the user.

    The user comes last and wins where he is one of the other two.
    """
    nobody, nogroup = _overflow_id("uid"), _overflow_id("gid")
    passwd = {
        "root": f"root:x:0:0:root:/root:{shell}",
        "nobody": f"nobody:x:{nobody}:{nogroup}:nobody:/:/sbin/nologin",
    }
    passwd[user.name] = f"{user.name}:x:{user.uid}:{user.gid}:{user.gecos}:{user.home}:{shell}"
    group = {"root": "root:x:0:", "nogroup": f"nogroup:x:{nogroup}:"}
    group[user.group] = f"{user.group}:x:{user.gid}:"
    return [os.fsencode(line) for line in passwd.values()], [
        os.fsencode(line) for line in group.values()
    ]


def _overflow_id(kind: str) -> str:
    try:
        with open(f"/proc/sys/kernel/overflow{kind}", "rb") as file:
            return file.read().decode().strip() or _OVERFLOW_ID
    except OSError:
        return _OVERFLOW_ID


def merge_database(text: bytes, entries: list[bytes], *, fields: int) -> bytes:
    """Put `entries` before those of an image's database, cleaned as pwck(8) and grpck(8) do.

    Left out are malformed lines, lines of the same name as an entry or as a later line, and apt's
    own user: apt would switch to it, which one mapped user cannot.

    Args:
        text: the image's database.
        entries: lines without line feed.
        fields: how many fields a line has: 7 in passwd(5), 4 in group(5).
    """
    seen = {entry.partition(b":")[0] for entry in entries}
    seen.add(b"_apt")
    kept = []
    for line in reversed(text.split(b"\n")):
        parts = line.split(b":")
        if line[:1] in (b"+", b"-"):
            kept.append(line)
            continue
        ids = parts[2:4] if fields == 7 else parts[2:3]
        if len(parts) != fields or not all(map(bytes.isdigit, ids)):
            continue
        if parts[0] and parts[0] not in seen:
            seen.add(parts[0])
            kept.append(line)
    return b"\n".join([*entries, *reversed(kept), b""])


def _install(
    context: HookContext, files: RootfsFiles, path: str, entries: list[bytes]
) -> tuple[Mount, ...]:
    """Write a database into the rootfs; return a mount instead where it cannot be written."""
    old = _read_database(files, path)
    fields = entries[0].count(b":") + 1
    new = merge_database(old or b"", entries, fields=fields)
    if new == old and files.read_link(path) is None:
        return ()
    try:
        files.replace(path, new, mode=0o644)
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise _unusable(path, error) from error
        return (_stand_in(context, path, new),)
    return ()


def _read_database(files: RootfsFiles, path: str) -> bytes | None:
    try:
        return files.read(path, limit=_LARGEST_DATABASE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        if error.errno != errno.EFBIG:
            raise _unusable(path, error) from error
        raise HookError(
            f"{path} in the container holds more than {_LARGEST_DATABASE} bytes", path="10-shadow"
        ) from error


def _unusable(path: str, error: OSError) -> HookError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return HookError(
        f"Cannot write {path} in the container: {error.strerror}",
        path="10-shadow",
        hint="free some space on the file system of ENROOT_DATA_PATH"
        if full
        else "see what the image has there",
    )


def _stand_in(context: HookContext, path: str, data: bytes) -> Mount:
    """Write `data` into the start's private folder, to be mounted at `path`."""
    source = os.path.join(context.workdir, path.rpartition("/")[2])
    with open(source, "wb") as file:
        file.write(data)
    os.chmod(source, 0o644)
    return Mount(source, path, "none", _READ_ONLY_FILE)


def _complete_shadow(files: RootfsFiles, path: str, entries: list[bytes]) -> None:
    """Add locked entries to an existing shadow database, so that pwconv's checks and PAM pass."""
    try:
        status = files.stat(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return
        old = files.read(path, limit=_LARGEST_DATABASE)
        if old is None:
            return
        kept = [line for line in old.split(b"\n") if line and not line.startswith(b"_apt:")]
        names = {line.partition(b":")[0] for line in kept}
        colons = b":" * (7 if path.endswith("/shadow") else 2)
        added = [entry.partition(b":")[0] for entry in entries]
        kept += [name + b":*" + colons for name in added if name not in names]
        new = b"\n".join([*kept, b""])
        if new != old:
            files.replace(path, new, mode=stat.S_IMODE(status.st_mode))
    except OSError as error:
        if error.errno not in UNWRITABLE:
            log.warn(f"Cannot complete {path} in the container: {error.strerror}")


def _read_defaults(files: RootfsFiles) -> dict[str, str]:
    """Return the image's `/etc/login.defs` and `/etc/default/useradd`, the latter overriding."""
    defaults: dict[str, str] = {}
    for path, separator in (("/etc/login.defs", None), ("/etc/default/useradd", "=")):
        try:
            text = files.read(path, limit=_LARGEST_DEFAULTS)
        except OSError:
            continue
        for line in os.fsdecode(text or b"").split("\n"):
            words = line.strip().split(separator, 1)
            if len(words) == 2 and not words[0].startswith("#"):
                value = words[1].split()
                defaults[words[0].strip()] = value[0].strip("\"'") if value else ""
    return defaults


def _create_home(files: RootfsFiles, home: str, defaults: Mapping[str, str]) -> None:
    if defaults.get("CREATE_HOME", "yes") != "yes" or files.stat(home) is not None:
        return
    try:
        umask = int(defaults.get("UMASK", "077"), 8) & 0o777
    except ValueError:
        umask = 0o077
    try:
        files.make_directories(home, mode=0o777 & ~umask)
    except OSError as error:
        if error.errno in UNWRITABLE:
            return
        raise
    files.copy_tree(defaults.get("SKEL") or "/etc/skel", home)


def _create_mailbox(files: RootfsFiles, user: str, defaults: Mapping[str, str]) -> None:
    if defaults.get("CREATE_MAIL_SPOOL", "no") != "yes":
        return
    path = f"{defaults.get('MAIL_DIR') or '/var/mail'}/{user}"
    if files.stat(path) is None:
        try:
            files.replace(path, b"", mode=0o660)
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise
