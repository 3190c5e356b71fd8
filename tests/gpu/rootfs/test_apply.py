"""Carrying injections out: mounts, /proc, sysfs, /dev, and no program run."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from enroot_py.errors import DeviceError, KernelError
from enroot_py.gpu.injection import Bind, Device, Injection, Library, Link, Program, Text
from enroot_py.gpu.rootfs.apply import Target, apply_injection
from enroot_py.gpu.rootfs.attach import Attacher
from enroot_py.linux.kernel import Kernel
from tests.gpu.containers import tree
from tests.gpu.namespaces import in_namespaces
from tests.roots.shared_objects import write_stub

pytestmark = pytest.mark.kernel

OWN = "run/enroot/gpu"


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """An almost empty rootfs, and a folder for work."""
    root = tmp_path / "box"
    for name in ("run", "etc", "usr/bin", "proc", "sys", "dev", "tmp"):
        (root / name).mkdir(parents=True)
    (tmp_path / "work").mkdir()
    return root


def target(kernel: Kernel, box: Path, **options: object) -> Target:
    """Mount what a start mounts before the hooks run, as far as it matters here."""
    work = str(box.parent / "work")
    kernel.mount("tmpfs", work, "tmpfs", 0, "mode=700")
    kernel.mount("tmpfs", str(box / "run"), "tmpfs", 0, "mode=755")
    return Target(kernel, str(box), work, {}, "x86_64", **options)  # type: ignore[arg-type]


def flags(path: Path) -> set[str]:
    """The options of the mount that is on top at a path."""
    best = ""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            fields = line.split(" ")
            if fields[4] == str(path):
                best = fields[5]
    return set(best.split(","))


@pytest.mark.parametrize("modern", [True, False], ids=["new calls", "old calls"])
def test_flags_of_the_source_stay_and_ours_are_added(box: Path, modern: bool) -> None:
    """Both ways of mounting, on a source whose flags are locked: they came with the namespace."""
    (box.parent / "source").mkdir()

    def run(kernel: Kernel) -> tuple[str, set[str], bool]:
        source = box.parent / "source"
        kernel.mount("tmpfs", str(source), "tmpfs", 2 | 4 | 8)
        (source / "file").write_text("content")

        def inner(second: Kernel) -> tuple[str, set[str], bool]:
            bind = Bind(str(source / "file"), "/usr/share/x", "test", required=True)
            attacher = Attacher(second, modern=modern)
            apply_injection(Injection(binds=(bind,)), target(second, box, ephemeral=True), attacher)
            place = box / "usr/share/x"
            return place.read_text(), flags(place), attacher.modern

        return in_namespaces(inner)

    content, found, still = in_namespaces(run)
    assert content == "content"
    assert {"ro", "nosuid", "nodev", "noexec"} <= found
    assert still == modern


def test_an_old_kernel_is_found_out(box: Path) -> None:
    class OldKernel(Kernel):
        def open_tree(self, path: str, flags: int) -> int:
            raise KernelError("open_tree", errno.ENOSYS, path)

    def run(kernel: Kernel) -> tuple[bool, set[str]]:
        del kernel
        old = OldKernel()
        attacher = Attacher(old)
        bind = Bind("/etc/hosts", "/etc/hosts", "test", required=True)
        apply_injection(Injection(binds=(bind,)), target(old, box, ephemeral=True), attacher)
        return attacher.modern, flags(box / "etc/hosts")

    modern, found = in_namespaces(run)
    assert not modern and {"ro", "nosuid", "nodev"} <= found


def test_something_required_that_cannot_be_stops_the_start(box: Path) -> None:
    (box / "usr/bin/x").mkdir()

    def run(kernel: Kernel) -> str:
        bind = Bind("/etc/hosts", "/usr/bin/x/../x", "test", required=True)
        try:
            apply_injection(Injection(binds=(bind,)), target(kernel, box, ephemeral=True))
        except DeviceError as error:
            return str(error)
        return ""

    # A file cannot be bound on a folder.
    assert "/usr/bin/x" in in_namespaces(run)


def test_a_device_that_vanished_meanwhile(box: Path) -> None:
    def run(kernel: Kernel) -> str:
        bind = Bind("/missing", "/usr/bin/x", "test", required=True)
        try:
            apply_injection(Injection(binds=(bind,)), target(kernel, box, ephemeral=True))
        except DeviceError as error:
            return str(error)
        return ""

    assert "/missing" in in_namespaces(run)


def test_links_and_texts_of_an_ephemeral_rootfs(box: Path) -> None:
    def run(kernel: Kernel) -> tuple[str, str]:
        injection = Injection(
            links=(Link("/a/b/c", "target", "test"),),
            texts=(Text("/etc/nvidia/x.conf", "content\n", "test"),),
        )
        apply_injection(injection, target(kernel, box, ephemeral=True))
        mode = (box / "a/b").stat().st_mode & 0o777
        assert mode == 0o755, oct(mode)
        return os.readlink(box / "a/b/c"), (box / "etc/nvidia/x.conf").read_text()

    assert in_namespaces(run) == ("target", "content\n")


def sixty_files(folder: Path) -> Injection:
    """45 libraries, ten programs and five other files."""
    libraries = []
    for number in range(45):
        path = folder / f"libnvidia-x{number}.so.580.1"
        write_stub(path, f"libnvidia-x{number}.so.1")
        libraries.append(Library(str(path), f"libnvidia-x{number}.so.1", "compute", (path.name,)))
    programs = []
    for number in range(10):
        path = folder / f"nvidia-p{number}"
        path.write_text("#!/bin/sh\n")
        programs.append(Program(str(path), f"/usr/bin/{path.name}", "driver program"))
    binds = []
    for number in range(5):
        path = folder / f"config{number}"
        path.write_text("x")
        binds.append(Bind(str(path), f"/run/config{number}", "configuration"))
    return Injection(libraries=tuple(libraries), programs=tuple(programs), binds=tuple(binds))


def test_sixty_files_run_no_program_and_leave_nothing(box: Path, tmp_path: Path) -> None:
    injection = sixty_files(tmp_path / "driver")
    (box / "etc/ld.so.cache").write_bytes(Path("/etc/ld.so.cache").read_bytes())
    before = tree(box)

    def run(kernel: Kernel) -> tuple[list[str], int]:
        events: list[str] = []
        watched = ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")
        watched += ("subprocess.Popen", "pty.spawn")
        sys.addaudithook(lambda name, _: events.append(name) if name in watched else None)
        apply_injection(injection, target(kernel, box))
        return events, len(os.listdir(box / OWN / "lib64"))

    events, count = in_namespaces(run)
    assert events == []
    assert count == 90
    assert tree(box) == before


def test_our_folder_is_read_only(box: Path, tmp_path: Path) -> None:
    injection = sixty_files(tmp_path / "driver")

    def run(kernel: Kernel) -> int | None:
        apply_injection(injection, target(kernel, box))
        try:
            (box / OWN / "lib64/new").touch()
        except OSError as error:
            return error.errno
        return 0

    assert in_namespaces(run) == errno.EROFS


PARAMS = "A: 2\nModifyDeviceFiles: 1\nB: 3\n"


@pytest.mark.parametrize(
    ("mode", "gpus", "params"),
    [
        ("", ["0000:1b:00.0", "0000:2b:00.0"], PARAMS),
        ("params", ["0000:1b:00.0", "0000:2b:00.0"], PARAMS.replace("Files: 1", "Files: 0")),
        ("full", ["0000:2b:00.0"], PARAMS.replace("Files: 1", "Files: 0")),
    ],
)
def test_the_modes_of_proc(box: Path, mode: str, gpus: list[str], params: str) -> None:
    def run(kernel: Kernel) -> tuple[list[str], str, str, bool]:
        where = target(kernel, box)
        kernel.mount("tmpfs", str(box / "proc"), "tmpfs", 0, "mode=755")
        folder = box / "proc/driver/nvidia"
        for pci in ("0000:1b:00.0", "0000:2b:00.0"):
            (folder / "gpus" / pci).mkdir(parents=True)
            (folder / "gpus" / pci / "information").write_text(pci)
        (folder / "params").write_text(PARAMS)
        (folder / "version").write_text("NVRM")
        (folder / "secret").write_text("of the host")
        device = Device("/dev/null", "/dev/null", "test", required=False)
        injection = Injection(devices=(device,), proc=mode, proc_gpus=("0000:2b:00.0",))
        apply_injection(injection, where)
        found = sorted(os.listdir(folder / "gpus"))
        text = (folder / "gpus" / found[-1] / "information").read_text()
        return found, (folder / "params").read_text(), text, (folder / "secret").exists()

    found, text, information, secret = in_namespaces(run)
    assert (found, text, information) == (gpus, params, "0000:2b:00.0")
    assert secret == (mode != "full")


def test_a_class_of_sysfs_is_narrowed(box: Path) -> None:
    def run(kernel: Kernel) -> tuple[list[str], str, str, int | None]:
        where = target(kernel, box)
        kernel.mount("tmpfs", str(box / "sys"), "tmpfs", 0, "mode=755")
        folder = box / "sys/class/infiniband_verbs"
        folder.mkdir(parents=True)
        for name in ("uverbs0", "uverbs1"):
            (folder / name).mkdir()
        (folder / "abi_version").write_text("6\n")
        classes = (
            ("/sys/class/infiniband_verbs", (("uverbs1", "/sys/devices/x/uverbs1"),)),
            ("/sys/class/infiniband_cm", ()),
        )
        apply_injection(Injection(sysfs_classes=classes), where)
        try:
            (folder / "new").touch()
        except OSError as error:
            closed = error.errno
        return (
            sorted(os.listdir(folder)),
            os.readlink(folder / "uverbs1"),
            (folder / "abi_version").read_text(),
            closed,
        )

    names, link, version, closed = in_namespaces(run)
    assert names == ["abi_version", "uverbs1"]
    assert (link, version, closed) == ("/sys/devices/x/uverbs1", "6\n", errno.EROFS)


def test_dev_is_built_anew_without_what_is_hidden(box: Path) -> None:
    """Nested folders, links, a node to add, and nodes to hide."""

    def run(kernel: Kernel) -> tuple[dict[str, list[str]], str, bool]:
        where = target(kernel, box)
        dev = box / "dev"
        kernel.mount("tmpfs", str(dev), "tmpfs", 0, "mode=755")
        for folder in ("dri/by-path", "shm", "pts"):
            (dev / folder).mkdir(parents=True)
        for name in ("nvidia0", "nvidia1", "nvidiactl", "dri/card0", "dri/card1", "null"):
            (dev / name).touch()
            kernel.mount("/dev/null", str(dev / name), "", 4096)
        (dev / "dri/by-path/pci-0-card").symlink_to("../card0")
        (dev / "dri/by-path/pci-1-card").symlink_to("../card1")
        (dev / "fd").symlink_to("/proc/self/fd")
        (dev / "shm/file").write_text("kept")
        injection = Injection(
            devices=(
                Device("/dev/null", "/dev/nvidia1", "GPU 1"),
                Device("/dev/zero", "/dev/nvidia-caps/nvidia-cap1", "MIG"),
            ),
            links=(Link("/dev/dri/by-path/pci-2-card", "../card2", "test"),),
            hidden=("/dev/nvidia0", "/dev/dri/card0", "/dev/dri/by-path/pci-0-card"),
        )
        apply_injection(injection, where)
        found = {
            folder: sorted(os.listdir(dev / folder))
            for folder in (".", "dri", "dri/by-path", "nvidia-caps", "shm")
        }
        with open(dev / "null", "a", encoding="ascii") as file:
            file.write("x")
        return found, (dev / "shm/file").read_text(), os.path.ismount(dev)

    found, kept, mounted = in_namespaces(run)
    assert found == {
        ".": ["dri", "fd", "null", "nvidia-caps", "nvidia1", "nvidiactl", "pts", "shm"],
        "dri": ["by-path", "card1"],
        "dri/by-path": ["pci-1-card", "pci-2-card"],
        "nvidia-caps": ["nvidia-cap1"],
        "shm": ["file"],
    }
    assert (kept, mounted) == ("kept", True)


def test_what_was_hidden_does_not_come_back_by_unmounting(box: Path) -> None:
    def run(kernel: Kernel) -> list[str]:
        where = target(kernel, box)
        dev = box / "dev"
        kernel.mount("tmpfs", str(dev), "tmpfs", 0, "mode=755")
        for name in ("nvidia0", "null"):
            (dev / name).touch()
        apply_injection(Injection(hidden=("/dev/nvidia0",)), where)
        kernel.umount(str(dev), 2)
        return os.listdir(dev)

    assert in_namespaces(run) == []


def test_a_cache_that_cannot_be_written_is_an_error_and_leaves_nothing(
    box: Path, tmp_path: Path
) -> None:
    """The rootfs is to stay writable, but its file system is full."""
    injection = sixty_files(tmp_path / "driver")
    content = Path("/etc/ld.so.cache").read_bytes()

    def run(kernel: Kernel) -> tuple[str, list[str]]:
        kernel.mount(
            "tmpfs", str(box / "etc"), "tmpfs", 0, f"size={len(content) // 4096 * 4096 + 8192}"
        )
        (box / "etc/ld.so.cache").write_bytes(content)
        try:
            apply_injection(injection, target(kernel, box, writable=True))
        except DeviceError as error:
            return str(error), os.listdir(box / "etc")
        return "", []

    message, names = in_namespaces(run)
    assert "/etc/ld.so.cache" in message and "No space left" in message
    assert names == ["ld.so.cache"]


def test_terminals_stay_usable_where_new_ones_are_forbidden(box: Path) -> None:
    class Strict(Kernel):
        def mount(self, source: str, target: str, fstype: str, flags: int, data: str = "") -> None:
            if fstype == "devpts":
                raise KernelError("mount", errno.EPERM, target)
            super().mount(source, target, fstype, flags, data)

    def run(kernel: Kernel) -> list[str]:
        where = target(kernel, box)._replace(kernel=Strict())
        dev = box / "dev"
        kernel.mount("tmpfs", str(dev), "tmpfs", 0, "mode=755")
        (dev / "pts").mkdir()
        (dev / "pts/7").touch()
        (dev / "nvidia0").touch()
        apply_injection(Injection(hidden=("/dev/nvidia0",)), where)
        return os.listdir(dev / "pts")

    assert in_namespaces(run) == ["7"]
