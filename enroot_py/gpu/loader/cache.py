"""The dynamic loader's cache, `/etc/ld.so.cache`: read, extend and write it. Pure.

The loader finds a library that is in none of its default directories through this file alone, so
adding entries to it replaces a run of ldconfig (a quarter of a second, in an untrusted root).

Layout: an optional block in the format before glibc 2.2, skipped here; then a 48-byte header,
24-byte entries in descending order, strings, and since glibc 2.33 an extension block that names the
hardware-capability directories. Offsets of strings count from the header of the new block, those of
the extension and of its sections from the start of the file.

Source: glibc 2.36 sysdeps/generic/dl-cache.h, elf/cache.c, elf/dl-cache.c; every field checked
against `ldconfig -p`.
"""

from __future__ import annotations

import struct
from bisect import bisect_left

from enroot_py.errors import UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

FLAG_I386, FLAG_X86_64, FLAG_PPC64LE = 0x0003, 0x0303, 0x0503
FLAG_X32, FLAG_ARM_HARD_FLOAT, FLAG_AARCH64, FLAG_RISCV64 = 0x0803, 0x0903, 0x0A03, 0x1003

MAX_SIZE = 64 << 20
"""Bytes; a larger cache is refused."""

_OLD_MAGIC = b"ld.so-1.7.0"
_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sIIB3xI12x")
_ENTRY = struct.Struct("<iIIIQ")
_EXTENSION_MAGIC = 0xEAA42174
_TAG_GENERATOR, _TAG_HWCAPS = 0, 1
_LITTLE_ENDIAN = 2
_MAX_SECTIONS = 64

_LARGEST = 10**18
# Characters to digits and others; to bytes that ascend where the loader's order descends. Digits,
# which come first there, are written as nine bytes of which the first is 0.
_KINDS = bytes(48 if 48 <= byte <= 57 else 46 for byte in range(256))
_DESCENDING = bytes(max(1, 127 - byte if byte < 128 else 383 - byte) for byte in range(256))


class CacheEntry(NamedTuple):
    """One library: the loader's flags, its SONAME, its path and what hardware it needs."""

    flags: int
    soname: str
    path: str
    osversion: int = 0
    hwcap: int = 0


class LoaderCache(NamedTuple):
    """A whole cache; entries in file order.

    Attributes:
        hwcaps: names of the glibc-hwcaps directories that entries' `hwcap` refers to.
        generator: who wrote it, as the file says; "" in files of glibc before 2.33.
    """

    entries: tuple[CacheEntry, ...]
    hwcaps: tuple[str, ...] = ()
    generator: str = ""


def parse_cache(data: bytes) -> LoaderCache:
    """Read a cache.

    Raises:
        UnsupportedError: if it is damaged, of another byte order, or of an unknown format.
    """
    try:
        return _parse(data)
    except (struct.error, ValueError, IndexError) as error:
        raise UnsupportedError("the loader cache is damaged or of an unknown format") from error


def build_cache(cache: LoaderCache) -> bytes:
    """Write a cache in the new format; entries are taken in the order given."""
    return _Builder(cache).build()


def add_entries(cache: LoaderCache, added: Iterable[CacheEntry]) -> LoaderCache:
    """Return the cache with entries added, each before those of the same SONAME.

    The loader takes the first plain entry of a SONAME, so what is added wins, and what was there
    serves again as soon as the addition is removed.
    """
    keys: dict[str, bytes] = {}

    def key(entry: CacheEntry) -> bytes:
        soname = entry.soname
        found = keys.get(soname)
        if found is None:
            found = keys[soname] = order_key(soname)
        return found

    entries = list(cache.entries)
    for entry in sorted(added, key=key):
        entries.insert(bisect_left(entries, key(entry), key=key), entry)
    return cache._replace(entries=tuple(entries))


def remove_entries(cache: LoaderCache, folder: str) -> LoaderCache:
    """Return the cache without the entries whose libraries lie beneath `folder`."""
    prefix = folder.rstrip("/") + "/"
    kept = tuple(entry for entry in cache.entries if not entry.path.startswith(prefix))
    return cache._replace(entries=kept)


def sort_entries(entries: Iterable[CacheEntry]) -> tuple[CacheEntry, ...]:
    """Sort entries as the loader's binary search expects them."""
    return tuple(sorted(entries, key=lambda entry: order_key(entry.soname)))


def order_key(soname: str) -> bytes:
    """Return a key by which SONAMEs sort as in the file, i.e. descending in the loader's order.

    The loader compares runs of digits as numbers, and a digit sorts above any other character;
    characters are signed, so those above 127 sort below all others.

    Source: glibc elf/dl-cache.c, _dl_cache_libcmp().
    """
    raw = soname.encode("utf-8", "surrogateescape")
    kinds = raw.translate(_KINDS)
    parts: list[bytes] = []
    place, size = 0, len(raw)
    while True:
        digit = kinds.find(b"0", place)
        if digit < 0:
            break
        end = kinds.find(b".", digit)
        end = size if end < 0 else end
        number = int(raw[digit:end]) if end - digit < 18 else _LARGEST
        parts += (raw[place:digit].translate(_DESCENDING), (_LARGEST - number).to_bytes(9, "big"))
        place = end
    # The end of a name sorts below everything.
    return b"".join((*parts, raw[place:].translate(_DESCENDING), b"\xff"))


def _parse(data: bytes) -> LoaderCache:
    if len(data) > MAX_SIZE:
        raise ValueError
    base = 0
    if data.startswith(_OLD_MAGIC):
        (count,) = struct.unpack_from("<I", data, 12)
        base = (16 + count * 12 + 7) & ~7
    magic, count, _, order, extension = _HEADER.unpack_from(data, base)
    if magic != _MAGIC or order & 3 not in (0, _LITTLE_ENDIAN):
        raise ValueError
    first = base + _HEADER.size
    if count * _ENTRY.size > len(data) - first:
        raise ValueError
    table = memoryview(data)[first : first + count * _ENTRY.size]
    entries = []
    for flags, key, value, osversion, hwcap in _ENTRY.iter_unpack(table):
        soname, path = _string(data, base + key), _string(data, base + value)
        entries.append(CacheEntry(flags, soname, path, osversion, hwcap))
    hwcaps, generator = _parse_extension(data, base, extension) if extension else ((), "")
    return LoaderCache(tuple(entries), hwcaps, generator)


def _parse_extension(data: bytes, base: int, offset: int) -> tuple[tuple[str, ...], str]:
    magic, count = struct.unpack_from("<II", data, offset)
    if magic != _EXTENSION_MAGIC or count > _MAX_SECTIONS:
        raise ValueError
    hwcaps: tuple[str, ...] = ()
    generator = ""
    for index in range(count):
        tag, _, start, size = struct.unpack_from("<IIII", data, offset + 8 + 16 * index)
        if start + size > len(data):
            raise ValueError
        if tag == _TAG_GENERATOR:
            generator = data[start : start + size].decode("utf-8", "surrogateescape")
        elif tag == _TAG_HWCAPS:
            places = struct.unpack_from(f"<{size // 4}I", data, start)
            hwcaps = tuple(_string(data, base + place) for place in places)
    return hwcaps, generator


def _string(data: bytes, start: int) -> str:
    if start >= len(data):
        raise ValueError
    return data[start : data.index(b"\0", start)].decode("utf-8", "surrogateescape")


class _Builder:
    """Lays out one cache: header, entries, strings, extension."""

    def __init__(self, cache: LoaderCache) -> None:
        self.cache = cache
        self.head = _HEADER.size + _ENTRY.size * len(cache.entries)
        self.strings = bytearray()
        self.places: dict[str, int] = {}

    def build(self) -> bytes:
        entries = bytearray()
        for entry in self.cache.entries:
            key, value = self._intern(entry.soname), self._intern(entry.path)
            entries += _ENTRY.pack(entry.flags, key, value, entry.osversion, entry.hwcap)
        hwcaps = [self._intern(name) for name in self.cache.hwcaps]
        size = len(self.strings)
        extension = b""
        offset = 0
        if hwcaps or self.cache.generator:
            offset = (self.head + size + 3) & ~3
            extension = b"\0" * (offset - self.head - size) + self._extension(offset, hwcaps)
        count = len(self.cache.entries)
        header = _HEADER.pack(_MAGIC, count, size, _LITTLE_ENDIAN, offset)
        return b"".join((header, entries, self.strings, extension))

    def _intern(self, text: str) -> int:
        place = self.places.get(text)
        if place is None:
            place = self.places[text] = self.head + len(self.strings)
            self.strings += text.encode("utf-8", "surrogateescape") + b"\0"
        return place

    def _extension(self, offset: int, hwcaps: list[int]) -> bytes:
        generator = self.cache.generator.encode("utf-8", "surrogateescape")
        sections = [
            (_TAG_GENERATOR, generator),
            (_TAG_HWCAPS, struct.pack(f"<{len(hwcaps)}I", *hwcaps)),
        ]
        block = struct.pack("<II", _EXTENSION_MAGIC, len(sections))
        start = offset + 8 + 16 * len(sections)
        body = b""
        for tag, content in sections:
            block += struct.pack("<IIII", tag, 0, start + len(body), len(content))
            body += content + b"\0" * (-len(content) % 4)
        return block + body
