"""Settings: `enroot.conf`, its drop-ins and the environment, as one frozen record.

Precedence, strongest first (a table in tests/test_settings.py holds it):

1. directives of a container configuration (`#ENROOT_…` lines of `start --conf` and `batch`);
2. environment variables that are set and not empty;
3. `enroot.conf`, then `enroot.conf.d/*.conf` in name order: the first file that sets a key wins;
4. built-in defaults.

A boolean is on when its variable is set to anything but empty, n, no, f or false (in the spellings
of `_FALSE`): "0" is on, as in the original.

Source: enroot 4.1.2 enroot.in, the CONFIG section.
"""

from __future__ import annotations

import os

from enroot_py.config_file import accepts_key, expand_value, home_folder, parse_config
from enroot_py.errors import SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

VERSION = "4.1.2"
"""The version of NVIDIA's Enroot whose behaviour this package has; `enroot version` prints it."""

_FALSE = frozenset({"", "n", "no", "N", "No", "NO", "nO", "f", "F", "false", "False", "FALSE"})
_DEFAULT_SYSCONF = "/etc/enroot"


class Settings(NamedTuple):
    """Everything that can be configured, read once and passed down.

    Paths are absolute host paths and need not exist. Times are seconds, 0 for no limit; sizes are
    bytes, 0 for no limit. `environment` is the process environment as hooks get it: everything
    inherited, what the configuration files set, and every ENROOT_* path.
    """

    library_path: str
    sysconf_path: str
    runtime_path: str
    config_path: str
    cache_path: str
    data_path: str
    temp_path: str
    squash_options: str
    max_processors: int
    max_connections: int
    connect_timeout: float
    transfer_timeout: float
    transfer_retries: int
    hook_timeout: float
    max_image_size: int
    max_image_entries: int
    cache_limit: int
    mirrors: str
    login_shell: bool
    allow_superuser: bool
    allow_http: bool
    rootfs_writable: bool
    native_overlayfs: bool
    remap_root: bool
    unshare_pid: bool
    unshare_net: bool
    unshare_ipc: bool
    unshare_uts: bool
    mount_home: bool
    restrict_dev: bool
    bundle_all: bool
    bundle_checksum: bool
    force_override: bool
    environment: Mapping[str, str]

    @property
    def credentials_file(self) -> str:
        """The registry credentials, in netrc form."""
        return os.path.join(self.config_path, ".credentials")

    @property
    def config_file(self) -> str:
        """The system's configuration file."""
        return os.path.join(self.sysconf_path, "enroot.conf")


def load_settings(
    environ: Mapping[str, str] | None = None, *, directives: Iterable[tuple[str, str]] = ()
) -> Settings:
    """Read the configuration and return the settings; creates nothing.

    Args:
        environ: the environment to read; the process's own if None.
        directives: raw `(key, value)` pairs of a container configuration, which override all else.

    Raises:
        SettingsError: naming the file or variable, if a value cannot be used.
    """
    merged = dict(os.environ if environ is None else environ)
    sysconf = merged.get("ENROOT_SYSCONF_PATH") or _DEFAULT_SYSCONF
    for path in _config_files(os.path.join(sysconf, "enroot.conf")):
        _merge(merged, _read_config(path), origin=path, override=False)
    _merge(merged, directives, origin="container configuration", override=True)
    for key, value in _defaults(merged):
        if not merged.get(key):
            merged[key] = value
    for key in [key for key in merged if key.startswith("ENROOT_") and merged[key] in _FALSE]:
        del merged[key]
    return _build(merged)


def package_share_path() -> str:
    """Return the folder of the files that this package ships (`share/enroot`)."""
    package = os.path.dirname(os.path.abspath(__file__))
    installed = os.path.join(package, "share")
    if os.path.isdir(installed):
        return installed
    return os.path.join(os.path.dirname(package), "share", "enroot")


def _config_files(path: str) -> list[str]:
    files = [path]
    try:
        names = sorted(os.listdir(path + ".d"))
    except OSError:
        return files
    return files + [os.path.join(path + ".d", name) for name in names if name.endswith(".conf")]


def _read_config(path: str) -> list[tuple[str, str]]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return parse_config(file.read())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise SettingsError(f"Cannot read {path}: {error.strerror}") from error


def _merge(
    merged: dict[str, str], pairs: Iterable[tuple[str, str]], *, origin: str, override: bool
) -> None:
    for key, raw in pairs:
        if accepts_key(key) and (override or not merged.get(key)):
            merged[key] = expand_value(raw, merged, origin=origin)


def _defaults(merged: Mapping[str, str]) -> list[tuple[str, str]]:
    """Every ENROOT_* variable that has a default, and its value, given what is set already."""
    home = home_folder(merged)
    data = merged.get("XDG_DATA_HOME") or f"{home}/.local/share"
    config = merged.get("XDG_CONFIG_HOME") or f"{home}/.config"
    cache = merged.get("XDG_CACHE_HOME") or f"{home}/.cache"
    temp = merged.get("TMPDIR") or "/tmp"
    return [
        ("XDG_DATA_HOME", data),
        ("XDG_CONFIG_HOME", config),
        ("XDG_CACHE_HOME", cache),
        ("ENROOT_LIBRARY_PATH", package_share_path()),
        ("ENROOT_SYSCONF_PATH", _DEFAULT_SYSCONF),
        ("ENROOT_RUNTIME_PATH", _default_runtime_path(merged, temp)),
        ("ENROOT_CONFIG_PATH", f"{config}/enroot"),
        ("ENROOT_CACHE_PATH", f"{cache}/enroot"),
        ("ENROOT_DATA_PATH", f"{data}/enroot"),
        ("ENROOT_TEMP_PATH", temp),
        ("ENROOT_SQUASH_OPTIONS", "-comp zstd -Xcompression-level 1"),
        ("ENROOT_MAX_PROCESSORS", str(len(os.sched_getaffinity(0)))),
        ("ENROOT_MAX_CONNECTIONS", "10"),
        ("ENROOT_CONNECT_TIMEOUT", "30"),
        ("ENROOT_TRANSFER_TIMEOUT", "0"),
        ("ENROOT_TRANSFER_RETRIES", "0"),
        ("ENROOT_HOOK_TIMEOUT", "60"),
        ("ENROOT_LOGIN_SHELL", "true"),
        ("ENROOT_NATIVE_OVERLAYFS", "true"),
    ]


def _default_runtime_path(merged: Mapping[str, str], temp: str) -> str:
    """`$XDG_RUNTIME_DIR/enroot`; without that variable a folder that this user may make.

    The original falls back to /run, where an ordinary user can make nothing.
    """
    runtime = merged.get("XDG_RUNTIME_DIR")
    if runtime:
        return f"{runtime}/enroot"
    uid = os.getuid()
    if uid == 0:
        return "/run/enroot"
    login = f"/run/user/{uid}"
    if os.path.isdir(login) and os.stat(login).st_uid == uid:
        return f"{login}/enroot"
    return f"{temp}/enroot-{uid}"


def _build(merged: dict[str, str]) -> Settings:
    def flag(name: str) -> bool:
        return "ENROOT_" + name in merged

    def number(name: str) -> float:
        text = merged.get("ENROOT_" + name)
        try:
            value = float(text) if text else 0.0
        except ValueError:
            value = -1.0
        if not 0 <= value < 2**53:
            raise SettingsError(
                f"Invalid value for ENROOT_{name}: {text}", hint="expected a number, 0 or more"
            )
        return value

    def path(name: str) -> str:
        key = f"ENROOT_{name}_PATH"
        if key not in merged:
            raise SettingsError(f"Invalid value for {key}", hint="expected the path of a folder")
        return os.path.abspath(merged[key])

    return Settings(
        library_path=path("LIBRARY"),
        sysconf_path=path("SYSCONF"),
        runtime_path=path("RUNTIME"),
        config_path=path("CONFIG"),
        cache_path=path("CACHE"),
        data_path=path("DATA"),
        temp_path=path("TEMP"),
        squash_options=merged.get("ENROOT_SQUASH_OPTIONS", ""),
        max_processors=int(number("MAX_PROCESSORS")) or len(os.sched_getaffinity(0)),
        max_connections=int(number("MAX_CONNECTIONS")),
        connect_timeout=number("CONNECT_TIMEOUT"),
        transfer_timeout=number("TRANSFER_TIMEOUT"),
        transfer_retries=int(number("TRANSFER_RETRIES")),
        hook_timeout=number("HOOK_TIMEOUT"),
        max_image_size=int(number("MAX_IMAGE_SIZE")),
        max_image_entries=int(number("MAX_IMAGE_ENTRIES")),
        cache_limit=int(number("CACHE_LIMIT")),
        mirrors=merged.get("ENROOT_MIRRORS", ""),
        login_shell=flag("LOGIN_SHELL"),
        allow_superuser=flag("ALLOW_SUPERUSER"),
        allow_http=flag("ALLOW_HTTP"),
        rootfs_writable=flag("ROOTFS_WRITABLE"),
        native_overlayfs=flag("NATIVE_OVERLAYFS"),
        remap_root=flag("REMAP_ROOT"),
        unshare_pid=flag("UNSHARE_PID"),
        unshare_net=flag("UNSHARE_NET"),
        unshare_ipc=flag("UNSHARE_IPC"),
        unshare_uts=flag("UNSHARE_UTS"),
        mount_home=flag("MOUNT_HOME"),
        restrict_dev=flag("RESTRICT_DEV"),
        bundle_all=flag("BUNDLE_ALL"),
        bundle_checksum=flag("BUNDLE_CHECKSUM"),
        force_override=flag("FORCE_OVERRIDE"),
        environment=merged,
    )
