from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from enroot_py.enter.mounts import Mounter
from enroot_py.enter.rootfs import RootfsMount, make_workdir, seal_rootfs
from enroot_py.errors import StoreError, UnsupportedError
from enroot_py.plan.mount_options import MS_BIND, MS_NODEV, MS_NOSUID, MS_RDONLY, MS_REC, MS_REMOUNT
from enroot_py.plan.start import RootfsSource, StartPlan
from tests.fakes import RecordingKernel
from tests.plan.start_plans import HOST, plan_of

SAFE = MS_NOSUID | MS_NODEV
ROOT = HOST._replace(uid=0, gid=0, euid=0, egid=0)


def plan_for(folder: Path, *, is_image: bool = False, superuser: bool = False) -> StartPlan:
    """Return a plan for a rootfs below a folder; a superuser's has no user namespace."""
    (folder / "run").mkdir(exist_ok=True)
    (folder / "box").mkdir(exist_ok=True)
    variables = {"ENROOT_RUNTIME_PATH": str(folder / "run")}
    variables |= {"ENROOT_ALLOW_SUPERUSER": "y"} if superuser else {}
    source = RootfsSource(str(folder / "box"), is_image=is_image)
    return plan_of(source, ROOT if superuser else HOST, variables)


def mount(kernel: RecordingKernel, plan: StartPlan, unpacked: str = "") -> Mounter:
    rootfs = RootfsMount(kernel, plan, server=None, unpack=lambda: unpacked)
    rootfs.begin()
    return rootfs.finish()


def test_a_folder_is_bound_to_itself_without_devices_and_setuid(tmp_path: Path) -> None:
    kernel = RecordingKernel()
    with mount(kernel, plan_for(tmp_path, superuser=True)) as mounter:
        box = mounter.rootfs
        assert box == str(tmp_path / "box")
    assert kernel.called("mount") == [
        ("tmpfs", str(tmp_path / "run"), "tmpfs", SAFE, "mode=700"),
        (box, box, "", MS_BIND, ""),
        ("", box, "", MS_BIND | MS_REMOUNT | SAFE, ""),
    ]


@pytest.mark.parametrize("superuser", [False, True])
def test_an_image_without_server_is_a_layer_below_one_in_memory(
    tmp_path: Path, superuser: bool
) -> None:
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir(mode=0o755)
    kernel = RecordingKernel()
    before = os.getcwd()
    with mount(
        kernel, plan_for(tmp_path, is_image=True, superuser=superuser), str(unpacked)
    ) as made:
        stack = f"{tmp_path}/run/overlay"
        assert made.rootfs == stack
    options = "lowerdir=lower,upperdir=upper,workdir=work,xino=off"
    options += "" if superuser else ",userxattr"
    assert kernel.called("mount")[1:] == [
        (str(unpacked), f"{stack}/lower", "", MS_BIND | MS_REC, ""),
        (str(unpacked), stack, "overlay", SAFE, options),
    ]
    assert os.getcwd() == before


@pytest.mark.parametrize("code", [errno.EPERM, errno.EINVAL, errno.ENODEV])
def test_a_kernel_that_cannot_overlay_is_explained(tmp_path: Path, code: int) -> None:
    class NoOverlay(RecordingKernel):
        def mount(self, source: str, target: str, fstype: str, flags: int, data: str = "") -> None:
            self.refusals = {"mount": code} if fstype == "overlay" else {}
            super().mount(source, target, fstype, flags, data)

    (tmp_path / "unpacked").mkdir()
    before = os.getcwd()
    with pytest.raises(UnsupportedError) as caught:
        mount(NoOverlay(), plan_for(tmp_path, is_image=True), str(tmp_path / "unpacked"))
    assert "Linux 5.11" in caught.value.hint and "enroot create" in caught.value.hint
    assert os.getcwd() == before


def test_sealing_makes_the_root_or_its_own_files_read_only(tmp_path: Path) -> None:
    kernel = RecordingKernel()
    with Mounter(kernel, str(tmp_path), locked=False) as mounter:
        seal_rootfs(mounter, writable=False)
        flags = MS_BIND | MS_REMOUNT | MS_RDONLY | SAFE
        assert kernel.calls == [("mount", "", str(tmp_path), "", flags, "")]
        kernel.calls.clear()
        seal_rootfs(mounter, writable=True)
        assert kernel.calls == []
        (tmp_path / ".lock").touch()
        (tmp_path / ".enroot").mkdir()
        seal_rootfs(mounter, writable=True)
        assert [call[1] for call in kernel.called("mount")] == [
            f"{tmp_path}/.enroot", f"{tmp_path}/.enroot", f"{tmp_path}/.enroot",
            f"{tmp_path}/.lock", f"{tmp_path}/.lock", f"{tmp_path}/.lock",
        ]  # fmt: skip


def test_the_runtime_folder_is_made_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "a/b"
    make_workdir(str(path), os.geteuid())
    make_workdir(str(path), os.geteuid())
    assert os.stat(path).st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["file", "below a file", "dangling link"])
def test_a_runtime_folder_that_cannot_be_is_named(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling link").symlink_to("nowhere/at/all")
    path = tmp_path / ("file/x" if kind == "below a file" else kind)
    with pytest.raises(StoreError) as caught:
        make_workdir(str(path), os.geteuid())
    assert str(path) in str(caught.value)
