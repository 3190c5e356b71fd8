"""Settings: precedence, booleans, numbers, paths, drop-ins, and the environment that hooks get."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from enroot_py.cli.texts.variables import VARIABLES
from enroot_py.config_file import parse_directives
from enroot_py.errors import SettingsError
from enroot_py.settings import (
    VERSION,
    Settings,
    config_files,
    format_size,
    load_settings,
    parse_size,
)


class Host:
    """A fake machine: a configuration folder and an environment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sysconf = root / "etc"
        self.sysconf.mkdir()
        self.environ = {"HOME": "/home/me", "ENROOT_SYSCONF_PATH": str(self.sysconf)}
        self.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin")

    def write(self, name: str, text: str) -> None:
        path = self.sysconf / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def load(self, directives: str = "", **environ: str) -> Settings:
        return load_settings({**self.environ, **environ}, directives=parse_directives(directives))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize(
    "directive, environ, first, second, expected",
    [
        # directive, environment, enroot.conf, enroot.conf.d: what wins
        ("d", "e", "c", "i", "d"),
        (None, "e", "c", "i", "e"),
        (None, None, "c", "i", "c"),
        (None, None, None, "i", "i"),
        (None, None, None, None, "-comp zstd -Xcompression-level 1"),
        (None, "", "c", "i", "c"),
        (None, None, "''", "i", "i"),
        (None, "", None, None, "-comp zstd -Xcompression-level 1"),
        ("d", None, None, None, "d"),
    ],
)
def test_the_strongest_source_wins(
    host: Host,
    directive: str | None,
    environ: str | None,
    first: str | None,
    second: str | None,
    expected: str,
) -> None:
    if first is not None:
        host.write("enroot.conf", f"ENROOT_SQUASH_OPTIONS {first}\n")
    if second is not None:
        host.write("enroot.conf.d/10-site.conf", f"ENROOT_SQUASH_OPTIONS {second}\n")
    given = {} if environ is None else {"ENROOT_SQUASH_OPTIONS": environ}
    line = "" if directive is None else f"#ENROOT_SQUASH_OPTIONS {directive}"
    assert host.load(line, **given).squash_options == expected


def test_drop_ins_are_read_in_name_order_and_the_first_wins(host: Host) -> None:
    host.write("enroot.conf.d/20-b.conf", "ENROOT_MAX_CONNECTIONS 20\nENROOT_HOOK_TIMEOUT 20\n")
    host.write("enroot.conf.d/10-a.conf", "ENROOT_MAX_CONNECTIONS 10\n")
    host.write("enroot.conf.d/.05-hidden.conf", "ENROOT_MAX_CONNECTIONS 5\n")
    host.write("enroot.conf.d/README", "ENROOT_MAX_CONNECTIONS 4\n")
    settings = host.load()
    assert (settings.max_connections, settings.hook_timeout) == (10, 20.0)
    names = [os.path.relpath(path, host.sysconf) for path in config_files(settings)]
    assert names == ["enroot.conf", "enroot.conf.d/10-a.conf", "enroot.conf.d/20-b.conf"]


def test_the_last_line_of_a_file_does_not_override_the_first(host: Host) -> None:
    host.write("enroot.conf", "ENROOT_MAX_CONNECTIONS 1\nENROOT_MAX_CONNECTIONS 2\n")
    assert host.load().max_connections == 1


def test_the_last_directive_overrides_the_first(host: Host) -> None:
    assert host.load("#ENROOT_MAX_CONNECTIONS 1\n#ENROOT_MAX_CONNECTIONS 2").max_connections == 2


@pytest.mark.parametrize(
    "value, on",
    [("", False), ("n", False), ("no", False), ("N", False), ("No", False), ("NO", False)]
    + [("f", False), ("F", False), ("false", False), ("False", False), ("FALSE", False)]
    + [("0", True), ("y", True), ("yes", True), ("true", True), ("off", True), ("nO", True)]
    + [("fALSE", True), ("none", True), (" ", True)],
)
def test_booleans_are_read_as_enroot_reads_them(host: Host, value: str, on: bool) -> None:
    assert host.load(ENROOT_REMAP_ROOT=value).remap_root is on


FLAGS = {
    "LOGIN_SHELL": True,
    "NATIVE_OVERLAYFS": True,
    "ALLOW_SUPERUSER": False,
    "ALLOW_HTTP": False,
    "ROOTFS_WRITABLE": False,
    "REMAP_ROOT": False,
    "UNSHARE_PID": False,
    "UNSHARE_NET": False,
    "UNSHARE_IPC": False,
    "UNSHARE_UTS": False,
    "MOUNT_HOME": False,
    "RESTRICT_DEV": False,
    "BUNDLE_ALL": False,
    "BUNDLE_CHECKSUM": False,
    "FORCE_OVERRIDE": False,
}


@pytest.mark.parametrize("name, default", FLAGS.items())
def test_every_switch_has_its_default_and_can_be_turned(
    host: Host, name: str, default: bool
) -> None:
    field = name.lower()
    assert getattr(host.load(), field) is default
    assert getattr(host.load(**{f"ENROOT_{name}": "y"}), field) is True
    assert getattr(host.load(**{f"ENROOT_{name}": "no"}), field) is False
    assert getattr(host.load(f"#ENROOT_{name} no"), field) is False


@pytest.mark.parametrize(
    "name, field, default",
    [
        ("MAX_CONNECTIONS", "max_connections", 10),
        ("CONNECT_TIMEOUT", "connect_timeout", 30.0),
        ("TRANSFER_TIMEOUT", "transfer_timeout", 0.0),
        ("TRANSFER_RETRIES", "transfer_retries", 0),
        ("HOOK_TIMEOUT", "hook_timeout", 60.0),
        ("MAX_IMAGE_SIZE", "max_image_size", 0),
        ("MAX_IMAGE_ENTRIES", "max_image_entries", 0),
        ("CACHE_LIMIT", "cache_limit", 0),
        ("MAX_PROCESSORS", "max_processors", len(os.sched_getaffinity(0))),
    ],
)
def test_every_number_has_its_default_and_is_checked(
    host: Host, name: str, field: str, default: float
) -> None:
    assert getattr(host.load(), field) == default
    assert getattr(host.load(**{f"ENROOT_{name}": "7"}), field) == 7
    for wrong in ("-1", "x", "1e999", "nan", "1 2"):
        with pytest.raises(SettingsError, match=f"ENROOT_{name}"):
            host.load(**{f"ENROOT_{name}": wrong})


def test_zero_processors_means_all_of_them(host: Host) -> None:
    assert host.load(ENROOT_MAX_PROCESSORS="0").max_processors == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    "text, size",
    [("0", 0), ("512", 512), ("2K", 2048), ("1.5k", 1536), ("3M", 3 << 20), ("50G", 50 << 30)]
    + [("1T", 1 << 40), (" 8 ", 8)],
)
def test_sizes_take_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "size, text",
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (50 << 30, "50.0 GiB")]
    + [(3 << 50, "3.0 PiB"), (5000 << 50, "5000.0 PiB")],
)
def test_sizes_are_shown_with_units(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize("text", ["", "G", "-1", "1X", "1GB", "inf", "nan", "9999999999T"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_size(text)


@pytest.mark.parametrize(
    "environ, expected",
    [
        (
            {},
            {
                "data_path": "/home/me/.local/share/enroot",
                "config_path": "/home/me/.config/enroot",
                "cache_path": "/home/me/.cache/enroot",
                "temp_path": "/tmp",
            },
        ),
        (
            {"XDG_DATA_HOME": "/d", "XDG_CONFIG_HOME": "/c", "XDG_CACHE_HOME": "/k"},
            {"data_path": "/d/enroot", "config_path": "/c/enroot", "cache_path": "/k/enroot"},
        ),
        ({"XDG_RUNTIME_DIR": "/run/user/7"}, {"runtime_path": "/run/user/7/enroot"}),
        ({"TMPDIR": "/scratch"}, {"temp_path": "/scratch"}),
        (
            {"ENROOT_DATA_PATH": "/x/../d/", "ENROOT_TEMP_PATH": "t"},
            {"data_path": "/d", "temp_path": os.path.abspath("t")},
        ),
    ],
)
def test_paths_follow_the_base_folders(
    host: Host, environ: dict[str, str], expected: dict[str, str]
) -> None:
    settings = host.load(**environ)
    assert {field: getattr(settings, field) for field in expected} == expected


def test_a_user_without_a_runtime_folder_gets_one_that_he_may_make(host: Host) -> None:
    path = host.load(TMPDIR="/scratch").runtime_path
    uid = os.getuid()
    if uid == 0:
        assert path == "/run/enroot"
    else:
        assert path in (f"/run/user/{uid}/enroot", f"/scratch/enroot-{uid}")


def test_paths_that_mean_off_are_refused(host: Host) -> None:
    with pytest.raises(SettingsError, match="ENROOT_DATA_PATH"):
        host.load("#ENROOT_DATA_PATH no")


def test_values_are_expanded_with_what_is_known_so_far(host: Host) -> None:
    host.write(
        "enroot.conf",
        "ENROOT_CACHE_PATH  ${XDG_CACHE_HOME:-/scratch/$USER}/layers  # comment\n"
        "ENROOT_TEMP_PATH = $ENROOT_CACHE_PATH/tmp\n"
        'ENROOT_DATA_PATH "$(echo /data)/$USER"\n'
        "ENROOT_CONFIG_PATH ~/conf\n",
    )
    settings = host.load(USER="me")
    assert settings.cache_path == "/scratch/me/layers"
    assert settings.temp_path == "/scratch/me/layers/tmp"
    assert settings.data_path == "/data/me"
    assert settings.config_path == "/home/me/conf"


def test_directives_may_refer_to_defaults(host: Host) -> None:
    settings = host.load("#ENROOT_ROOTFS ${ENROOT_DATA_PATH}/x\n#ENROOT_LOGIN_SHELL")
    assert settings.environment["ENROOT_ROOTFS"] == "/home/me/.local/share/enroot/x"
    assert settings.login_shell is False


def test_files_set_no_other_variables(host: Host) -> None:
    host.write(
        "enroot.conf",
        "PATH /evil\nLD_PRELOAD /evil.so\nXDG_DATA_HOME /evil\nENROOT_lower x\n"
        "NVIDIA_VISIBLE_DEVICES all\nMELLANOX_VISIBLE_DEVICES all\nhttps_proxy http://p:1\n"
        "SSL_CERT_FILE /ca.pem\n",
    )
    settings = host.load()
    environment = settings.environment
    assert environment["PATH"] == host.environ["PATH"]
    assert "LD_PRELOAD" not in environment and "ENROOT_lower" not in environment
    assert settings.data_path == "/home/me/.local/share/enroot"
    assert environment["NVIDIA_VISIBLE_DEVICES"] == environment["MELLANOX_VISIBLE_DEVICES"] == "all"
    assert environment["https_proxy"] == "http://p:1"
    assert environment["SSL_CERT_FILE"] == "/ca.pem"


def test_hooks_get_settings_that_are_on_and_none_that_are_off(host: Host) -> None:
    environment = host.load(
        "#ENROOT_UNSHARE_NET y", ENROOT_REMAP_ROOT="no", ENROOT_MOUNT_HOME="", KEEP="no", EMPTY=""
    ).environment
    assert environment["ENROOT_UNSHARE_NET"] == "y"
    assert environment["ENROOT_LOGIN_SHELL"] == "true"
    assert environment["ENROOT_DATA_PATH"] == "/home/me/.local/share/enroot"
    assert environment["ENROOT_VERSION"] == VERSION
    assert "ENROOT_REMAP_ROOT" not in environment and "ENROOT_MOUNT_HOME" not in environment
    assert "ENROOT_ALLOW_HTTP" not in environment
    assert environment["KEEP"] == "no" and environment["EMPTY"] == ""


def test_nothing_is_created_and_the_environment_is_left_alone(host: Host) -> None:
    before = dict(host.environ)
    load_settings(host.environ)
    assert host.environ == before
    assert sorted(os.listdir(host.root)) == ["etc"]
    assert os.listdir(host.sysconf) == []


def test_bytes_that_are_no_text_pass_through(host: Host) -> None:
    (host.sysconf / "enroot.conf").write_bytes(b"ENROOT_DATA_PATH /d\xff\n")
    assert os.fsencode(host.load().data_path) == b"/d\xff"


def test_a_broken_file_is_named_and_its_values_are_not(host: Host) -> None:
    host.write("enroot.conf", "https_proxy 'http://user:secret@proxy\n")
    with pytest.raises(SettingsError, match="https_proxy in .*enroot.conf") as raised:
        host.load()
    assert "secret" not in str(raised.value) + raised.value.hint


def test_a_folder_in_place_of_a_file_is_named(host: Host) -> None:
    (host.sysconf / "enroot.conf").mkdir()
    with pytest.raises(SettingsError, match="enroot.conf"):
        host.load()


def test_the_manual_knows_every_setting(host: Host) -> None:
    fields = [field for field in Settings._fields if field != "environment"]
    assert sorted(f"ENROOT_{field.upper()}" for field in fields) == sorted(VARIABLES)
