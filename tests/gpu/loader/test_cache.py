"""The loader's cache: read like ldconfig, written so that the loader finds what was added."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from enroot_py.errors import UnsupportedError
from enroot_py.gpu.loader.cache import (
    FLAG_I386,
    FLAG_X86_64,
    CacheEntry,
    LoaderCache,
    add_entries,
    build_cache,
    order_key,
    parse_cache,
    remove_entries,
    sort_entries,
)

LDCONFIG = shutil.which("ldconfig", path="/sbin:/usr/sbin") or "/sbin/ldconfig"


def printed(cache: Path) -> list[tuple[str, str]]:
    """What `ldconfig -p` says of a cache: (SONAME, path) in order."""
    text = subprocess.run(
        [LDCONFIG, "-C", str(cache), "-p"], capture_output=True, text=True, check=True
    ).stdout
    lines = [line.strip() for line in text.splitlines() if " => " in line]
    return [(line.split(" ")[0], line.rpartition(" => ")[2]) for line in lines]


def sample(count: int = 40, seed: int = 1) -> LoaderCache:
    chance = random.Random(seed)
    names = {f"lib{chance.choice('abcxyz')}{chance.randrange(30)}.so.{chance.randrange(12)}"
             for _ in range(count)}  # fmt: skip
    entries = [CacheEntry(FLAG_X86_64, name, f"/usr/lib/{name}") for name in names]
    return LoaderCache(sort_entries(entries))


def old_block(count: int) -> bytes:
    """The block that glibc before 2.32 puts in front, with `count` entries."""
    block = b"ld.so-1.7.0\0" + struct.pack("<I", count) + b"\0" * (12 * count)
    return block + b"\0" * (-len(block) % 8)


def test_this_machines_cache_reads_as_ldconfig_prints_it() -> None:
    path = Path("/etc/ld.so.cache")
    cache = parse_cache(path.read_bytes())
    assert [(entry.soname, entry.path) for entry in cache.entries] == printed(path)
    assert sort_entries(cache.entries) == cache.entries


@pytest.mark.parametrize(
    "cache",
    [
        LoaderCache(()),
        sample(),
        sample()._replace(hwcaps=("x86-64-v3", "x86-64-v2"), generator="a test"),
        sample()._replace(generator="without hwcaps"),
        LoaderCache((CacheEntry(FLAG_I386, "liba\udcff.so", "/a\udcff"),)),
        LoaderCache((CacheEntry(-1, "liba.so", "/a", 7, 1 << 63 | 5),)),
    ],
    ids=["empty", "plain", "hwcaps", "generator", "bytes", "odd numbers"],
)
def test_what_is_written_reads_the_same(cache: LoaderCache) -> None:
    assert parse_cache(build_cache(cache)) == cache


def test_a_written_cache_prints_in_ldconfig_as_read(tmp_path: Path) -> None:
    cache = sample()._replace(hwcaps=("x86-64-v3",), generator="a test")
    path = tmp_path / "cache"
    path.write_bytes(build_cache(cache))
    assert printed(path) == [(entry.soname, entry.path) for entry in cache.entries]


def test_the_block_of_older_versions_is_passed_over() -> None:
    cache = sample()
    # String offsets count from the new block; only the extension's are the file's.
    assert parse_cache(old_block(3) + build_cache(cache)) == cache
    assert parse_cache(old_block(0) + build_cache(cache)) == cache


@pytest.mark.parametrize(
    ("above", "below"),
    [
        ("libc.so.6", "libb.so.6"),
        ("libc.so.10", "libc.so.9"),
        ("libc1.so", "libc.so"),
        ("libc.so.6", "libc.so"),
        ("libcuda.so.1", "libcuda.so"),
        ("lib10.so", "lib9.so"),
        ("lib007.so", "lib6.so"),
        ("liba.so", "lib\udcff.so"),
    ],
)
def test_the_loaders_order(above: str, below: str) -> None:
    assert order_key(above) < order_key(below)


def test_what_is_added_comes_before_what_was_there() -> None:
    old = CacheEntry(FLAG_X86_64, "libcuda.so.1", "/image/libcuda.so.1")
    cache = LoaderCache(sort_entries([*sample().entries, old]))
    new = CacheEntry(FLAG_X86_64, "libcuda.so.1", "/run/enroot/gpu/lib64/libcuda.so.1")
    other = CacheEntry(FLAG_X86_64, "libnvidia-ml.so.1", "/run/enroot/gpu/lib64/libnvidia-ml.so.1")
    added = add_entries(cache, [other, new])
    assert added.entries == sort_entries(added.entries)
    named = [entry.path for entry in added.entries if entry.soname == "libcuda.so.1"]
    assert named == [new.path, old.path]
    assert remove_entries(added, "/run/enroot/gpu") == cache


def test_entries_beside_the_folder_stay() -> None:
    entry = CacheEntry(FLAG_X86_64, "liba.so", "/run/enroot/gpux/liba.so")
    assert remove_entries(LoaderCache((entry,)), "/run/enroot/gpu/").entries == (entry,)


def test_every_truncation_and_every_wrong_field_is_refused_or_read() -> None:
    data = build_cache(sample(8)._replace(hwcaps=("x86-64-v3",), generator="g"))
    for size in range(len(data)):
        try:
            parse_cache(data[:size])
        except UnsupportedError:
            continue
    for place, value in [(20, 1 << 31), (32, len(data)), (48 + 4, 1 << 31), (48 + 8, len(data))]:
        broken = bytearray(data)
        broken[place : place + 4] = struct.pack("<I", value)
        with pytest.raises(UnsupportedError):
            parse_cache(bytes(broken))


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"glibc-ld.so.cache1.0" + b"\0" * 60, b"\x7fELF" * 20, old_block(1 << 20)[:64]],
)
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(UnsupportedError):
        parse_cache(data)


def test_the_other_byte_order_is_refused() -> None:
    data = bytearray(build_cache(sample(3)))
    data[28] = 3
    with pytest.raises(UnsupportedError):
        parse_cache(bytes(data))


def test_random_damage_raises_the_one_error() -> None:
    """10 000 damaged files: each is read, or refused with the documented error."""
    chance = random.Random(20250917)
    data = build_cache(sample(6)._replace(hwcaps=("x86-64-v3",), generator="g"))
    refused = 0
    for _ in range(10_000):
        broken = bytearray(data)
        for _ in range(chance.randrange(1, 5)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        if chance.random() < 0.3:
            del broken[chance.randrange(len(broken)) :]
        try:
            parse_cache(bytes(broken))
        except UnsupportedError:
            refused += 1
    assert 0 < refused < 10_000


@pytest.mark.kernel
@pytest.mark.parametrize("layout", ["new", "compat"])
def test_ldconfigs_own_files_with_hardware_folders(tmp_path: Path, layout: str) -> None:
    """Files that ldconfig writes, in both layouts, read as it prints them, hwcaps included."""
    from tests.roots.shared_objects import write_stub

    write_stub(tmp_path / "usr/lib/liba.so.1", "liba.so.1")
    write_stub(tmp_path / "usr/lib/glibc-hwcaps/x86-64-v2/liba.so.1", "liba.so.1")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.conf").write_text("/usr/lib\n")
    subprocess.run([LDCONFIG, "-r", str(tmp_path), "-c", layout, "-X"], check=True)
    path = tmp_path / "etc/ld.so.cache"
    cache = parse_cache(path.read_bytes())
    assert [(entry.soname, entry.path) for entry in cache.entries] == printed(path)
    assert cache.hwcaps == ("x86-64-v2",)
    assert parse_cache(build_cache(cache)) == cache
