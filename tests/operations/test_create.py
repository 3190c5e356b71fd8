"""`create`: an image becomes a container, whole or not at all."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from enroot_py.errors import (
    BusyError,
    EnrootError,
    ExistsError,
    InvalidNameError,
    NotFoundError,
    SettingsError,
    SpaceError,
    SquashfsError,
    StoreError,
    UsageError,
)
from enroot_py.operations.create import create
from enroot_py.settings import Settings, load_settings
from tests.squashfs.trees import Item, write_image

ITEMS = [
    Item(b"etc", stat.S_IFDIR, mode=0o755),
    Item(b"etc/rc", content=b'exec "$@"\n'),
    Item(b"read-only", stat.S_IFDIR, mode=0o555),
    Item(b"read-only/file", content=b"content", mode=0o400),
]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return write_image(tmp_path / "debian+12.sqsh", ITEMS)


def settings_for(folder: Path, **more: str) -> Settings:
    environ = {"HOME": str(folder), "ENROOT_DATA_PATH": str(folder / "data")}
    environ |= {"ENROOT_MAX_PROCESSORS": "2", "ENROOT_SYSCONF_PATH": str(folder / "none"), **more}
    return load_settings(environ)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_for(tmp_path)


def test_container_has_the_files_of_the_image(image: Path, settings: Settings) -> None:
    path = create(str(image), "box", settings=settings)
    assert path == f"{settings.data_path}/box"
    assert Path(path, "etc/rc").read_bytes() == b'exec "$@"\n'
    # Owner bits are widened: an ordinary user must be able to remove and to export it.
    assert stat.S_IMODE(os.stat(f"{path}/read-only").st_mode) == 0o755
    assert stat.S_IMODE(os.stat(settings.data_path).st_mode) == 0o700
    assert os.listdir(settings.data_path) == ["box"]


@pytest.mark.parametrize(
    ("file_name", "expected"),
    [("ubuntu+22.04.sqsh", "ubuntu+22.04"), ("plain", "plain"), ("a.squashfs", "a.squashfs")],
)
def test_default_name_is_the_images(
    tmp_path: Path, settings: Settings, file_name: str, expected: str
) -> None:
    image = write_image(tmp_path / file_name, ITEMS)
    assert create(str(image), settings=settings) == f"{settings.data_path}/{expected}"


def test_default_name_is_that_of_the_file_a_link_leads_to(
    tmp_path: Path, image: Path, settings: Settings
) -> None:
    (tmp_path / "latest.sqsh").symlink_to(image)
    assert create(str(tmp_path / "latest.sqsh"), settings=settings).endswith("/debian+12")


@pytest.mark.parametrize("name", ["a/b", "../x", "..", ".hidden", "-n", "a b", "x" * 300])
def test_name_that_no_container_can_have(image: Path, settings: Settings, name: str) -> None:
    with pytest.raises(InvalidNameError):
        create(str(image), name, settings=settings)
    assert not os.path.exists(settings.data_path)


def test_what_is_no_image(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "text").write_text("no image")
    cases: list[tuple[str, type[EnrootError], str]] = [
        (str(tmp_path / "missing"), NotFoundError, "No such file or directory"),
        (str(tmp_path / "text"), SquashfsError, "Not a squashfs image"),
        (str(tmp_path), SquashfsError, "Not a regular file"),
        ("", UsageError, "Nothing to create"),
    ]
    for path, error, message in cases:
        with pytest.raises(error, match=message):
            create(path, settings=settings)
    assert not os.path.exists(settings.data_path)


def test_existing_container_is_kept(image: Path, settings: Settings) -> None:
    path = create(str(image), "box", settings=settings)
    Path(path, "mine").write_text("data")
    with pytest.raises(ExistsError, match="already exists") as caught:
        create(str(image), "box", settings=settings)
    assert "--force" in caught.value.hint
    assert Path(path, "mine").read_text() == "data"


@pytest.mark.parametrize("by_setting", [False, True])
def test_existing_container_is_replaced_when_asked(
    tmp_path: Path, image: Path, settings: Settings, by_setting: bool
) -> None:
    path = create(str(image), "box", settings=settings)
    Path(path, "mine").write_text("data")
    os.chmod(path, 0o500)
    if by_setting:
        create(str(image), "box", settings=settings_for(tmp_path, ENROOT_FORCE_OVERRIDE="y"))
    else:
        create(str(image), "box", settings=settings, force=True)
    assert sorted(os.listdir(path)) == ["etc", "read-only"]
    assert os.listdir(settings.data_path) == ["box"]


def test_container_is_replaced_only_by_a_complete_one(
    tmp_path: Path, image: Path, settings: Settings
) -> None:
    path = create(str(image), "box", settings=settings)
    Path(path, "mine").write_text("data")
    damaged = write_image(tmp_path / "damaged", [Item(b"f", content=b"text " * 50_000)])
    data = bytearray(damaged.read_bytes())
    data[100:300] = bytes(200)
    damaged.write_bytes(data)
    with pytest.raises(SquashfsError, match="Damaged"):
        create(str(damaged), "box", settings=settings, force=True)
    assert Path(path, "mine").read_text() == "data"
    with pytest.raises(SquashfsError, match="Damaged"):
        create(str(damaged), "other", settings=settings)
    assert os.listdir(settings.data_path) == ["box"]


def test_more_entries_than_the_settings_allow(tmp_path: Path, image: Path) -> None:
    settings = settings_for(tmp_path, ENROOT_MAX_IMAGE_ENTRIES="3")
    with pytest.raises(EnrootError, match="More than 3 entries"):
        create(str(image), settings=settings)


def _create_quietly(image: str, data: str, results: multiprocessing.SimpleQueue[str]) -> None:
    try:
        create(image, "box", settings=settings_for(Path(data)))
    except ExistsError:
        results.put("exists")
    else:
        results.put("made")


def test_one_of_many_wins(tmp_path: Path, image: Path, settings: Settings) -> None:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.SimpleQueue[str] = context.SimpleQueue()
    workers = [
        context.Process(target=_create_quietly, args=(str(image), str(tmp_path), results))
        for _ in range(8)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(results.get() for _ in workers) == ["exists"] * 7 + ["made"]
    assert os.listdir(settings.data_path) == ["box"]


STOPPED_CREATE = """
import os, signal, sys
from enroot_py.operations.create import create

def stop(event, arguments):
    if event == "open" and arguments[0] in ("f02500", b"f02500"):
        os.killpg(0, signal.SIGSTOP)

sys.addaudithook(stop)
create(sys.argv[1], "box")
"""
"""Creates a container, and stops with all its processes when it comes to one of the files."""


def test_what_a_killed_create_leaves_is_removed_by_the_next(
    tmp_path: Path, settings: Settings
) -> None:
    items = [Item(b"f%05d" % number, content=b"%d" % number * 999) for number in range(5000)]
    image = write_image(tmp_path / "image", items, "-comp lz4")
    environ = {**os.environ, "ENROOT_DATA_PATH": settings.data_path, "HOME": str(tmp_path)}
    command = [sys.executable, "-c", STOPPED_CREATE, str(image)]
    process = subprocess.Popen(command, env=environ, start_new_session=True)
    assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
    process.send_signal(signal.SIGKILL)
    os.killpg(process.pid, signal.SIGCONT)
    process.wait()
    # The processes that shared the work have the lock until they see that they are alone.
    (lock,) = Path(settings.data_path).glob(".enroot.*.lock")
    with open(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    assert not os.path.exists(f"{settings.data_path}/box")
    assert os.listdir(settings.data_path) != []
    create(str(image), "box", settings=settings)
    assert os.listdir(settings.data_path) == ["box"]
    assert len(os.listdir(f"{settings.data_path}/box")) == 5000


def test_a_low_limit_on_open_files_is_enough(image: Path, settings: Settings) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
    try:
        create(str(image), "box", settings=settings)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.root
def test_little_memory_is_enough_whatever_the_number_of_processors(
    tmp_path: Path, settings: Settings, memory_group: Path
) -> None:
    """enroot#224."""
    items = [Item(b"f%d" % at, content=os.urandom(4 << 20)) for at in range(30)]
    image = write_image(tmp_path / "large.sqsh", items)
    code = "import sys; from enroot_py.cli.main import main; sys.exit(main())"
    join = f'echo $$ > {memory_group}/cgroup.procs; exec "$@"'
    for processors in ("2", "128"):
        done = subprocess.run(
            ["sh", "-c", join, "sh", sys.executable, "-c", code,
             "create", "-n", f"box{processors}", str(image)],
            env={
                **os.environ, "ENROOT_DATA_PATH": settings.data_path,
                "ENROOT_MAX_PROCESSORS": processors,
            },
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert len(os.listdir(f"{settings.data_path}/box{processors}")) >= len(items)


@pytest.mark.root
def test_container_in_use_is_not_replaced(image: Path, settings: Settings) -> None:
    path = create(str(image), "box", settings=settings)
    pid = os.fork()
    if not pid:
        os.chroot(path)
        signal.pause()
        os._exit(0)
    try:
        while os.stat(f"/proc/{pid}/root").st_ino != os.stat(path).st_ino:
            time.sleep(0.001)
        with pytest.raises(BusyError, match="in use"):
            create(str(image), "box", settings=settings, force=True)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    create(str(image), "box", settings=settings, force=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "none", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.root
def test_full_disk_is_named_and_left_clean(tmp_path: Path, small_disk: Path) -> None:
    items = [Item(b"big%d" % number, content=os.urandom(6 << 20)) for number in range(5)]
    image = write_image(tmp_path / "image", items)
    settings = settings_for(small_disk)
    with pytest.raises(SpaceError, match=f"{small_disk}.* \\(tmpfs") as caught:
        create(str(image), "box", settings=settings)
    assert "ENROOT_DATA_PATH" in caught.value.hint
    assert os.listdir(settings.data_path) == []
    small = write_image(tmp_path / "small-image", ITEMS)
    create(str(small), "box", settings=settings)


@pytest.mark.root
def test_read_only_disk_is_named(tmp_path: Path, image: Path, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises((StoreError, SettingsError), match="Read-only file system"):
        create(str(image), "box", settings=settings_for(small_disk))
