"""What a start with GPUs leaves in a writable rootfs, and how it goes."""

from __future__ import annotations

from pathlib import Path

from enroot_py.gpu.loader.cache import (
    FLAG_X86_64,
    CacheEntry,
    LoaderCache,
    build_cache,
    parse_cache,
)
from enroot_py.gpu.rootfs.leftover import (
    cache_without_injection,
    has_leftover,
    restore_cache,
    strip_cache,
)

OWN = CacheEntry(FLAG_X86_64, "libz.so.1", "/usr/lib/libz.so.1")
OURS = CacheEntry(FLAG_X86_64, "libcuda.so.1", "/run/enroot/gpu/lib64/libcuda.so.1")
CLEAN = LoaderCache((OWN,))
USED = LoaderCache((OWN, OURS))


def rootfs(tmp_path: Path, cache: bytes) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.cache").write_bytes(cache)
    return tmp_path


def test_entries_of_ours_are_taken_out() -> None:
    stripped = strip_cache(build_cache(USED))
    assert stripped is not None and parse_cache(stripped) == CLEAN


def test_other_caches_are_left_alone() -> None:
    assert strip_cache(build_cache(CLEAN)) is None
    assert strip_cache(b"junk /run/enroot/gpu/lib64 junk") is None
    beside = LoaderCache((OURS._replace(path="/opt/enroot/gpu/lib64/libcuda.so.1"),))
    assert strip_cache(build_cache(beside)) is None


def test_a_rootfs_is_restored_once(tmp_path: Path) -> None:
    folder = rootfs(tmp_path, build_cache(USED))
    assert has_leftover(str(folder))
    assert restore_cache(str(folder))
    assert not has_leftover(str(folder))
    assert not restore_cache(str(folder))
    assert parse_cache((folder / "etc/ld.so.cache").read_bytes()) == CLEAN
    assert (folder / "etc/ld.so.cache").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in (folder / "etc").iterdir()] == ["ld.so.cache"]


def test_a_look_changes_nothing(tmp_path: Path) -> None:
    folder = rootfs(tmp_path, build_cache(USED))
    content = cache_without_injection(str(folder))
    assert content is not None and parse_cache(content) == CLEAN
    assert has_leftover(str(folder))


def test_a_link_out_of_the_rootfs_is_not_followed(tmp_path: Path) -> None:
    outside = rootfs(tmp_path, build_cache(USED)) / "etc/ld.so.cache"
    inside = tmp_path / "rootfs"
    (inside / "etc").mkdir(parents=True)
    (inside / "etc/ld.so.cache").symlink_to(outside)
    assert not has_leftover(str(inside))
    assert not restore_cache(str(inside))
    assert parse_cache(outside.read_bytes()) == USED


def test_a_rootfs_without_a_cache(tmp_path: Path) -> None:
    assert not has_leftover(str(tmp_path))
    assert not restore_cache(str(tmp_path))
    assert cache_without_injection(str(tmp_path)) is None
