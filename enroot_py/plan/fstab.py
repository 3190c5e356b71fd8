"""Mount entries: fstab text and `--mount` arguments to `Mount` records. Pure.

The syntax is fstab(5)'s with three additions: fields may be left out where they can be guessed,
`${NAME}` stands for a variable of the host's environment, and `fs_passno` is the pass in which an
entry is mounted (-1 before the hooks, 0 after them) instead of an order of checking.
"""

from __future__ import annotations

from enroot_py.errors import InvalidMountError
from enroot_py.plan.mount_options import is_mount_option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

SQUASHFS = "squashfs"
"""The type of an entry that mounts what is in a squashfs file, or on such a block device."""

_NAME_START = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
_NAME = _NAME_START | frozenset("0123456789")


class Mount(NamedTuple):
    """One mount entry, complete.

    Attributes:
        source: host path (relative ones count from the working directory), or a name such as
            "tmpfs" or "none" where the file system needs no device.
        target: path inside the rootfs, resolved inside it; a leading slash makes no difference.
        fstype: file system type; "none" for bind mounts, remounts and changes of propagation.
        options: in the order given, e.g. ("x-create=dir", "bind", "ro").
        passno: the pass in which it is mounted: -1 before the hooks, 0 after them.
    """

    source: str
    target: str
    fstype: str = "none"
    options: tuple[str, ...] = ()
    passno: int = 0


def parse_fstab(text: str, environ: Mapping[str, str], origin: str) -> tuple[Mount, ...]:
    """Parse fstab text, variables substituted.

    Args:
        text: the file's content.
        environ: what `${NAME}` refers to; an unset name is empty.
        origin: the file's name, for messages.

    Raises:
        InvalidMountError: naming the entry and `origin`, if an entry cannot be completed.

    Source: enroot 4.1.2 bin/enroot-mount.c, mount_fstab(); fstab(5) for comments and escapes.
    """
    entries = []
    for line in text.split("\n"):
        fields = _fields(substitute(line, environ, escape_blanks=True))
        if fields and not fields[0].startswith("#"):
            entries.append(_complete(fields, line.strip(), origin))
    return tuple(entries)


def _fields(line: str) -> list[str]:
    # Blanks and tabs alone part fields: a path may hold any other kind of space.
    return [word for word in line.strip(" \t\r").replace("\t", " ").split(" ") if word]


def parse_mount(text: str) -> Mount:
    """Parse what `--mount` takes: fstab fields between colons, `SRC[:DST[:…]]`.

    A field may hold blanks, or a colon written as `\\072`.

    Raises:
        InvalidMountError: if a field is empty or the entry cannot be completed.

    Source: enroot 4.1.2 src/runtime.sh, start() and _do_mounts_fini().
    """
    fields = text.split(":")
    if "" in fields or "\n" in text or "\0" in text:
        raise InvalidMountError(
            f"Invalid mount: {text}", hint="expected SRC[:DST[:TYPE][:OPTIONS]]"
        )
    mount = _complete(fields, text, "--mount")
    if mount.passno:
        raise InvalidMountError(
            f"Invalid mount: {text}", hint="the order of --mount arguments cannot be changed"
        )
    return mount


def substitute(line: str, environ: Mapping[str, str], *, escape_blanks: bool = False) -> str:
    """Replace every `${NAME}` by the variable's value, by nothing if it is not set.

    Values are not searched again. Anything else that a shell would expand stays as it is.
    With `escape_blanks` a value's blanks are written as fstab(5) wants them, so that a path with
    a blank stays one field.

    Source: enroot 4.1.2 src/common.sh, envsubst().
    """
    start = line.find("${")
    if start < 0:
        return line
    pieces = []
    done = 0
    while start >= 0:
        end = line.find("}", start)
        name = line[start + 2 : end]
        if end > 0 and name[:1] in _NAME_START and name and not set(name) - _NAME:
            value = environ.get(name, "")
            pieces += [line[done:start], _escape(value) if escape_blanks else value]
            done = end + 1
            start = line.find("${", done)
        else:
            start = line.find("${", start + 2)
    pieces.append(line[done:])
    return "".join(pieces)


def _escape(value: str) -> str:
    return "".join(f"\\{ord(letter):03o}" if letter in " \t\n\r\\" else letter for letter in value)


def _complete(fields: list[str], text: str, origin: str) -> Mount:
    """Guess the fields that were left out; an absent field and an empty one are the same.

    ======================== ===============================================
    tmpfs /dst               tmpfs /dst tmpfs
    /src                     /src /src none rbind,x-create=auto
    /src bind                /src /src none bind
    /src /dst                /src /dst none rbind,x-create=auto
    /src /dst bind           /src /dst none bind
    /file /dst squashfs      /file /dst squashfs x-create=dir
    none /dst devpts         none /dst devpts
    ======================== ===============================================
    """
    numbers = [_number(word, text, origin) for word in fields[4:6]] + [0, 0]
    passno = numbers[1] or numbers[0]  # fs_freq counts if fs_passno is absent
    words = [unescape(word) for word in fields[:4]] + ["", "", "", ""]
    source, target, fstype, options = words[:4]
    if target and not fstype and not options and is_mount_option(target):
        target, fstype, options = "", "none", target
    if fstype and not options and is_mount_option(fstype):
        fstype, options = "none", fstype
        if target == "none":
            target = ""
    if source == "tmpfs":
        if fstype in ("", "none"):
            fstype = "tmpfs"
    else:
        target = target or source
        if fstype == SQUASHFS:
            options = options or "x-create=dir"
        if fstype in ("", "none"):
            fstype = "none"
            options = options or "rbind,x-create=auto"
    if not source or not target or not fstype:
        raise InvalidMountError(f"Invalid mount in {origin}: {text}", hint="a mount needs a target")
    return Mount(source, target, fstype, tuple(filter(None, options.split(","))), passno)


def _number(word: str, text: str, origin: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise InvalidMountError(
            f"Invalid mount in {origin}: {text}",
            hint=f"{word!r} stands where fs_freq or fs_passno, a number, is expected",
        ) from None


def unescape(word: str) -> str:
    """Decode `\\\\` and octal escapes such as `\\040` (a blank). Source: getmntent(3)."""
    start = word.find("\\")
    if start < 0:
        return word
    pieces = []
    done = 0
    while start >= 0:
        digits = word[start + 1 : start + 4]
        end = 0
        while end < len(digits) and digits[end] in "01234567":
            end += 1
        pieces.append(word[done:start])
        if word[start + 1 : start + 2] == "\\":
            pieces.append("\\")
            done = start + 2
        elif end and int(digits[:end], 8) % 256:
            pieces.append(chr(int(digits[:end], 8) % 256))
            done = start + 1 + end
        else:
            pieces.append("\\")
            done = start + 1
        start = word.find("\\", done)
    pieces.append(word[done:])
    return "".join(pieces)
