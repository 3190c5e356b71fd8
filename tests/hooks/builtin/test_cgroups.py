"""The container's own cgroups at the hierarchies' roots: versions 1, 2 and hybrid."""

from __future__ import annotations

import pytest

from enroot_py.hooks.builtin import cgroups
from enroot_py.hooks.builtin.cgroups import find_hierarchies, plan_cgroups
from tests.hooks.contexts import Container

V2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw master:3 - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
50 23 0:50 / /with\\040blank rw - ext4 /dev/sda rw
99 31 0:32 / /elsewhere rw - cgroup cgroup rw,memory
"""


def plan(mountinfo: str, memberships: str, *, in_step: bool = False) -> list[tuple[str, str]]:
    mounts = plan_cgroups(memberships, find_hierarchies(mountinfo), in_step=in_step)
    assert all({"rbind", "ro", "x-create=dir"} <= set(mount.options) for mount in mounts)
    return [(mount.source, mount.target) for mount in mounts]


def test_hierarchies_by_controller() -> None:
    assert find_hierarchies(HYBRID) == {
        "rw": ("/", "/sys/fs/cgroup/cpu,cpuacct"),
        "cpu": ("/", "/sys/fs/cgroup/cpu,cpuacct"),
        "cpuacct": ("/", "/sys/fs/cgroup/cpu,cpuacct"),
        "memory": ("/docker/abc", "/sys/fs/cgroup/memory"),
        "xattr": ("/", "/sys/fs/cgroup/systemd"),
        "name=systemd": ("/", "/sys/fs/cgroup/systemd"),
        "": ("/", "/sys/fs/cgroup/unified"),
    }


@pytest.mark.parametrize(
    ("mountinfo", "memberships", "expected"),
    [
        (V2, "0::/\n", [("/sys/fs/cgroup", "/sys/fs/cgroup")]),
        (V2, "0::/user.slice/a b\n", [("/sys/fs/cgroup/user.slice/a b", "/sys/fs/cgroup")]),
        (V2, "0::/../sibling\n", [("/sys/fs/cgroup", "/sys/fs/cgroup")]),
        (V2, "", []),
        ("", "0::/\n4:memory:/x\n", []),
        (V2, "junk\n", []),
        (
            HYBRID,
            "4:memory:/docker/abc/job\n2:cpu,cpuacct:/x\n1:name=systemd:/\n9:pids:/\n0::/u:v\n",
            [
                ("/sys/fs/cgroup/memory/job", "/sys/fs/cgroup/memory"),
                ("/sys/fs/cgroup/cpu,cpuacct/x", "/sys/fs/cgroup/cpu,cpuacct"),
                ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/systemd"),
                ("/sys/fs/cgroup/unified/u:v", "/sys/fs/cgroup/unified"),
            ],
        ),
    ],
)
def test_each_hierarchy_shows_its_own_subtree(
    mountinfo: str, memberships: str, expected: list[tuple[str, str]]
) -> None:
    assert plan(mountinfo, memberships) == expected


@pytest.mark.parametrize(
    ("path", "inner"),
    [
        ("/slurm/job_7/step_0/user/task_0", "/slurm/job_7/step_0/user"),
        ("/slurm/job_7/step_0/user/task_special", "/slurm/job_7/step_0/user"),
        ("/slurm/job_7/step_0/slurm", "/slurm/job_7/step_0/slurm"),
        ("/", ""),
    ],
)
def test_a_task_of_a_step_sees_the_limits_of_the_step(path: str, inner: str) -> None:
    target = "/sys/fs/cgroup"
    assert plan(V2, f"0::{path}\n", in_step=True) == [(target + inner, target)]
    outside = target + path.rstrip("/")
    assert plan(V2, f"0::{path}\n", in_step=False) == [(outside, target)]


@pytest.mark.parametrize(
    ("mountinfo", "unshare_net", "folder"),
    [(V2, False, False), (V2, True, False), (HYBRID, False, False), (HYBRID, True, True)],
)
def test_a_fresh_sysfs_gets_a_folder_for_version_1(
    container: Container,
    monkeypatch: pytest.MonkeyPatch,
    mountinfo: str,
    unshare_net: bool,
    folder: bool,
) -> None:
    context = container.context(unshare_net=unshare_net)
    found = find_hierarchies(mountinfo)
    monkeypatch.setattr(cgroups, "find_hierarchies", lambda _: found)
    monkeypatch.setattr(cgroups.os.path, "isdir", lambda _: True)
    mounts = cgroups.run(context).mounts
    assert (mounts[0].fstype == "tmpfs") is folder
    assert mounts[-1].target == "/sys/fs/cgroup"
    assert {"remount", "ro", "nofail"} <= set(mounts[-1].options)
    assert len(mounts) > 1 + folder


def test_a_cgroup_that_cannot_be_seen_is_left_out(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "find_hierarchies", lambda _: {"": ("/", "/no/such")})
    assert len(cgroups.run(container.context()).mounts) == 1
