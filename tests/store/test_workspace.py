"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from enroot_py.errors import ExistsError, NotFoundError, SpaceError, StoreError
from enroot_py.store import workspace
from enroot_py.store.workspace import new_file, new_folder

WORDS = {"stage": "writing the image", "setting": "--output"}


@pytest.fixture(params=["unnamed", "named"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of making a file: without a name, and where the file system cannot do that."""
    if request.param == "named":
        # What a file system without O_TMPFILE answers; the kernel's own check is on flags, so an
        # impossible one stands in for it.
        monkeypatch.setattr(workspace.os, "O_TMPFILE", os.O_DIRECTORY | os.O_EXCL)
    return str(request.param)


def test_a_file_has_its_name_only_when_it_is_complete(tmp_path: Path, way: str) -> None:
    path = tmp_path / "image.sqsh"
    with new_file(str(path), **WORDS) as new:
        assert new.path == str(path)
        new.file.write(b"half")
        assert not path.exists()
        assert len(os.listdir(tmp_path)) == (1 if way == "named" else 0)
        new.file.write(b"whole")
    assert path.read_bytes() == b"halfwhole"
    assert os.listdir(tmp_path) == ["image.sqsh"]


def test_a_failure_leaves_nothing(tmp_path: Path, way: str) -> None:
    with pytest.raises(KeyboardInterrupt), new_file(str(tmp_path / "image"), **WORDS) as new:
        new.file.write(b"half")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "folder", "dangling link", "link to itself"])
def test_what_exists_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "image"
    if kind == "file":
        path.write_text("kept")
    elif kind == "folder":
        path.mkdir()
    elif kind == "dangling link":
        path.symlink_to(tmp_path / "taken")
        (tmp_path / "taken").touch()
    else:
        path.symlink_to("image")
    with pytest.raises(ExistsError), new_file(str(path), **WORDS):
        pytest.fail("the block ran")


def test_what_appears_meanwhile_is_not_replaced(tmp_path: Path, way: str) -> None:
    path = tmp_path / "image"
    with pytest.raises(ExistsError), new_file(str(path), **WORDS) as new:
        new.file.write(b"mine")
        path.write_text("theirs")
    assert path.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["image"]


def test_force_replaces_a_file_but_no_folder(tmp_path: Path, way: str) -> None:
    path = tmp_path / "image"
    path.write_text("old")
    with new_file(str(path), force=True, **WORDS) as new:
        new.file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    (tmp_path / "folder").mkdir()
    with pytest.raises(ExistsError), new_file(str(tmp_path / "folder"), force=True, **WORDS):
        pytest.fail("the block ran")
    assert sorted(os.listdir(tmp_path)) == ["folder", "image"]


def test_a_dangling_link_is_followed_to_where_it_points(tmp_path: Path, way: str) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to("store/image")
    with new_file(str(tmp_path / "link"), **WORDS) as new:
        new.file.write(b"x")
    assert (tmp_path / "store" / "image").read_bytes() == b"x"
    assert (tmp_path / "link").is_symlink()


def test_the_umask_counts(tmp_path: Path, way: str) -> None:
    before = os.umask(0o027)
    try:
        with new_file(str(tmp_path / "image"), **WORDS):
            pass
        with new_file(str(tmp_path / "private"), mode=0o600, **WORDS):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "image").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("folder", ["missing", "file"])
def test_a_file_needs_its_folder(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / folder / "image"
    with pytest.raises(NotFoundError, match=folder), new_file(str(path), **WORDS):
        pytest.fail("the block ran")


def test_a_killed_process_leaves_no_file_under_its_name(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from enroot_py.store.workspace import new_file\n"
        "with new_file(sys.argv[1], stage='', setting='') as new:\n"
        "    new.file.write(b'half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "image")], check=False)
    assert os.listdir(tmp_path) == []


def test_of_eight_writers_one_wins_and_the_file_is_whole(tmp_path: Path, way: str) -> None:
    path = tmp_path / "image"
    outcomes: list[str] = []
    together = threading.Barrier(8)

    def write(number: int) -> None:
        try:
            with new_file(str(path), **WORDS) as new:
                together.wait()
                new.file.write(bytes([number]) * 100_000)
            outcomes.append("won")
        except ExistsError:
            outcomes.append("exists")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["exists"] * 7 + ["won"]
    assert len(set(path.read_bytes())) == 1
    assert path.stat().st_size == 100_000
    assert os.listdir(tmp_path) == ["image"]


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, SpaceError),
        (errno.EDQUOT, SpaceError),
        (errno.EROFS, StoreError),
        (errno.EFBIG, StoreError),
        (errno.ESTALE, StoreError),
    ],
)
def test_errors_of_the_file_system_name_stage_path_and_setting(
    tmp_path: Path, number: int, kind: type[StoreError], way: str
) -> None:
    path = tmp_path / "image"
    with pytest.raises(kind) as caught, new_file(str(path), **WORDS):
        raise OSError(number, os.strerror(number))
    assert "writing the image" in str(caught.value)
    assert str(path) in str(caught.value)
    assert "--output" in caught.value.hint
    assert os.listdir(tmp_path) == []


@pytest.mark.kernel
def test_a_folder_that_is_not_writable_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        denied = pytest.raises(StoreError, match="Permission denied while writing")
        with denied, new_file(str(tmp_path / "image"), **WORDS):
            pytest.fail("the block ran")
    finally:
        tmp_path.chmod(0o755)


def test_a_folder_has_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "box"
    with new_folder(str(path), **WORDS) as new:
        assert os.listdir(new.unfinished) == []
        os.mkdir(os.path.join(new.unfinished, "etc"))
        assert not path.exists()
    assert os.listdir(path) == ["etc"]
    assert os.listdir(tmp_path) == ["box"]


@pytest.mark.parametrize("mode", [0o000, 0o111, 0o555])
def test_a_root_folder_of_any_mode_can_appear(tmp_path: Path, mode: int) -> None:
    with new_folder(str(tmp_path / "box"), **WORDS) as new:
        os.mkdir(os.path.join(new.unfinished, "etc"))
        os.chmod(new.unfinished, mode)
    assert os.listdir(tmp_path) == ["box"]
    (tmp_path / "box").chmod(0o755)  # for whoever clears away after the tests


def test_a_failed_folder_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(SpaceError), new_folder(str(tmp_path / "box"), **WORDS) as new:
        os.makedirs(os.path.join(new.unfinished, "a", "b"))
        os.chmod(os.path.join(new.unfinished, "a"), 0)
        raise OSError(errno.ENOSPC, "full")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_an_existing_folder_is_never_merged_with(tmp_path: Path, when: str) -> None:
    path = tmp_path / "box"
    if when == "before":
        path.mkdir()
    with pytest.raises(ExistsError), new_folder(str(path), **WORDS) as new:
        os.mkdir(os.path.join(new.unfinished, "mine"))
        path.mkdir()
        (path / "theirs").touch()
    assert os.listdir(tmp_path) == ["box"]
    assert not (path / "mine").exists()


def test_the_next_folder_clears_away_what_a_killed_process_left(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from enroot_py.store.workspace import new_folder\n"
        "with new_folder(sys.argv[1], stage='', setting='') as new:\n"
        "    os.makedirs(new.unfinished + '/etc/sub', 0o500)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "box")], check=False)
    assert len(os.listdir(tmp_path)) == 2
    with new_folder(str(tmp_path / "box"), **WORDS):
        pass
    assert os.listdir(tmp_path) == ["box"]


def test_folders_made_at_the_same_time_leave_each_other_alone(tmp_path: Path) -> None:
    with (
        new_folder(str(tmp_path / "one"), **WORDS) as one,
        new_folder(str(tmp_path / "two"), **WORDS) as two,
    ):
        assert os.path.isdir(one.unfinished)
        assert os.path.isdir(two.unfinished)
    assert sorted(os.listdir(tmp_path)) == ["one", "two"]


@pytest.mark.parametrize("kind", ["folder", "pipe", "socket"])
def test_force_replaces_files_only(tmp_path: Path, kind: str) -> None:
    """`-f -o /dev/null`, given by root, must not take the device away from everybody."""
    path = tmp_path / "taken"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        os.mknod(path, 0o140600)
    before = path.stat().st_ino
    with (
        pytest.raises(ExistsError, match="already exists") as caught,
        new_file(str(path), force=True, stage="writing", setting="--output"),
    ):
        pass
    assert path.stat().st_ino == before
    assert "--force" not in caught.value.hint and "name" in caught.value.hint
