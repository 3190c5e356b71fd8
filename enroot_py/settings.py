"""Settings: `enroot.conf`, its drop-ins and the environment, as one frozen record.

Precedence, strongest first (a table in tests/test_settings.py holds it):

1. directives of a container configuration (`#ENROOT_…` lines of `start --conf` and `batch`);
2. environment variables that are set and not empty;
3. `enroot.conf`, then `enroot.conf.d/*.conf` in name order: the first file that sets a key wins;
4. built-in defaults.

A boolean is on when its variable is set to anything but empty, n, no, f or false (in the spellings
of `_FALSE`): "0" is on, as in the original. Sizes may end in K, M, G or T.

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

_FALSE = frozenset({"", "n", "no", "N", "No", "NO", "f", "F", "false", "False", "FALSE"})
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_DEFAULT_SYSCONF = "/etc/enroot"


class Settings(NamedTuple):
    """Everything that can be configured, read once and passed down.

    Paths are absolute host paths and need not exist. Times are seconds, 0 for no limit; sizes are
    bytes, 0 for no limit. `environment` is the process environment as hooks get it: everything
    inherited, what the configuration files set, every ENROOT_* setting that has a default and
    ENROOT_VERSION; no ENROOT_* variable that means "off".
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
    for key, value in _defaults(merged):
        if not merged.get(key):
            merged[key] = value
    # After the defaults: a directive may refer to them, and an empty one switches them off.
    _merge(merged, directives, origin="the container configuration", override=True)
    for key in [key for key in merged if key.startswith("ENROOT_") and merged[key] in _FALSE]:
        del merged[key]
    merged["ENROOT_VERSION"] = VERSION
    return _build(merged)


def config_files(settings: Settings) -> list[str]:
    """Return the configuration files in the order in which they are read; some may be missing."""
    return _config_files(settings.config_file)


def parse_size(text: str) -> int:
    """Return a number of bytes: digits, with a fraction or one of K, M, G, T (powers of 1024).

    Raises:
        ValueError: if it is none.
    """
    number, unit = text.strip(), 1
    if number[-1:].upper() in _UNITS:
        number, unit = number[:-1], _UNITS[number[-1].upper()]
    size = float(number) * unit
    if not 0 <= size < 2**63:
        raise ValueError(text)
    return int(size)


def format_size(size: int) -> str:
    """Return a number of bytes for people: "512 B", "1.5 GiB"."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} PiB"


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
    return files + [os.path.join(path + ".d", name) for name in names if _is_drop_in(name)]


def _is_drop_in(name: str) -> bool:
    return name.endswith(".conf") and not name.startswith(".")


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
            merged[key] = expand_value(raw, merged, origin=f"{key} in {origin}")


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

    The original falls back to /run, where an ordinary user can make nothing; nor can one who is
    root in a user namespace alone.
    """
    runtime = merged.get("XDG_RUNTIME_DIR")
    if runtime:
        return f"{runtime}/enroot"
    uid = os.getuid()
    if uid == 0:
        if os.access("/run", os.W_OK):
            return "/run/enroot"
        uid = _outer_uid()
    login = f"/run/user/{uid}"
    if os.path.isdir(login) and os.stat(login).st_uid == uid:
        return f"{login}/enroot"
    return f"{temp}/enroot-{uid}"


def _outer_uid() -> int:
    """The uid that root of this user namespace has outside of it, 0 if that cannot be told."""
    try:
        with open("/proc/self/uid_map") as ranges:
            return int(ranges.readline().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


class _Values:
    """The merged environment, read as the types that settings have."""

    def __init__(self, merged: Mapping[str, str]) -> None:
        self._merged = merged

    def text(self, name: str) -> str:
        return self._merged.get("ENROOT_" + name, "")

    def flag(self, name: str) -> bool:
        return "ENROOT_" + name in self._merged

    def path(self, name: str) -> str:
        path = self.text(name + "_PATH")
        if not path:
            raise self._invalid(name + "_PATH", "expected the path of a folder")
        return os.path.abspath(path)

    def number(self, name: str) -> float:
        text = self.text(name)
        try:
            value = float(text or 0)
        except ValueError:
            value = -1.0
        if not 0 <= value < 2**53:
            raise self._invalid(name, "expected a number, 0 or more")
        return value

    def count(self, name: str) -> int:
        return int(self.number(name))

    def size(self, name: str) -> int:
        try:
            return parse_size(self.text(name) or "0")
        except ValueError:
            raise self._invalid(name, "expected a number of bytes, or one like 50G") from None

    def _invalid(self, name: str, hint: str) -> SettingsError:
        return SettingsError(f"Invalid value of ENROOT_{name}: {self.text(name)!r}", hint=hint)


def _build(merged: dict[str, str]) -> Settings:
    values = _Values(merged)
    return Settings(
        library_path=values.path("LIBRARY"),
        sysconf_path=values.path("SYSCONF"),
        runtime_path=values.path("RUNTIME"),
        config_path=values.path("CONFIG"),
        cache_path=values.path("CACHE"),
        data_path=values.path("DATA"),
        temp_path=values.path("TEMP"),
        squash_options=values.text("SQUASH_OPTIONS"),
        max_processors=values.count("MAX_PROCESSORS") or len(os.sched_getaffinity(0)),
        max_connections=values.count("MAX_CONNECTIONS"),
        connect_timeout=values.number("CONNECT_TIMEOUT"),
        transfer_timeout=values.number("TRANSFER_TIMEOUT"),
        transfer_retries=values.count("TRANSFER_RETRIES"),
        hook_timeout=values.number("HOOK_TIMEOUT"),
        max_image_size=values.size("MAX_IMAGE_SIZE"),
        max_image_entries=values.count("MAX_IMAGE_ENTRIES"),
        cache_limit=values.size("CACHE_LIMIT"),
        mirrors=values.text("MIRRORS"),
        login_shell=values.flag("LOGIN_SHELL"),
        allow_superuser=values.flag("ALLOW_SUPERUSER"),
        allow_http=values.flag("ALLOW_HTTP"),
        rootfs_writable=values.flag("ROOTFS_WRITABLE"),
        native_overlayfs=values.flag("NATIVE_OVERLAYFS"),
        remap_root=values.flag("REMAP_ROOT"),
        unshare_pid=values.flag("UNSHARE_PID"),
        unshare_net=values.flag("UNSHARE_NET"),
        unshare_ipc=values.flag("UNSHARE_IPC"),
        unshare_uts=values.flag("UNSHARE_UTS"),
        mount_home=values.flag("MOUNT_HOME"),
        restrict_dev=values.flag("RESTRICT_DEV"),
        bundle_all=values.flag("BUNDLE_ALL"),
        bundle_checksum=values.flag("BUNDLE_CHECKSUM"),
        force_override=values.flag("FORCE_OVERRIDE"),
        environment=merged,
    )
