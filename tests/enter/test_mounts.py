"""Mount entries, carried out: which system calls with what. Order and flags as enroot-mount.c's."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from enroot_py import log
from enroot_py.enter.mounts import Mounter
from enroot_py.errors import KernelError
from enroot_py.plan.fstab import Mount, parse_mount
from enroot_py.plan.mount_options import (
    MS_BIND,
    MS_MOVE,
    MS_NOATIME,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_RELATIME,
    MS_REMOUNT,
    MS_SILENT,
    MS_SLAVE,
)
from tests.fakes import RecordingKernel
from tests.this_process import open_files


class Box:
    def __init__(self, folder: Path) -> None:
        self.kernel = RecordingKernel()
        self.rootfs = folder / "rootfs"
        self.source = folder / "source"
        self.rootfs.mkdir()
        self.source.mkdir()
        (folder / "file").write_text("host")
        self.file = folder / "file"

    def apply(self, *mounts: Mount | str, locked: bool = False) -> list[tuple[object, ...]]:
        """Perform mounts; return the calls of mount(2) with paths of the rootfs made relative."""
        with Mounter(self.kernel, str(self.rootfs), locked=locked) as mounter:
            mounter.apply(
                parse_mount(mount) if isinstance(mount, str) else mount for mount in mounts
            )
        return [self.relative(call) for call in self.kernel.called("mount")]

    def relative(self, call: tuple[object, ...]) -> tuple[object, ...]:
        source, target, *rest = map(self.shorten, call)
        return (source, target, *rest)

    def shorten(self, value: object) -> object:
        if isinstance(value, str) and value.startswith(str(self.rootfs)):
            return "ROOT" + value[len(str(self.rootfs)) :]
        return value


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def entry(source: object, target: str, options: str = "", fstype: str = "none") -> Mount:
    return Mount(str(source), target, fstype, tuple(filter(None, options.split(","))))


def test_a_plain_bind_is_one_call(box: Box) -> None:
    (box.rootfs / "mnt").mkdir()
    calls = box.apply(entry(box.source, "/mnt", "bind"))
    assert calls == [(str(box.source), "ROOT/mnt", "", MS_BIND, "")]


def test_a_read_only_bind_is_remounted(box: Box) -> None:
    calls = box.apply(entry(box.source, "/mnt", "x-create=dir,rbind,ro,nosuid"))
    flags = MS_BIND | MS_REC | MS_RDONLY | MS_NOSUID
    assert calls == [
        (str(box.source), "ROOT/mnt", "", flags, ""),
        ("", "ROOT/mnt", "", flags | MS_REMOUNT, ""),
    ]


def test_propagation_is_a_call_of_its_own_and_does_not_make_a_bind_recursive(box: Box) -> None:
    calls = box.apply(entry(box.source, "/mnt", "x-create=dir,bind,rslave,silent"))
    assert [call[3] for call in calls] == [
        MS_BIND | MS_SILENT,
        MS_BIND | MS_SILENT | MS_REMOUNT,
        MS_SLAVE | MS_REC | MS_SILENT,
    ]
    box.kernel.calls.clear()
    calls = box.apply(entry(box.source, "/mnt", "rbind,private"))
    assert [call[3] for call in calls] == [MS_BIND | MS_REC, MS_PRIVATE]


def test_propagation_alone_mounts_nothing(box: Box) -> None:
    calls = box.apply(entry("none", "/", "rslave"))
    assert calls == [("", "ROOT", "", MS_SLAVE | MS_REC, "")]


def test_a_file_system_gets_its_flags_and_data(box: Box) -> None:
    mount = entry("tmpfs", "/a/b", "x-create=dir,rw,nosuid,nodev,mode=755,size=1m,slave", "tmpfs")
    assert box.apply(mount) == [
        ("tmpfs", "ROOT/a/b", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m"),
        ("", "ROOT/a/b", "", MS_SLAVE, ""),
    ]


def test_moving_and_detaching(box: Box) -> None:
    (box.rootfs / "from").mkdir()
    calls = box.apply(
        entry(f"{box.rootfs}/from", "/to", "x-create=dir,x-move"),
        entry("none", "/to", "x-detach"),
    )
    assert calls == [("ROOT/from", "ROOT/to", "", MS_MOVE, "")]
    assert box.kernel.called("umount") == [(f"{box.rootfs}/to", 2)]


def test_a_remount_needs_no_source(box: Box) -> None:
    (box.rootfs / "mnt").mkdir()
    calls = box.apply(entry("none", "/mnt", "remount,bind,ro"))
    assert calls == [("none", "ROOT/mnt", "", MS_REMOUNT | MS_BIND | MS_RDONLY, "")]


@pytest.mark.parametrize("locked", [True, False])
def test_flags_that_the_host_set_are_kept_in_a_user_namespace(box: Box, locked: bool) -> None:
    (box.rootfs / "mnt").mkdir()
    kept = os.statvfs("/proc").f_flag
    assert kept & os.ST_RELATIME
    expected = MS_RELATIME if locked else 0
    for name in ("NOSUID", "NODEV", "NOEXEC", "RDONLY", "NOATIME", "NODIRATIME"):
        expected |= kept & getattr(os, f"ST_{name}") if locked else 0
    calls = box.apply(entry("/proc", "/mnt", "rbind"), locked=locked)
    assert [call[3] for call in calls] == (
        [MS_BIND | MS_REC | expected, MS_BIND | MS_REC | expected | MS_REMOUNT]
        if locked
        else [MS_BIND | MS_REC]
    )


def test_kept_flags_are_numbers_of_the_same_meaning() -> None:
    pairs = {
        os.ST_NOSUID: MS_NOSUID, os.ST_NODEV: MS_NODEV, os.ST_NOEXEC: MS_NOEXEC,
        os.ST_RDONLY: MS_RDONLY, os.ST_NOATIME: MS_NOATIME,
    }  # fmt: skip
    assert all(key == value for key, value in pairs.items())
    assert os.ST_RELATIME == 4096


@pytest.mark.parametrize(
    ("options", "source", "kind"),
    [
        ("x-create=auto,bind", "folder", stat.S_IFDIR),
        ("x-create=auto,bind", "file", stat.S_IFREG),
        ("x-create=auto", "name", stat.S_IFDIR),
        ("x-create=dir,bind", "folder", stat.S_IFDIR),
        ("x-create=file,bind", "file", stat.S_IFREG),
        ("x-create=file,x-create=dir,bind", "file", stat.S_IFREG),
    ],
)
def test_targets_are_made_to_fit(box: Box, options: str, source: str, kind: int) -> None:
    sources = {"folder": str(box.source), "file": str(box.file), "name": "none"}
    box.apply(
        entry(sources[source], "/new/target", options, "none" if source != "name" else "tmpfs")
    )
    made = os.lstat(box.rootfs / "new/target")
    assert stat.S_IFMT(made.st_mode) == kind
    assert stat.S_IMODE(made.st_mode) == 0


def test_a_source_that_is_a_fifo_is_not_waited_for(box: Box) -> None:
    os.mkfifo(box.source / "fifo")
    calls = box.apply(entry(f"{box.source}/fifo", "/mnt", "x-create=auto,bind"))
    assert calls == [(f"{box.source}/fifo", "ROOT/mnt", "", MS_BIND, "")]
    assert stat.S_ISREG(os.lstat(box.rootfs / "mnt").st_mode)


def test_a_source_that_is_swapped_stays_what_was_opened(box: Box) -> None:
    """Whatever takes the source's name after it was opened is not what gets mounted."""

    class Swapping(RecordingKernel):
        def mount(self, source: str, target: str, fstype: str, flags: int, data: str = "") -> None:
            if not self.calls:
                os.rename(box.source, f"{box.source}.opened")
                os.symlink("/etc", box.source)
            super().mount(source, target, fstype, flags, data)

    box.kernel = Swapping()
    calls = box.apply(entry(box.source, "/mnt", "x-create=dir,bind"))
    assert calls[0][0] == f"{box.source}.opened"


def test_a_missing_target_is_named(box: Box) -> None:
    with pytest.raises(KernelError) as caught:
        box.apply(entry(box.source, "/mnt", "bind"))
    assert str(box.source) in str(caught.value) and "/mnt" in str(caught.value)
    assert "x-create" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "code", "remedy"),
    [
        ("/data:/mnt:ro", errno.EINVAL, "/data:/mnt:ro,rbind"),
        ("/data:/mnt:rro", errno.ENODEV, "rro: "),
    ],
)
def test_options_that_make_no_mount_come_with_those_that_do(
    box: Box, text: str, code: int, remedy: str
) -> None:
    class Refusing(RecordingKernel):
        def mount(self, *_: object) -> None:
            raise KernelError("mount", code, "")

    box.kernel = Refusing()
    (box.rootfs / "mnt").mkdir()
    with pytest.raises(KernelError) as caught:
        box.apply(text)
    assert remedy in caught.value.hint


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ("bind,roo", ["roo"]),
        ("rbind,ro,mode=7,x-site=1,_netdev,comment=a,nofail", ["mode=7"]),
        ("bind,roo,silent", []),
    ],
)
def test_an_option_that_a_bind_mount_does_not_have_is_named(
    box: Box, options: str, warned: list[str]
) -> None:
    (box.rootfs / "mnt").mkdir()
    told: list[str] = []
    log.set_sink(lambda level, text: told.append(f"{level} {text}"))
    try:
        box.apply(entry(box.source, "/mnt", options))
    finally:
        log.set_sink(None)
    assert [line.split()[4] for line in told] == warned


def test_a_missing_source_is_named_and_its_target_not_made(box: Box) -> None:
    with pytest.raises(KernelError) as caught:
        box.apply(entry("/nonexistent/x", "/mnt", "x-create=dir,bind"))
    assert "/nonexistent/x at /mnt" in str(caught.value)
    assert "/nonexistent/x is not there" in caught.value.hint
    assert not (box.rootfs / "mnt").exists()


def test_a_source_in_the_rootfs_cannot_leave_it(box: Box) -> None:
    """A volume: ${ENROOT_ROOTFS}/PATH, where PATH and its links come from the image."""
    (box.rootfs / "vol").symlink_to(box.source)
    (box.rootfs / "etc").mkdir()
    for volume in ("/vol", "/../../../../../../etc", "/vol/.."):
        with pytest.raises(KernelError):
            box.apply(entry(f"{box.rootfs}{volume}", "/mnt", "bind"))
    (box.rootfs / "real").mkdir()
    (box.rootfs / "inner").symlink_to("/real")
    calls = box.apply(entry(f"{box.rootfs}/../inner", "/real", "bind"))
    assert calls == [("ROOT/real", "ROOT/real", "", MS_BIND, "")]
    calls = box.apply(entry(box.rootfs, "/real", "bind"))
    assert calls[-1] == ("ROOT", "ROOT/real", "", MS_BIND, "")


def test_a_missing_volume_is_made_to_be_used(box: Box) -> None:
    calls = box.apply(entry(f"{box.rootfs}/a/vol", "/a/vol", "x-create=dir,bind"))
    assert calls == [("ROOT/a/vol", "ROOT/a/vol", "", MS_BIND, "")]
    assert stat.S_IMODE(os.lstat(box.rootfs / "a/vol").st_mode) & 0o700 == 0o700
    with pytest.raises(KernelError):
        box.apply(entry(f"{box.rootfs}/missing", "/a/vol", "x-create=dir,bind"))
    assert not (box.rootfs / "missing").exists()


@pytest.mark.parametrize("name", ["proc", "sys", "dev", "etc", "tmp", "var"])
def test_a_target_that_is_a_link_to_the_host_stays_beneath_the_rootfs(box: Box, name: str) -> None:
    (box.rootfs / name).symlink_to(f"/{name}")
    (box.rootfs / "other").symlink_to("../../../../../../srv/elsewhere")
    with pytest.raises(KernelError) as caught:
        box.apply(entry(box.source, f"/{name}", "bind,x-create=dir"))
    assert caught.value.errno == errno.ELOOP
    calls = box.apply(entry(box.source, "/other/x", "bind,x-create=dir"))
    assert calls[-1][:2] == (str(box.source), "ROOT/srv/elsewhere/x")
    assert not os.path.lexists("/srv/elsewhere")


@pytest.mark.parametrize(
    ("options", "warnings"),
    [("nofail", 1), ("nofail,silent", 0), ("nofail,silent,loud", 1)],
)
def test_an_entry_may_fail(box: Box, options: str, warnings: int) -> None:
    lines: list[str] = []
    log.set_sink(lambda level, text: lines.append(f"{level} {text}"))
    try:
        calls = box.apply(
            entry("/nonexistent", "/mnt", f"bind,x-create=dir,{options}"),
            entry(box.source, "/mnt", "bind,x-create=dir"),
        )
    finally:
        log.set_sink(None)
    assert len(calls) == 1
    assert len(lines) == warnings
    assert all("WARN" in line and "/nonexistent at /mnt" in line for line in lines)


def test_a_refusal_of_the_kernel_names_both_ends(box: Box) -> None:
    box.kernel.refusals["mount"] = errno.EPERM
    with pytest.raises(KernelError, match="Cannot mount tmpfs at /mnt: Operation not permitted"):
        box.apply(entry("tmpfs", "/mnt", "x-create=dir", "tmpfs"))
    box.kernel.refusals["umount"] = errno.EINVAL
    with pytest.raises(KernelError, match="Cannot unmount /mnt"):
        box.apply(entry("none", "/mnt", "x-detach"))


def test_no_descriptor_is_left_open(box: Box) -> None:
    before = open_files()
    box.apply(
        entry(box.source, "/a/b", "x-create=dir,bind,ro,rslave"),
        entry(box.file, "/a/c", "x-create=auto,bind"),
        entry("/nonexistent", "/a/d", "bind,nofail,silent"),
    )
    assert open_files() == before
