"""The compressors of the format: functions for one block, and their options in the image.

Every function here gives the same bytes for the same input, whatever the thread
(docs/adr/0004-deterministic-images.md). Libraries are imported where they are used: an image needs
one of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import pack
from typing import TYPE_CHECKING

from enroot_py.errors import SquashfsError, UnsupportedError
from enroot_py.squashfs.format import METADATA_UNCOMPRESSED
from enroot_py.squashfs.options import BCJ_FILTERS, GZIP_STRATEGIES, SquashfsOptions

if TYPE_CHECKING:
    import lzallright

Compress = Callable[[bytes], bytes]
"""Compresses one block; not to be shared between threads."""

Decompress = Callable[[bytes, int], bytes]
"""Decompresses one block of at most so many bytes; raises SquashfsError on anything else."""


def make_compressor(options: SquashfsOptions) -> Compress:
    """Return the compressor that `options` ask for.

    Raises:
        UnsupportedError: if the library for it is not installed.
    """
    if options.compressor == "zstd":
        import zstandard

        return zstandard.ZstdCompressor(level=options.level).compress
    if options.compressor == "gzip":
        return _make_gzip_compressor(options)
    if options.compressor == "xz":
        return _make_xz_compressor(options)
    if options.compressor == "lz4":
        return _make_lz4_compressor(options)
    if options.compressor == "lzo":
        compress: Compress = _lzo_compressor().compress
        return compress
    raise UnsupportedError(
        f"Images with compressor {options.compressor} cannot be written",
        hint="set -comp zstd, gzip, lz4, xz or lzo in ENROOT_SQUASH_OPTIONS",
    )


def make_decompressor(name: str) -> Decompress:
    """Return the decompressor for blocks of the compressor `name`.

    Raises:
        UnsupportedError: if there is none, or the library for it is not installed.
    """
    makers: dict[str, Callable[[], Decompress]] = {
        "zstd": _make_zstd_decompressor,
        "gzip": _make_gzip_decompressor,
        "xz": _make_xz_decompressor,
        "lz4": _make_lz4_decompressor,
        "lzo": _make_lzo_decompressor,
    }
    if name not in makers:
        raise UnsupportedError(
            f"Images with compressor {name} cannot be read",
            hint="unpack it with unsquashfs, or import the image again",
        )
    return makers[name]()


def compressor_options(options: SquashfsOptions) -> bytes:
    """Return the compressor options as they stand behind the superblock, or b"" for none.

    Only what differs from the default is written, except that lz4 demands its record.
    """
    record = b""
    if options.compressor == "gzip":
        strategies = _bits(options.strategies, GZIP_STRATEGIES)
        if (options.level, options.window_log, strategies) != (9, 15, 0):
            record = pack("<IHH", options.level, options.window_log, strategies)
    elif options.compressor == "zstd" and options.level != 15:
        record = pack("<I", options.level)
    elif options.compressor == "lz4":
        record = pack("<II", 1, options.high_compression)
    elif options.compressor == "xz" and (options.bcj_filters or options.dictionary_size):
        size = options.dictionary_size or options.block_size
        record = pack("<II", size, _bits(options.bcj_filters, BCJ_FILTERS))
    if not record:
        return b""
    return pack("<H", len(record) | METADATA_UNCOMPRESSED) + record


def _bits(names: tuple[str, ...], table: tuple[str, ...]) -> int:
    return sum(1 << table.index(name) for name in names)


def _smallest(candidates: list[Compress]) -> Compress:
    """Try every candidate on each block; the first of the smallest results wins."""
    if len(candidates) == 1:
        return candidates[0]
    return lambda data: min((candidate(data) for candidate in candidates), key=len)


def _make_gzip_compressor(options: SquashfsOptions) -> Compress:
    # Not isal, although it is faster: its levels end at about zlib's third, and whoever asks for
    # gzip asks for a level in zlib's scale.
    numbers = {
        "default": zlib.Z_DEFAULT_STRATEGY,
        "filtered": zlib.Z_FILTERED,
        "huffman_only": zlib.Z_HUFFMAN_ONLY,
        "run_length_encoded": zlib.Z_RLE,
        "fixed": zlib.Z_FIXED,
    }

    def make(strategy: int) -> Compress:
        def compress(data: bytes) -> bytes:
            deflate = zlib.compressobj(
                options.level, zlib.DEFLATED, options.window_log, 8, strategy
            )
            return deflate.compress(data) + deflate.flush()

        return compress

    return _smallest([make(numbers[name]) for name in options.strategies or ("default",)])


def _make_xz_compressor(options: SquashfsOptions) -> Compress:
    import lzma

    # The kernel allocates a dictionary of the block size (or of the recorded size) and refuses
    # streams that want a larger one; it knows no check but CRC32.
    size = options.dictionary_size or options.block_size
    last = {"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": size}
    branches = {
        "x86": lzma.FILTER_X86,
        "powerpc": lzma.FILTER_POWERPC,
        "ia64": lzma.FILTER_IA64,
        "arm": lzma.FILTER_ARM,
        "armthumb": lzma.FILTER_ARMTHUMB,
        "sparc": lzma.FILTER_SPARC,
    }

    def make(filters: list[dict[str, int]]) -> Compress:
        return lambda data: lzma.compress(
            data, lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, filters=filters
        )

    chains = [[last]] + [[{"id": branches[name]}, last] for name in options.bcj_filters]
    return _smallest([make(chain) for chain in chains])


def _make_lz4_compressor(options: SquashfsOptions) -> Compress:
    from lz4 import block

    if options.high_compression:
        return lambda data: bytes(
            block.compress(data, mode="high_compression", compression=12, store_size=False)
        )
    return lambda data: bytes(block.compress(data, store_size=False))


def _lzo_compressor() -> lzallright.LZOCompressor:
    try:
        import lzallright
    except ImportError as error:
        raise UnsupportedError(
            "The image's compressor is LZO, and the Python package lzallright is not installed",
            hint="pip install lzallright",
        ) from error
    return lzallright.LZOCompressor()


def _make_zstd_decompressor() -> Decompress:
    import zstandard

    inflate = zstandard.ZstdDecompressor().decompress
    content_size = zstandard.frame_content_size

    def decompress(data: bytes, limit: int) -> bytes:
        try:
            # The binding believes a frame's own size and allocates it before it looks at more.
            if content_size(data) > limit:
                raise SquashfsError("Damaged image: a block is larger than it may be")
            return inflate(data, max_output_size=limit)
        except zstandard.ZstdError as error:
            raise SquashfsError(f"Damaged image: a zstd block is corrupt ({error})") from error

    return decompress


def _make_gzip_decompressor() -> Decompress:
    from isal import isal_zlib

    # isal's type stub declares an instance where the module has the class.
    corrupt: type[Exception] = isal_zlib.IsalError  # type: ignore[assignment]

    def decompress(data: bytes, limit: int) -> bytes:
        inflate = isal_zlib.decompressobj()
        try:
            result: bytes = inflate.decompress(data, limit)
        except corrupt as error:
            raise SquashfsError(f"Damaged image: a gzip block is corrupt ({error})") from error
        if not inflate.eof:
            raise SquashfsError("Damaged image: a gzip block is cut short or too large")
        return result

    return decompress


def _make_xz_decompressor() -> Decompress:
    import lzma

    def decompress(data: bytes, limit: int) -> bytes:
        # The largest dictionary the format allows is 1 MiB; the memory limit refuses others.
        inflate = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=16 << 20)
        try:
            result = inflate.decompress(data, limit)
        except lzma.LZMAError as error:
            raise SquashfsError(f"Damaged image: an xz block is corrupt ({error})") from error
        if not inflate.eof:
            raise SquashfsError("Damaged image: an xz block is cut short or too large")
        return result

    return decompress


def _make_lz4_decompressor() -> Decompress:
    from lz4 import block

    def decompress(data: bytes, limit: int) -> bytes:
        try:
            return bytes(block.decompress(data, uncompressed_size=limit))
        except block.LZ4BlockError as error:
            raise SquashfsError(f"Damaged image: an lz4 block is corrupt ({error})") from error

    return decompress


def _make_lzo_decompressor() -> Decompress:
    compressor = _lzo_compressor()
    import lzallright

    def decompress(data: bytes, limit: int) -> bytes:
        try:
            # The size is a hint to this library; LZO cannot expand more than 255 times, so a
            # block that lies costs at most some megabytes before it is refused.
            result: bytes = compressor.decompress(data, limit)
        except lzallright.LZOError as error:
            raise SquashfsError(f"Damaged image: an LZO block is corrupt ({error})") from error
        if len(result) > limit:
            raise SquashfsError("Damaged image: a block is larger than it may be")
        return result

    return decompress
