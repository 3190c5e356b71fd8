"""Read a container's configuration files: the image's own, the system's and the user's.

Text only; what it means is decided in plan/. Files of the rootfs are resolved beneath it.
"""

from __future__ import annotations

import os

from enroot_py.errors import KernelError, SettingsError
from enroot_py.linux.path import read_beneath, read_file
from enroot_py.plan.system_mounts import CONFIG_FSTAB, ENVIRONMENT, SYSTEM_FSTAB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enroot_py.settings import Settings

FSTAB = "/etc/fstab"
ENVIRON = "/etc/environment"
_LIMIT = 4 << 20


def read_own_file(root_fd: int, path: str) -> bytes | None:
    """Return a configuration file of the mounted rootfs; None if it has none.

    Raises:
        SettingsError: if it cannot be read, or is too large to be one.
    """
    try:
        return read_beneath(root_fd, path, limit=_LIMIT)
    except KernelError as error:
        raise SettingsError(f"Cannot read the container's {path}: {error}") from error


def gather_mount_files(settings: Settings, own: bytes | None) -> tuple[tuple[str, str], ...]:
    """Return (name, text) of every fstab: the image's, the system's (or built in), the user's.

    Args:
        settings: say where the folders are.
        own: the container's /etc/fstab.

    Source: enroot 4.1.2 src/runtime.sh, runtime::_do_mounts_init().
    """
    built_in = (("system.fstab", SYSTEM_FSTAB), ("config.fstab", CONFIG_FSTAB))
    return _gather(settings, own, FSTAB, "mounts.d", ".fstab", built_in)


def own_file(own: bytes | None, name: str) -> tuple[tuple[str, str], ...]:
    """Return (name, text) of the container's own file, nothing if there is none."""
    return ((f"the container's {name}", own.decode("utf-8", "surrogateescape")),) if own else ()


def gather_environ_files(settings: Settings, own: bytes | None) -> tuple[tuple[str, str], ...]:
    """Return (name, text) of every environment file, in the order in which they count.

    Args:
        settings: say where the folders are.
        own: the container's /etc/environment.

    Source: enroot 4.1.2 src/runtime.sh, runtime::_do_environ().
    """
    built_in = (("terminal.env", ENVIRONMENT),)
    return _gather(settings, own, ENVIRON, "environ.d", ".env", built_in)


def _gather(
    settings: Settings,
    own: bytes | None,
    own_name: str,
    folder: str,
    suffix: str,
    built_in: tuple[tuple[str, str], ...],
) -> tuple[tuple[str, str], ...]:
    texts = list(own_file(own, own_name))
    system = _read_folder(os.path.join(settings.sysconf_path, folder), suffix)
    texts += built_in if system is None else system
    texts += _read_folder(os.path.join(settings.config_path, folder), suffix) or ()
    return tuple(texts)


def _read_folder(folder: str, suffix: str) -> list[tuple[str, str]] | None:
    """Return a folder's files in byte order of their names; None if there is no such folder."""
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SettingsError(f"Cannot read {folder}: {error.strerror}") from error
    texts = []
    for name in names:
        if name.endswith(suffix) and not name.startswith("."):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                texts.append((path, _read_text(path)))
    return texts


def _read_text(path: str) -> str:
    try:
        return read_file(path, limit=_LIMIT).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise SettingsError(f"Cannot read {path}: {error.strerror}") from error
