"""ENROOT_SQUASH_OPTIONS: mksquashfs's own words, as the writer's options.

What the writer does not do itself is not an error here: `SquashfsOptions.foreign` lists the options
that only mksquashfs has, and `squashfs/mksquashfs.py` hands the work to it.

Source: mksquashfs(1) of squashfs-tools 4.5 and 4.6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from enroot_py.errors import SettingsError
from enroot_py.squashfs.format import DEFAULT_BLOCK_SIZE, MAX_BLOCK_SIZE, MIN_BLOCK_SIZE

LEVELS = {"gzip": (1, 9, 9), "zstd": (1, 22, 15)}
"""Lowest, highest and mksquashfs's default compression level."""

BCJ_FILTERS = ("x86", "powerpc", "ia64", "arm", "armthumb", "sparc")
"""Branch filters of xz, in the order of their bits in the compressor options."""

GZIP_STRATEGIES = ("default", "filtered", "huffman_only", "run_length_encoded", "fixed")
"""Deflate strategies, in the order of their bits in the compressor options."""


@dataclass(frozen=True, slots=True)
class SquashfsOptions:
    """How an image is written. The defaults are this package's: zstd, level 1.

    Attributes:
        compressor: "zstd", "gzip", "lz4", "xz" or "lzo".
        level: of gzip and zstd, in mksquashfs's scale.
        window_log: deflate's window size, 8 to 15.
        strategies: deflate strategies to try for each block; the smallest result is kept.
        high_compression: lz4's slow mode.
        bcj_filters: xz branch filters to try besides none.
        dictionary_size: of xz, in bytes; 0 for the block size.
        block_size: bytes of a data block, a power of two.
        compress_data, compress_fragments, compress_inodes, compress_xattrs, compress_ids: what
            is compressed; the directory, fragment and export tables go with the inodes.
        fragments: small files share blocks.
        tail_fragments: the ends of larger files share blocks too.
        duplicates: equal files are stored once.
        exports: write the table that serving the image over NFS needs.
        sparse: blocks of zeros are left out.
        xattrs: extended attributes are stored.
        pad: the image is padded to a multiple of 4 KiB.
        processors: compressing threads, or 0 for the caller's default.
        memory: bytes for blocks in flight, or 0 for no limit but the writer's own.
        mkfs_time: the image's time in seconds since 1970, or None for the caller's.
        all_time: every file's time, likewise, or None for its own.
        latest_time: later times of files become this, or None.
        words: the words that were parsed.
        foreign: those options among them that only mksquashfs has.
    """

    compressor: str = "zstd"
    level: int = 1
    window_log: int = 15
    strategies: tuple[str, ...] = ()
    high_compression: bool = False
    bcj_filters: tuple[str, ...] = ()
    dictionary_size: int = 0
    block_size: int = DEFAULT_BLOCK_SIZE
    compress_data: bool = True
    compress_fragments: bool = True
    compress_inodes: bool = True
    compress_xattrs: bool = True
    compress_ids: bool = True
    fragments: bool = True
    tail_fragments: bool = False
    duplicates: bool = True
    exports: bool = True
    sparse: bool = True
    xattrs: bool = True
    pad: bool = True
    processors: int = 0
    memory: int = 0
    mkfs_time: int | None = None
    all_time: int | None = None
    latest_time: int | None = None
    words: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    def identity(self) -> str:
        """Return a text that is equal for options that give the same bytes.

        Threads and memory are left out. Part of the key of a finished image in the store.
        """
        if self.foreign:
            return "mksquashfs " + " ".join(self.words)
        neutral = replace(self, processors=0, memory=0, words=(), foreign=())
        # The dataclass's own repr names every field, so a new option cannot be forgotten here.
        return repr(neutral)


def image_options(text: str, source_date_epoch: str = "") -> SquashfsOptions:
    """Return the options for an image that is imported, given what is in the environment.

    Args:
        text: ENROOT_SQUASH_OPTIONS.
        source_date_epoch: SOURCE_DATE_EPOCH, the time that the image and all its files get.

    Raises:
        SettingsError: if either cannot be used.

    Source: enroot 4.1.2 src/docker.sh, docker::import().
    """
    options = parse_squash_options(text)
    if not source_date_epoch:
        return options
    if not source_date_epoch.isascii() or not source_date_epoch.isdigit():
        raise SettingsError(
            f"Invalid value for SOURCE_DATE_EPOCH: {source_date_epoch}",
            hint="expected seconds since 1970",
        )
    time = min(int(source_date_epoch), 0xFFFFFFFF)
    # Words that were given say more than the variable.
    return replace(
        options,
        mkfs_time=time if options.mkfs_time is None else options.mkfs_time,
        all_time=time if options.all_time is None else options.all_time,
    )


def parse_squash_options(text: str) -> SquashfsOptions:
    """Parse the words of ENROOT_SQUASH_OPTIONS, split at white space as the original does.

    Without `-comp` the compressor is gzip, and without a level it is mksquashfs's default one.

    Raises:
        SettingsError: if an option lacks its value or has one that cannot be used.
    """
    words = tuple(text.split())
    found: dict[str, object] = {"compressor": "gzip"}
    extras: list[tuple[str, str]] = []
    foreign: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word in _FLAGS:
            found.update(_FLAGS[word])
            continue
        takes_value = word in _VALUES or word in _EXTRAS or word in _FOREIGN_VALUES
        if takes_value and position == len(words):
            raise _bad_value(word, "", "a value")
        if word in _VALUES:
            field, convert = _VALUES[word]
            found[field] = convert(word, words[position])
        elif word in _EXTRAS:
            extras.append((word, words[position]))
        else:
            foreign.append(word)
        position += takes_value
    return _build(found, extras, words, foreign)


def _build(
    found: dict[str, object],
    extras: list[tuple[str, str]],
    words: tuple[str, ...],
    foreign: list[str],
) -> SquashfsOptions:
    """Give the compressor's own options their meaning, which depends on the compressor."""
    compressor = str(found["compressor"])
    if compressor not in ("gzip", "zstd", "lz4", "xz", "lzo"):
        foreign.append(f"-comp {compressor}")
    found["level"] = LEVELS.get(compressor, (0, 0, 0))[2]
    if found.get("high_compression") and compressor != "lz4":
        raise _bad_value("-Xhc", "", "-comp lz4")
    for word, value in extras:
        if compressor == "lzo" or word == "-Xalgorithm":
            # The LZO library at hand has one algorithm and no levels.
            foreign.append(word)
        elif compressor not in _EXTRAS[word]:
            raise _bad_value(word, value, f"an option of -comp {compressor}")
        elif word == "-Xcompression-level":
            low, high, _ = LEVELS[compressor]
            found["level"] = _integer(word, value, low, high)
        elif word == "-Xwindow-size":
            found["window_log"] = _integer(word, value, 8, 15)
        elif word == "-Xstrategy":
            found["strategies"] = _names(word, value, GZIP_STRATEGIES)
        elif word == "-Xbcj":
            found["bcj_filters"] = _names(word, value, BCJ_FILTERS)
        else:
            block_size = found.get("block_size", DEFAULT_BLOCK_SIZE)
            assert isinstance(block_size, int)
            found["dictionary_size"] = _dictionary_size(word, value, block_size)
    return SquashfsOptions(**found, words=words, foreign=tuple(foreign))  # type: ignore[arg-type]


def _bad_value(word: str, value: str, expected: str) -> SettingsError:
    return SettingsError(
        f"Invalid value for ENROOT_SQUASH_OPTIONS: {word} {value}".rstrip(),
        hint=f"expected {expected}",
    )


def _integer(word: str, value: str, low: int, high: int) -> int:
    if not (value.isascii() and value.isdigit()) or not low <= int(value) <= high:
        raise _bad_value(word, value, f"a number from {low} to {high}")
    return int(value)


def _size(word: str, value: str) -> int:
    """Bytes, with mksquashfs's suffixes."""
    digits, shift = value, 0
    if value and value[-1] in "kKmMgG":
        digits, shift = value[:-1], {"k": 10, "m": 20, "g": 30}[value[-1].lower()]
    return _integer(word, digits, 1, 1 << 40) << shift


def _block_size(word: str, value: str) -> int:
    size = _size(word, value)
    if not MIN_BLOCK_SIZE <= size <= MAX_BLOCK_SIZE or size & (size - 1):
        raise _bad_value(word, value, "a power of two from 4K to 1M")
    return size


def _memory(word: str, value: str) -> int:
    # mksquashfs counts in MiB when there is no suffix.
    return _size(word, value if value[-1:] in "kKmMgG" else value + "M")


def _dictionary_size(word: str, value: str, block_size: int) -> int:
    if value.endswith("%"):
        percent = _integer(word, value[:-1], 1, 100)
        size = block_size * percent // 100
    else:
        size = _size(word, value)
    power = 1 << (size.bit_length() - 1)
    if not 8192 <= size <= block_size or size not in (power, power + power // 2):
        raise _bad_value(word, value, "2^n or 2^n + 2^(n-1) bytes, from 8K to the block size")
    return size


def _names(word: str, value: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = value.split(",")
    if not set(names) <= set(known):
        raise _bad_value(word, value, "some of " + ", ".join(known))
    # In the table's order, whatever the user's: equal options give equal bytes.
    return tuple(name for name in known if name in names)


def _text(_word: str, value: str) -> str:
    return value


def _time(word: str, value: str) -> int:
    return _integer(word, value, 0, 0xFFFFFFFF)


def _processors(word: str, value: str) -> int:
    return _integer(word, value, 1, 4096)


_FLAGS: dict[str, dict[str, object]] = {
    "-noI": {"compress_inodes": False, "compress_ids": False},
    "-noInodeCompression": {"compress_inodes": False, "compress_ids": False},
    "-noId": {"compress_ids": False},
    "-noIdTableCompression": {"compress_ids": False},
    "-noD": {"compress_data": False},
    "-noDataCompression": {"compress_data": False},
    "-noF": {"compress_fragments": False},
    "-noFragmentCompression": {"compress_fragments": False},
    "-noX": {"compress_xattrs": False},
    "-noXattrCompression": {"compress_xattrs": False},
    "-no-compression": {
        "compress_inodes": False, "compress_ids": False, "compress_data": False,
        "compress_fragments": False, "compress_xattrs": False,
    },
    "-no-fragments": {"fragments": False},
    "-tailends": {"tail_fragments": True},
    "-always-use-fragments": {"tail_fragments": True},
    "-no-tailends": {"tail_fragments": False},
    "-no-duplicates": {"duplicates": False},
    "-no-exports": {"exports": False},
    "-exports": {"exports": True},
    "-no-sparse": {"sparse": False},
    "-no-xattrs": {"xattrs": False},
    "-xattrs": {"xattrs": True},
    "-nopad": {"pad": False},
    "-Xhc": {"high_compression": True},
    # What the writer does anyway: one owner, every error fatal, a new file, no display,
    # the same bytes each time, nothing to recover because nothing half-written is ever seen.
    "-all-root": {}, "-root-owned": {}, "-exit-on-error": {}, "-noappend": {}, "-quiet": {},
    "-no-progress": {}, "-reproducible": {}, "-no-recovery": {},
}  # fmt: skip

_VALUES: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "-comp": ("compressor", _text),
    "-b": ("block_size", _block_size),
    "-processors": ("processors", _processors),
    "-mem": ("memory", _memory),
    "-mkfs-time": ("mkfs_time", _time),
    "-fstime": ("mkfs_time", _time),
    "-all-time": ("all_time", _time),
}

_EXTRAS: dict[str, tuple[str, ...]] = {
    # option: the compressors that have it
    "-Xcompression-level": ("gzip", "zstd", "lzo"),
    "-Xwindow-size": ("gzip",),
    "-Xstrategy": ("gzip",),
    "-Xbcj": ("xz",),
    "-Xdict-size": ("xz",),
    "-Xalgorithm": ("lzo",),
}

_FOREIGN_VALUES = frozenset(
    {
        "-action", "-log-action", "-true-action", "-false-action", "-action-file",
        "-log-action-file", "-true-action-file", "-false-action-file", "-p", "-pd", "-pf",
        "-sort", "-ef", "-e", "-root-becomes", "-root-time", "-root-mode", "-root-uid",
        "-root-gid", "-force-uid", "-force-gid", "-force-file-mode", "-force-dir-mode", "-recover",
        "-recovery-path", "-throttle", "-limit", "-offset", "-o", "-xattrs-exclude",
        "-xattrs-include", "-xattrs-add", "-default-mode", "-default-uid", "-default-gid",
        "-max-depth", "-mem-percent", "-inode-time", "-repro-time", "-processors-percent",
    }
)  # fmt: skip
"""Options with a value that only mksquashfs has; a word in no table is such an option without."""
