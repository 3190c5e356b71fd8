"""NVIDIA's files in a cache folder: which are opened, and who could change what is read."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from enroot_py import log
from enroot_py.image.digest import Digest, digest_of
from enroot_py.image.manifest import Descriptor
from enroot_py.store.cache_folders import CacheFolders, open_cache
from enroot_py.store.recompressed import has_recompressed, list_recompressed, open_recompressed

DATA = b"a layer, compressed anew"
LAYER = Descriptor("", digest_of(b"layer"), 100)
STRANGER = 65534


@pytest.fixture
def folders(tmp_path: Path) -> CacheFolders:
    return open_cache(str(tmp_path / "cache"))


def put(folders: CacheFolders, mode: int = 0o640, data: bytes = DATA) -> Path:
    path = Path(folders.path) / LAYER.digest.hex
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_ones_own_is_opened_itself(folders: CacheFolders) -> None:
    path = put(folders)
    assert has_recompressed(folders, LAYER)
    file = open_recompressed(folders, LAYER)
    assert file is not None
    with file:
        assert os.fstat(file.fileno()).st_ino == path.stat().st_ino
        assert file.read() == DATA


@pytest.mark.parametrize("mode", [0o660, 0o646])
def test_what_others_may_write_to_is_copied(folders: CacheFolders, mode: int) -> None:
    path = put(folders, mode)
    file = open_recompressed(folders, LAYER)
    assert file is not None
    path.write_bytes(b"something else")
    with file:
        assert file.read() == DATA
        assert os.fstat(file.fileno()).st_nlink == 0
    assert os.listdir(folders.partial) == []


def test_a_copy_has_an_end(folders: CacheFolders) -> None:
    os.truncate(put(folders, 0o660), 1 << 40)
    assert open_recompressed(folders, LAYER) is None


def test_what_is_not_there_is_not_opened(folders: CacheFolders) -> None:
    assert not has_recompressed(folders, LAYER)
    assert open_recompressed(folders, LAYER) is None
    long = Descriptor("", Digest("sha512", "0" * 128), 1)
    assert not has_recompressed(folders, long)
    assert open_recompressed(folders, long) is None


def test_what_is_being_removed_is_not_opened(folders: CacheFolders) -> None:
    with open(put(folders), "rb") as removing:
        fcntl.flock(removing, fcntl.LOCK_EX)
        assert open_recompressed(folders, LAYER) is None


def test_only_files_named_like_nvidias_are_listed(folders: CacheFolders) -> None:
    mine = put(folders)
    for name in ("1" * 63, "2" * 65, "A" * 64, "3" * 64 + ".short", "notes"):
        (Path(folders.path) / name).write_bytes(b"x")
    (Path(folders.path) / ("4" * 64)).mkdir()
    (Path(folders.path) / ("5" * 64)).symlink_to(mine)
    assert [path for _, path, _ in list_recompressed(folders)] == [str(mine)]


@pytest.mark.root
def test_a_strangers_file_is_copied(folders: CacheFolders) -> None:
    path = put(folders)
    os.chown(path, STRANGER, STRANGER)
    file = open_recompressed(folders, LAYER)
    assert file is not None
    with file:
        assert os.fstat(file.fileno()).st_nlink == 0
        assert file.read() == DATA
    assert list(list_recompressed(folders)) == []


@pytest.mark.root
def test_what_may_not_be_read_is_said_and_left(open_folder: Path) -> None:
    said: list[str] = []
    log.set_sink(lambda level, text: said.append(f"[{level}] {text}"))
    cache = open_folder / "cache"
    cache.mkdir()
    os.chown(cache, STRANGER, STRANGER)
    try:
        os.seteuid(STRANGER)
        folders = open_cache(str(cache))
        os.seteuid(0)
        path = put(folders, 0o600)
        os.seteuid(STRANGER)
        assert open_recompressed(folders, LAYER) is None
    finally:
        os.seteuid(0)
        log.set_sink(None)
    assert said == [f"[WARN] {path} cannot be used: Permission denied"]
