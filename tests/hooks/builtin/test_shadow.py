"""The user, root and nobody inside: databases of any image, and of hostile ones."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from enroot_py import log
from enroot_py.errors import HookError
from enroot_py.hooks.builtin import shadow
from enroot_py.hooks.builtin.shadow import User, find_user, generated_entries, merge_database
from tests.hooks.contexts import Container

ALICE = User("alice", 1000, 1001, "staff", "Alice", "/home/alice", "/bin/zsh")
ENTRIES = [b"root:x:0:0:root:/root:/bin/sh", b"alice:x:1000:1000:A:/home/alice:/bin/sh"]


@pytest.fixture(autouse=True)
def alice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow, "find_user", lambda *_: ALICE)


def names(text: str) -> list[str]:
    return [line.partition(":")[0] for line in text.splitlines()]


def test_entries_are_generated_first(container: Container) -> None:
    container.write("/etc/passwd", "root:x:0:0::/:/bin/bash\nubuntu:x:1000:1000::/h:/bin/sh\n")
    container.write("/etc/group", "wheel:x:10:\n")
    assert shadow.run(container.context()).mounts == ()
    assert container.read("/etc/passwd").splitlines() == [
        "root:x:0:0:root:/root:/bin/sh",
        f"nobody:x:{overflow('uid')}:{overflow('gid')}:nobody:/:/sbin/nologin",
        "alice:x:1000:1001:Alice:/home/alice:/bin/sh",
        "ubuntu:x:1000:1000::/h:/bin/sh",
    ]
    assert container.read("/etc/group").splitlines() == [
        "root:x:0:",
        f"nogroup:x:{overflow('gid')}:",
        "staff:x:1001:",
        "wheel:x:10:",
    ]
    assert (container.rootfs / "etc/passwd").stat().st_mode & 0o777 == 0o644


def overflow(kind: str) -> str:
    return Path(f"/proc/sys/kernel/overflow{kind}").read_text().strip()


def test_an_image_without_etc_gets_one(container: Container) -> None:
    shadow.run(container.context())
    assert names(container.read("/etc/passwd")) == ["root", "nobody", "alice"]
    assert sorted(os.listdir(container.rootfs / "etc")) == ["group", "passwd"]


def test_a_second_start_writes_nothing(container: Container) -> None:
    container.write("/etc/passwd", "daemon:x:1:1::/:/bin/sh\n")
    container.write("/etc/shadow", "daemon:*:::::::\n")
    shadow.run(container.context())
    before = (container.rootfs / "etc/passwd").stat(), (container.rootfs / "etc/shadow").stat()
    shadow.run(container.context())
    after = (container.rootfs / "etc/passwd").stat(), (container.rootfs / "etc/shadow").stat()
    assert [status.st_ino for status in before] == [status.st_ino for status in after]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (b"", []),
        (b"daemon:x:1:1::/:/bin/sh\n", [b"daemon"]),
        (b"daemon:x:1:1::/:/bin/sh", [b"daemon"]),
        (b"_apt:x:100:65534::/nonexistent:/usr/sbin/nologin\n", []),
        (b"alice:x:5:5::/:/bin/sh\nroot:x:0:0::/:/bin/sh\n", []),
        (b"a:x:1:1::/:/x\nb:x:2:2::/:/x\na:x:3:3::/:/x\n", [b"b", b"a"]),
        (b"broken:line\n\n# comment\nx:x:abc:1::/:\ny:x:1::::\n:x:1:1::/:\n", []),
        (b"x:x:1:1::/:/bin/sh:more\n", []),
        (b"+nis\n-other::::::\n", [b"+nis", b"-other"]),
        (b"caf\xe9:x:7:7::/:/bin/sh\n", [b"caf\xe9"]),
        (b"x:x:1:1::/:\r\n", [b"x"]),
        (b"x:x:-1:1::/:\n", []),
    ],
)
def test_what_is_kept_of_an_image(text: bytes, kept: list[bytes]) -> None:
    merged = merge_database(text, ENTRIES, fields=7)
    assert merged.endswith(b"\n")
    lines = merged.splitlines()
    assert lines[:2] == ENTRIES
    assert [line.partition(b":")[0] for line in lines[2:]] == kept


def test_groups_have_four_fields_and_one_number() -> None:
    text = b"wheel:x:10:alice,bob\nbad:x:ten:\nshort:x:1\nroot:x:0:\n"
    assert merge_database(text, [b"root:x:0:"], fields=4) == b"root:x:0:\nwheel:x:10:alice,bob\n"


def test_a_hundred_thousand_users_are_merged() -> None:
    text = b"".join(b"u%d:x:%d:1::/:/bin/sh\n" % (index, index) for index in range(100_000))
    assert merge_database(text, ENTRIES, fields=7).count(b"\n") == 100_002


@pytest.mark.parametrize("name", ["root", "nobody"])
def test_the_user_wins_where_he_is_root_or_nobody(name: str) -> None:
    passwd, _ = generated_entries(ALICE._replace(name=name, uid=7), "/bin/sh")
    assert len(passwd) == 2
    assert b"alice:x:7" not in passwd
    assert f"{name}:x:7:1001:Alice:/home/alice:/bin/sh".encode() in passwd


def test_links_fifos_and_folders_in_place_of_databases(container: Container) -> None:
    etc = container.rootfs / "etc"
    etc.mkdir()
    (etc / "passwd").symlink_to("/../../../../etc/group")
    os.mkfifo(etc / "group")
    (etc / "shadow").symlink_to(container.folder / "outside")
    shadow.run(container.context())
    assert names(container.read("/etc/passwd")) == ["root", "nobody", "alice"]
    assert names(container.read("/etc/group")) == ["root", "nogroup", "staff"]
    assert not (etc / "passwd").is_symlink()
    assert not (container.folder / "outside").exists()


def test_a_database_that_is_a_link_to_itself_is_replaced(container: Container) -> None:
    (container.rootfs / "etc").mkdir()
    (container.rootfs / "etc/passwd").symlink_to("passwd")
    shadow.run(container.context())
    assert names(container.read("/etc/passwd")) == ["root", "nobody", "alice"]


def test_a_linked_database_is_read_and_replaced(container: Container) -> None:
    container.write("/usr/share/passwd", "daemon:x:1:1::/:/bin/sh\n")
    (container.rootfs / "etc").mkdir()
    (container.rootfs / "etc/passwd").symlink_to("/usr/share/passwd")
    shadow.run(container.context())
    assert names(container.read("/etc/passwd")) == ["root", "nobody", "alice", "daemon"]
    assert container.read("/usr/share/passwd") == "daemon:x:1:1::/:/bin/sh\n"


def test_a_huge_database_is_refused(container: Container) -> None:
    path = container.write("/etc/passwd", "")
    with open(path, "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(HookError, match="/etc/passwd in the container holds more than"):
        shadow.run(container.context())


@pytest.mark.parametrize("kind", ["folder", "etc-file"])
def test_what_cannot_be_replaced_is_an_error(container: Container, kind: str) -> None:
    if kind == "folder":
        (container.rootfs / "etc/passwd").mkdir(parents=True)
    else:
        container.write("/etc", "no folder")
    with pytest.raises(HookError, match="Cannot write /etc/passwd in the container"):
        shadow.run(container.context())


def test_shadow_databases_are_completed_and_keep_their_mode(container: Container) -> None:
    container.write("/etc/shadow", "root:$6$secret:1:0:9:7:::\n_apt:*:1::::::\n", mode=0o600)
    container.write("/etc/gshadow", "root:*::\n")
    shadow.run(container.context())
    assert container.read("/etc/shadow").splitlines() == [
        "root:$6$secret:1:0:9:7:::",
        "nobody:*:::::::",
        "alice:*:::::::",
    ]
    assert container.read("/etc/gshadow").splitlines() == ["root:*::", "nogroup:*::", "staff:*::"]
    assert (container.rootfs / "etc/shadow").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("files", "shell"),
    [
        ({}, "/bin/sh"),
        ({"/bin/zsh": 0o755}, "/bin/zsh"),
        ({"/bin/zsh": 0o644}, "/bin/sh"),
        ({"/etc/default/useradd": "SHELL=/bin/ash\n"}, "/bin/ash"),
        ({"/etc/login.defs": "SHELL /bin/ksh # x\n"}, "/bin/ksh"),
        ({"/etc/login.defs": "SHELL /a\n", "/etc/default/useradd": "SHELL=/b"}, "/b"),
        ({"/etc/default/useradd": "SHELL=/bin/a:0:0\nX"}, "/bin/a 0 0"),
    ],
)
def test_the_shell_is_one_that_the_image_has(
    container: Container, files: dict[str, object], shell: str
) -> None:
    for path, what in files.items():
        if isinstance(what, int):
            container.write(path, "#!", mode=what)
        else:
            container.write(path, str(what))
    shadow.run(container.context())
    assert container.read("/etc/passwd").splitlines()[2].endswith(f":/home/alice:{shell}")


def test_a_home_is_made_from_the_skeleton(container: Container) -> None:
    container.write("/etc/skel/.profile", "hello", mode=0o640)
    shadow.run(container.context())
    home = container.rootfs / "home/alice"
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / ".profile").read_text() == "hello"
    assert (home / ".profile").stat().st_mode & 0o777 == 0o640


def test_an_existing_home_is_left_alone(container: Container) -> None:
    container.write("/etc/skel/.profile", "hello")
    container.write("/home/alice/mine", "x")
    shadow.run(container.context())
    assert os.listdir(container.rootfs / "home/alice") == ["mine"]


@pytest.mark.parametrize(
    ("defaults", "mode"),
    [
        ("CREATE_HOME no\n", None),
        ("CREATE_HOME yes\nUMASK 022\n", 0o755),
        ("UMASK\t077\n", 0o700),
        ("# UMASK 022\nUMASK junk\n", 0o700),
    ],
)
def test_login_defs_say_how_homes_are_made(
    container: Container, defaults: str, mode: int | None
) -> None:
    container.write("/etc/login.defs", defaults)
    shadow.run(container.context())
    home = container.rootfs / "home/alice"
    assert (home.stat().st_mode & 0o777 if home.exists() else None) == mode


def test_a_mailbox_is_made_if_the_image_asks(container: Container) -> None:
    container.write("/etc/default/useradd", "CREATE_MAIL_SPOOL=yes\n")
    container.write("/etc/login.defs", "MAIL_DIR /var/spool/mail\n")
    shadow.run(container.context())
    box = container.rootfs / "var/spool/mail/alice"
    assert box.stat().st_mode & 0o777 == 0o660
    box.write_text("mail")
    shadow.run(container.context())
    assert box.read_text() == "mail"


def test_a_home_that_cannot_be_made_is_a_warning(container: Container) -> None:
    container.write("/home", "a file")
    lines: list[str] = []
    log.set_sink(lambda level, text: lines.append(f"{level} {text}"))
    try:
        shadow.run(container.context())
    finally:
        log.set_sink(None)
    assert lines == ["WARN Cannot create /home/alice in the container: Not a directory"]


def test_an_unwritable_rootfs_gets_mounts(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    container.write("/etc/passwd", "daemon:x:1:1::/:/bin/sh\n")
    monkeypatch.setattr(shadow.RootfsFiles, "replace", refuse)
    monkeypatch.setattr(shadow.RootfsFiles, "make_directories", refuse)
    mounts = shadow.run(container.context()).mounts
    assert [(mount.source, mount.target) for mount in mounts] == [
        (str(container.workdir / "passwd"), "/etc/passwd"),
        (str(container.workdir / "group"), "/etc/group"),
    ]
    assert {"bind", "ro"} <= set(mounts[0].options)
    text = (container.workdir / "passwd").read_text()
    assert names(text) == ["root", "nobody", "alice", "daemon"]


class TestFindUser:
    """The host's databases, and users whom they do not know."""

    @pytest.fixture(autouse=True)
    def alice(self) -> None:
        """Use the real function."""

    def test_a_known_user(self) -> None:
        entry = pwd.getpwuid(os.getuid())
        user = find_user(os.getuid(), os.getgid(), {})
        assert (user.name, user.home) == (entry.pw_name, entry.pw_dir)

    @pytest.mark.parametrize(
        ("environ", "name", "home"),
        [
            ({}, "user4147706236", "/"),
            ({"USER": "hpcuser", "HOME": "/lus/h"}, "hpcuser", "/lus/h"),
            ({"LOGNAME": "h.p-c_u", "USER": "x"}, "h.p-c_u", "/"),
            ({"USER": "root"}, "user4147706236", "/"),
            ({"USER": "0"}, "user4147706236", "/"),
            ({"USER": "a:0:0:evil"}, "user4147706236", "/"),
            ({"USER": "a\nroot"}, "user4147706236", "/"),
            ({"USER": "-x"}, "user4147706236", "/"),
            ({"USER": "ok", "HOME": "/a:b\nc", "SHELL": "/bin/x\ny"}, "ok", "/a b c"),
            ({"HOME": "relative"}, "user4147706236", "/"),
        ],
    )
    def test_an_unknown_user(self, environ: dict[str, str], name: str, home: str) -> None:
        user = find_user(4147706236, 4147706235, environ)
        assert (user.name, user.uid, user.gid) == (name, 4147706236, 4147706235)
        assert user.group == "group4147706235"
        assert user.home == home
        assert "\n" not in user.shell
