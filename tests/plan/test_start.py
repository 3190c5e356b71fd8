from __future__ import annotations

import pytest

from enroot_py.errors import EnrootError, SettingsError, UnsupportedError, UsageError
from enroot_py.plan.fstab import Mount
from enroot_py.plan.start import (
    AFTER_HOOKS,
    BEFORE_HOOKS,
    NamespacePlan,
    RootfsSource,
    host_variables,
    mounts_of_pass,
    plan_descriptors,
    plan_mounts,
)
from tests.plan.start_plans import HOST, IMAGE, plan_of

ROOT = HOST._replace(uid=0, gid=0, euid=0, egid=0)
PLAIN = NamespacePlan(
    user=True, uid=1000, gid=1001, outside_uid=1000, outside_gid=1001,
    pid=False, net=False, ipc=False, uts=False, machine="x86_64",
)  # fmt: skip


def test_an_ordinary_user_keeps_his_ids_in_a_user_namespace() -> None:
    assert plan_of().namespaces == PLAIN


def test_a_remapped_user_is_root_inside_alone() -> None:
    plan = plan_of(root=True)
    assert plan.namespaces == PLAIN._replace(uid=0, gid=0)
    assert plan.settings.remap_root
    assert plan.settings.environment["ENROOT_REMAP_ROOT"] == "y"


def test_ids_beyond_two_gigabytes_stay_positive() -> None:
    host = HOST._replace(euid=4147706236, egid=4147706236)
    assert plan_of(host=host).namespaces.outside_uid == 4147706236


@pytest.mark.parametrize(
    ("superuser", "root", "user", "uid"),
    [
        (False, False, True, 0),
        (False, True, True, 0),
        (True, False, False, 0),
        (True, True, False, 0),
    ],
)
def test_root_has_a_user_namespace_unless_superusers_are_allowed(
    superuser: bool, root: bool, user: bool, uid: int
) -> None:
    environ = {"ENROOT_ALLOW_SUPERUSER": "y"} if superuser else {}
    namespaces = plan_of(host=ROOT, variables=environ, root=root).namespaces
    assert (namespaces.user, namespaces.uid) == (user, uid)


def test_allow_superuser_changes_nothing_for_others() -> None:
    assert plan_of(variables={"ENROOT_ALLOW_SUPERUSER": "y"}).namespaces == PLAIN


@pytest.mark.parametrize("kind", ["pid", "net", "ipc", "uts"])
@pytest.mark.parametrize("by_setting", [True, False])
def test_namespaces_by_flag_and_by_setting(kind: str, by_setting: bool) -> None:
    variable = f"ENROOT_UNSHARE_{kind.upper()}"
    plan = (
        plan_of(variables={variable: "y"}) if by_setting else plan_of(**{f"unshare_{kind}": True})
    )
    assert plan.namespaces == PLAIN._replace(**{kind: True})
    assert plan.settings.environment[variable] == "y"


def test_switches_off_leave_the_settings_alone() -> None:
    plan = plan_of(variables={"ENROOT_ROOTFS_WRITABLE": "y"})
    assert plan.writable
    assert plan.settings.environment["ENROOT_ROOTFS_WRITABLE"] == "y"
    assert "ENROOT_REMAP_ROOT" not in plan.settings.environment
    assert not plan_of().writable
    assert plan_of(writable=True).writable


def test_mounts_are_parsed_and_records_taken_as_they_are() -> None:
    record = Mount("/a", "/b", options=("bind",))
    plan = plan_of(mounts=("/src:/dst:ro", record))
    assert plan.mounts == (Mount("/src", "/dst", options=("ro",)), record)


def test_variables_come_from_the_command_line_and_the_host() -> None:
    assert plan_of(variables={"B": "host"}).settings.environment["B"] == "host"
    spec_environ = ("A=1", "TERM", "GONE")
    assert plan_of(environ=spec_environ).environ == (("A", "1"), ("TERM", "xterm"), ("GONE", ""))


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"mounts": (":x",)}, UsageError),
        ({"command": ("a\0b",)}, UsageError),
    ],
)
def test_what_cannot_be_is_refused(spec: dict[str, object], error: type[EnrootError]) -> None:
    with pytest.raises(error):
        plan_of(**spec)


@pytest.mark.parametrize("text", ["1=x", "ENROOT_PID=1", "ENROOT_X"])
def test_variables_that_would_not_arrive_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=text.partition("=")[0]):
        plan_of(environ=(text,))


def test_an_unknown_machine_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="riscv64"):
        plan_of(host=HOST._replace(architecture="riscv64"))


def test_a_rootfs_that_the_runtime_folder_would_hide_is_refused() -> None:
    with pytest.raises(SettingsError, match="/run/me/enroot"):
        plan_of(RootfsSource("/run/me/enroot/data/box"))
    assert plan_of(RootfsSource("/run/me/enroot2/box")).rootfs.path == "/run/me/enroot2/box"
    assert plan_of(RootfsSource("/run/me/enroot/box.sqsh", is_image=True)).rootfs.is_image


def test_an_image_and_a_borrowed_folder_are_mounted_in_the_runtime_folder() -> None:
    assert plan_of().mounted_rootfs == "/data/enroot/box"
    assert plan_of(IMAGE).mounted_rootfs == "/run/me/enroot/overlay"
    borrowed = RootfsSource("/data/enroot/box", borrowed=True)
    assert plan_of(borrowed).mounted_rootfs == "/run/me/enroot/overlay"


@pytest.mark.parametrize(
    ("environ", "preserve", "expected"),
    [
        ({}, 0, ()),
        ({}, 2, (3, 4)),
        ({"PMI_FD": "7"}, 1, (3, 7)),
        ({"PMI_FD": "2"}, 0, ()),
        ({"PMI_FD": "-1"}, 0, ()),
        ({"PMI_FD": "x"}, 0, ()),
        ({"PMI_FD": "99999999999999"}, 0, ()),
        ({"LISTEN_FDS": "2", "LISTEN_PID": "42"}, 0, (3, 4)),
        ({"LISTEN_FDS": "2"}, 0, (3, 4)),
        ({"LISTEN_FDS": "2", "LISTEN_PID": "43"}, 0, ()),
        ({"LISTEN_FDS": "x", "LISTEN_PID": "42"}, 0, ()),
    ],
)
def test_descriptors_to_pass_on(
    environ: dict[str, str], preserve: int, expected: tuple[int, ...]
) -> None:
    assert plan_descriptors(environ, 42, preserve) == expected


def test_hooks_facts_are_variables_in_configuration_files() -> None:
    plan = plan_of()
    variables = host_variables(plan, "/rootfs", pid=77)
    assert variables["TERM"] == "xterm"
    assert variables["ENROOT_WORKDIR"] == "/run/me/enroot"
    assert variables["ENROOT_ENVIRON"] == "/run/me/enroot/environment"
    assert variables["ENROOT_MOUNTS"] == "/run/me/enroot/fstab"
    assert (variables["ENROOT_PID"], variables["ENROOT_ROOTFS"]) == ("77", "/rootfs")


def test_mounts_come_in_the_order_of_files_then_namespaces() -> None:
    texts = (("a", "/a /a none bind 0 -1\n${HOME} /h none bind"), ("b", "/b /b none bind 0 -1"))
    plan = plan_of(unshare_pid=True, unshare_net=True)
    mounts = plan_mounts(texts, plan, {"HOME": "/home/me"})
    before = [(mount.source, mount.target) for mount in mounts_of_pass(mounts, BEFORE_HOOKS)]
    assert before == [
        ("/a", "/a"), ("/b", "/b"),
        ("none", "/proc"), ("proc", "/proc"), ("none", "/sys"), ("sysfs", "/sys"),
    ]  # fmt: skip
    assert [mount.source for mount in mounts_of_pass(mounts, AFTER_HOOKS)] == ["/home/me"]
    assert len(plan_mounts(texts, plan_of(), {})) == 3
