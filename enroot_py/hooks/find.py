"""Which hooks run, in which order, and which of them are built in: decided from `hooks.d`.

To be called before namespaces are entered: inside a user namespace every owner but the user himself
looks like nobody, so that nothing could be said about who may have written a file.

Rules (docs/adr/0032-hooks-in-process.md): the system's folder runs first, then the user's, each in
byte order of its `*.sh` names. A file that is enroot's original or our stub runs built in, once;
any other is executed. Not executable is off. Without a system folder the standard hooks are on,
except those whose names the user's folder has: its files replace them.
"""

from __future__ import annotations

import os
import stat

from enroot_py.errors import HookError
from enroot_py.hooks.known import LARGEST, identify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple

    from enroot_py.settings import Settings
else:
    from enroot_py.record import NamedTuple

STANDARD = (
    "10-aptfix.sh",
    "10-cgroups.sh",
    "10-devices.sh",
    "10-home.sh",
    "10-localtime.sh",
    "10-shadow.sh",
    "98-nvidia.sh",
    "99-mellanox.sh",
)
"""The hooks that are on where no `hooks.d` says otherwise, in their order."""

BUILTINS = (
    *("aptfix", "cgroups", "devices", "home", "localtime", "shadow", "nvidia", "mellanox"),
    *("slurm-pmi", "slurm-pytorch", "mig-config", "sharp"),
)
"""Every built-in hook; those of the second line are on only where a `hooks.d` has them."""

SUFFIX = ".sh"
STUB = "#!/bin/sh\n# Built in: `enroot start` does not execute this file.\nexec enroot-hook "
"""What our own `hooks.d` files hold, up to the built-in hook's name and a line feed."""


class Hook(NamedTuple):
    """One hook to run.

    Attributes:
        name: its file name, e.g. "10-shadow.sh".
        path: absolute path of the file to execute; "" for a built-in one that has no file.
        builtin: the built-in hook that it stands for, e.g. "shadow"; "" for a foreign one.
    """

    name: str
    path: str
    builtin: str


def find_hooks(settings: Settings) -> tuple[Hook, ...]:
    """Return the hooks to run, in order.

    Raises:
        HookError: naming a file or folder that others may write, or that another user owns.
    """
    system = os.path.join(settings.sysconf_path, "hooks.d")
    user = os.path.join(settings.config_path, "hooks.d")
    own = None if user == system else _list(user)
    found = _list(system)
    hooks: list[Hook] = []
    if found is None:
        replaced = set(own or ())
        hooks += [Hook(name, "", _word(name)) for name in STANDARD if name not in replaced]
    for folder, names in ((system, found), (user, own)):
        if names:
            check_writers(folder, os.stat(folder))
            hooks += _select(folder, names, seen={hook.builtin for hook in hooks})
    if found is None and own:
        # One set of hooks, of which some are the user's: their numbers say when they run.
        hooks.sort(key=lambda hook: os.fsencode(hook.name))
    return tuple(hooks)


def check_writers(path: str, status: os.stat_result) -> None:
    """Refuse what others than root and the user may write: they could run code as this user.

    Raises:
        HookError: naming `path` and the command that mends it.
    """
    if status.st_mode & stat.S_IWOTH:
        raise HookError(
            f"Everybody may write {path}: it is not run",
            path=path,
            hint=f"chmod o-w {path}",
        )
    if status.st_uid not in (0, os.getuid(), os.geteuid()) and not _is_unmapped(status.st_uid):
        raise HookError(
            f"{path} belongs to another user (uid {status.st_uid}): it is not run",
            path=path,
            hint="hooks must belong to root or to the user who starts the container",
        )


def _list(folder: str) -> list[str] | None:
    """Return the sorted hook names of a folder; None if there is no such folder."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise HookError(f"Cannot read {folder}: {error.strerror}", path=folder) from error
    # A shell's `*.sh` leaves out hidden files.
    kept = [name for name in names if name.endswith(SUFFIX) and not name.startswith(".")]
    return sorted(kept, key=os.fsencode)


def _select(folder: str, names: Iterable[str], *, seen: set[str]) -> list[Hook]:
    hooks = []
    for name in names:
        path = os.path.join(folder, name)
        try:
            status = os.stat(path)
        except OSError:
            # A dangling link is no hook, as for a shell's `[ -x FILE ]`.
            continue
        if not stat.S_ISREG(status.st_mode) or not os.access(path, os.X_OK):
            continue
        check_writers(path, status)
        builtin = _builtin(path, status.st_size)
        if builtin in seen and builtin:
            continue
        seen.add(builtin)
        hooks.append(Hook(name, path, builtin))
    return hooks


def _word(name: str) -> str:
    """Return "shadow" for "10-shadow.sh"."""
    stem = name[: -len(SUFFIX)]
    number, dash, rest = stem.partition("-")
    return rest if dash and number.isdigit() else stem


def _builtin(path: str, size: int) -> str:
    """Return the built-in hook that a file stands for by its content; "" if it is foreign."""
    if not 0 < size <= LARGEST:
        return ""
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError:
        # Executable but not readable, as a compiled hook may be.
        return ""
    for standard in BUILTINS:
        if data == f"{STUB}{standard}\n".encode():
            return standard
    return identify(_sha256(data))


def _sha256(data: bytes) -> str:
    # hashlib takes 4 ms to import, most of it for OpenSSL; the interpreter's own module (named so
    # from Python 3.12 on, and before) is free. A build may lack it.
    for module in ("_sha2", "_sha256"):
        try:
            return str(__import__(module).sha256(data).hexdigest())
        except ImportError:
            continue
    import hashlib

    return hashlib.sha256(data).hexdigest()


def _is_unmapped(uid: int) -> bool:
    """Tell whether a uid only means "nobody that this user namespace knows".

    Inside a container whose files belong to the host's root (nested use) owners cannot be told.
    """
    try:
        with open("/proc/sys/kernel/overflowuid", "rb") as file:
            overflow = int(file.read())
        with open("/proc/self/uid_map", "rb") as file:
            mapped = sum(int(line.split()[2]) for line in file)
    except (OSError, ValueError):
        return False
    return uid == overflow and mapped < 2**32 - 1
