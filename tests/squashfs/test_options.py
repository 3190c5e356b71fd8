"""mksquashfs's words, as options of the writer."""

from __future__ import annotations

import re

import pytest

from enroot_py.errors import SettingsError
from enroot_py.squashfs.options import SquashfsOptions, image_options, parse_squash_options

UNDERSTOOD = [
    ("-comp zstd -Xcompression-level 1", {"compressor": "zstd", "level": 1}),
    ("-comp zstd", {"compressor": "zstd", "level": 15}),
    ("", {"compressor": "gzip", "level": 9}),
    ("-comp gzip -Xcompression-level 6 -Xwindow-size 10", {"level": 6, "window_log": 10}),
    ("-Xstrategy fixed,default", {"strategies": ("default", "fixed")}),
    ("-comp lzo -noD -exit-on-error", {"compressor": "lzo", "level": 0, "compress_data": False}),
    ("-comp lz4 -Xhc", {"compressor": "lz4", "high_compression": True}),
    ("-comp xz -Xbcj arm,x86", {"bcj_filters": ("x86", "arm")}),
    ("-comp xz -b 1M -Xdict-size 75%", {"block_size": 1 << 20, "dictionary_size": 3 << 18}),
    ("-comp xz -Xdict-size 32K", {"dictionary_size": 32768}),
    ("-b 4096", {"block_size": 4096}),
    ("-b 256k", {"block_size": 262144}),
    ("-b 131072", {"block_size": 131072}),
    ("-noI", {"compress_inodes": False, "compress_ids": False}),
    ("-noId", {"compress_inodes": True, "compress_ids": False}),
    ("-noF", {"compress_fragments": False}),
    ("-noX", {"compress_xattrs": False}),
    ("-no-fragments", {"fragments": False}),
    ("-always-use-fragments", {"tail_fragments": True}),
    ("-no-duplicates", {"duplicates": False}),
    ("-no-exports", {"exports": False}),
    ("-no-sparse", {"sparse": False}),
    ("-no-xattrs", {"xattrs": False}),
    ("-nopad", {"pad": False}),
    ("-processors 3", {"processors": 3}),
    ("-mem 512M", {"memory": 512 << 20}),
    ("-mem 2", {"memory": 2 << 20}),
    ("-mkfs-time 5 -all-time 7", {"mkfs_time": 5, "all_time": 7}),
    ("-all-root -quiet -no-progress -noappend -no-recovery -reproducible", {"level": 9}),
]


@pytest.mark.parametrize(("text", "expected"), UNDERSTOOD)
def test_word_is_understood(text: str, expected: dict[str, object]) -> None:
    options = parse_squash_options(text)
    assert {name: getattr(options, name) for name in expected} == expected
    assert options.foreign == ()
    assert options.words == tuple(text.split())


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ("-comp lzma", ("-comp lzma",)),
        ("-comp lzo -Xalgorithm lzo1x_1", ("-Xalgorithm",)),
        ("-comp lzo -Xcompression-level 9", ("-Xcompression-level",)),
        ("-comp zstd -e tmp -sort order", ("-e", "-sort")),
        ("-no-such-thing -comp xz", ("-no-such-thing",)),
        ("-info", ("-info",)),
        ("-p dev/null -comp lz4", ("-p",)),
        ("-no-hardlinks", ("-no-hardlinks",)),
    ],
)
def test_word_of_mksquashfs_alone_is_named(text: str, foreign: tuple[str, ...]) -> None:
    options = parse_squash_options(text)
    assert options.foreign == foreign
    # A value is never taken for the next option.
    assert options.words == tuple(text.split())


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("-b", "expected a value"),
        ("-comp", "expected a value"),
        ("-e", "expected a value"),
        ("-b 3000", "power of two"),
        ("-b 2M", "power of two"),
        ("-b 2048", "power of two"),
        ("-b 128X", "a number"),
        ("-b ٣", "a number"),
        ("-comp zstd -Xcompression-level 23", "from 1 to 22"),
        ("-comp gzip -Xcompression-level 0", "from 1 to 9"),
        ("-comp gzip -Xcompression-level fast", "from 1 to 9"),
        ("-comp xz -Xcompression-level 6", "an option of -comp xz"),
        ("-comp zstd -Xbcj x86", "an option of -comp zstd"),
        ("-comp xz -Xbcj riscv", "some of x86"),
        ("-comp xz -Xdict-size 100000", "2\\^n"),
        ("-comp xz -Xdict-size 256K", "2\\^n"),
        ("-comp xz -Xdict-size 101%", "from 1 to 100"),
        ("-comp gzip -Xhc", "-comp lz4"),
        ("-Xwindow-size 16", "from 8 to 15"),
        ("-Xstrategy best", "some of default"),
        ("-processors 0", "from 1"),
        ("-mkfs-time -1", "a number"),
        ("-all-time 4294967296", "from 0"),
    ],
)
def test_value_that_cannot_be_used_is_refused(text: str, hint: str) -> None:
    with pytest.raises(SettingsError, match="ENROOT_SQUASH_OPTIONS") as caught:
        parse_squash_options(text)
    assert re.search(hint, caught.value.hint)


def test_the_last_word_wins() -> None:
    options = parse_squash_options("-b 4K -b 8K -xattrs -no-xattrs -tailends -no-tailends")
    assert (options.block_size, options.xattrs, options.tail_fragments) == (8192, False, False)


def test_identity_says_what_the_bytes_depend_on() -> None:
    base = parse_squash_options("-comp zstd -Xcompression-level 1")
    assert base.identity() == SquashfsOptions().identity()
    for same in ("-processors 7", "-mem 1G", "-quiet", "-exit-on-error"):
        text = f"-comp zstd -Xcompression-level 1 {same}"
        assert parse_squash_options(text).identity() == base.identity()
    others = ["-b 4K", "-noD", "-Xcompression-level 2", "-no-duplicates", "-all-time 1", "-e x"]
    identities = {
        parse_squash_options(f"-comp zstd -Xcompression-level 1 {other}").identity()
        for other in others
    }
    assert len(identities | {base.identity()}) == len(others) + 1


def test_source_date_epoch_sets_all_times_that_the_words_do_not() -> None:
    options = image_options("-comp zstd", "1234")
    assert (options.mkfs_time, options.all_time) == (1234, 1234)
    options = image_options("-comp zstd -mkfs-time 5 -all-time 6", "1234")
    assert (options.mkfs_time, options.all_time) == (5, 6)
    assert image_options("-comp zstd").all_time is None
    assert image_options("", "99999999999").mkfs_time == 2**32 - 1
    with pytest.raises(SettingsError, match="SOURCE_DATE_EPOCH: yesterday"):
        image_options("", "yesterday")
